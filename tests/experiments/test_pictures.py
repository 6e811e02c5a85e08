"""The pictures of the README and the documentation, made from a tiny model."""

import re

from toy import REPOSITORY

WORDS = ["a dog sees a cat .", "a bird finds a child ."]


def test_every_picture_of_the_pages_is_there_and_small():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"\]\((?:docs/)?pictures/([\w-]+\.png)\)", text))
    stored = {path.name: path for path in (REPOSITORY / "docs" / "pictures").iterdir()}
    assert set(stored) == shown
    assert all(path.stat().st_size < 150_000 for path in stored.values())
