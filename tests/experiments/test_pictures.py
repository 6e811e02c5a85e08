"""The pictures of the README and the documentation, made from a tiny model."""

import re

import pytest
from pictures import main
from toy import REPOSITORY, experiment

from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.inspection import attention_maps

WORDS = ["a dog sees a cat .", "a bird finds a child ."]


def pictures_of_the_pages():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    return set(re.findall(r"\]\((?:docs/)?pictures/([\w-]+\.png)\)", text))


def test_every_picture_of_the_pages_is_there_and_small():
    stored = {path.name: path for path in (REPOSITORY / "docs" / "pictures").iterdir()}
    assert set(stored) == pictures_of_the_pages()
    assert all(path.stat().st_size < 150_000 for path in stored.values())


def test_every_picture_of_the_pages_is_drawn_and_the_alignment_is_opaque(trained, tmp_path):
    image = pytest.importorskip("matplotlib.image", reason="needs the extra `plot`")
    done = experiment("pictures.py", trained, "--output", tmp_path / "new", "--words", *WORDS)
    assert done.returncode == 0, done.stderr[-2000:]
    drawn = sorted((tmp_path / "new").iterdir())
    assert sorted(done.stdout.split()) == [str(path) for path in drawn]
    # from page_pictures.py, learning_study.py and time_to_quality.py:
    of_the_browser = {f"{name}.png" for name in ("page", "page-dark", "page-heads", "server")}
    studies = ("post-norm", "pre-norm", "6-layers", "width-256")
    measured = {"time-to-quality.png", *(f"learning-{name}.png" for name in studies)}
    assert {path.name for path in drawn} == pictures_of_the_pages() - of_the_browser - measured
    assert all(path.stat().st_size < 150_000 for path in drawn)
    path = tmp_path / "new" / "alignment.png"
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
    only = ["--only", "alignment"]
    main([str(trained), "--output", str(tmp_path), *only, "--words", *WORDS])
    loaded = load_model(str(trained))
    for weights, word in zip(drawn, WORDS, strict=True):
        expected = attention_maps(*loaded, word).cross[0].mean(0).numpy()
        assert weights == pytest.approx(expected, abs=1e-6)


def test_an_unknown_layer_or_picture_is_refused(trained, tmp_path):
    with pytest.raises(ValueError, match=r"`--only` has \['maps'\]: choose from \['alignment'"):
        main([str(trained), "--output", str(tmp_path / "out"), "--only", "maps"])
    with pytest.raises(ValueError, match="`--layer` is 7"):
        main([str(trained), "--output", str(tmp_path / "out"), "--layer", "7"])
    assert not (tmp_path / "out").exists()
