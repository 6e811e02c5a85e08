"""The pictures of the README and the documentation, made from a tiny model."""

import re
import shutil
import struct

import pytest
from toy import REPOSITORY, experiment

WORDS = ["a dog sees a cat .", "a bird finds a child ."]


def test_every_picture_of_the_pages_is_there_and_small():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"\]\((?:docs/)?pictures/([\w-]+\.png)\)", text))
    stored = {path.name: path for path in (REPOSITORY / "docs" / "pictures").iterdir()}
    assert set(stored) == shown
    assert all(path.stat().st_size < 150_000 for path in stored.values())


def test_figures_of_a_model_are_drawn(trained, tmp_path):
    image = pytest.importorskip("matplotlib.image", reason="needs the extra `plot`")
    done = experiment("pictures.py", trained, "--output", tmp_path, "--words", *WORDS)
    assert done.returncode == 0, done.stderr[-2000:]
    drawn = sorted(tmp_path.iterdir())
    assert sorted(done.stdout.split()) == [str(path) for path in drawn]
    stored = {path.name for path in (REPOSITORY / "docs" / "pictures").iterdir()}
    assert {path.name for path in drawn} <= stored
    pixels = image.imread(tmp_path / "alignment.png")
    assert pixels.shape[1] == 1600
    assert (pixels[..., 3] == 1).all()  # dark pages would show through


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium: install `chromium`")
def test_pictures_of_the_page_are_taken(trained, tmp_path):
    options = ("--page", "--words", WORDS[0], "--page-layer", "0", "--page-head", "1")
    done = experiment("pictures.py", trained, "--output", tmp_path, *options)
    assert done.returncode == 0, done.stderr
    widths = {
        path.stem: struct.unpack(">I", path.read_bytes()[16:20])[0]
        for path in tmp_path.glob("*.png")
    }
    assert widths == {"page": 1280, "page-heads": 1280, "page-dark": 390}
