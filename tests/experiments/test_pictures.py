"""The pictures of the README, made from a tiny model."""

import pytest
from pictures import main
from toy import experiment

from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.inspection import attention_maps

WORDS = ["a dog sees a cat .", "a bird finds a child ."]


def test_the_alignment_is_written_as_a_small_opaque_picture(trained, tmp_path):
    image = pytest.importorskip("matplotlib.image", reason="needs the extra `plot`")
    done = experiment("pictures.py", trained, "--output", tmp_path / "new", "--words", *WORDS)
    assert done.returncode == 0, done.stderr[-2000:]
    path = tmp_path / "new" / "alignment.png"
    assert str(path) in done.stdout
    assert path.stat().st_size < 150_000
    pixels = image.imread(path)
    assert pixels.shape[1] == 1600
    assert (pixels[..., 3] == 1).all()
    assert (pixels[0, 0, :3] == 1).all()


def test_the_alignment_shows_the_mean_over_the_heads(trained, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    from matplotlib.axes import Axes

    drawn, original = [], Axes.imshow

    def record(axes, weights, **options):
        drawn.append(weights)
        return original(axes, weights, **options)

    monkeypatch.setattr(Axes, "imshow", record)
    main([str(trained), "--output", str(tmp_path), "--words", *WORDS])
    loaded = load_model(str(trained))
    for weights, word in zip(drawn, WORDS, strict=True):
        expected = attention_maps(*loaded, word).cross[0].mean(0).numpy()
        assert weights == pytest.approx(expected, abs=1e-6)


def test_an_unknown_layer_is_refused(trained, tmp_path):
    with pytest.raises(ValueError, match="`--layer` is 7"):
        main([str(trained), "--output", str(tmp_path / "out"), "--layer", "7"])
    assert not (tmp_path / "out").exists()
