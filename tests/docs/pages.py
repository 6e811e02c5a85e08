"""The README and the pages of docs/, and the code blocks that they hold."""

import re
from dataclasses import dataclass

from programs import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]
NOT_RUN = {
    "network": "downloads from another host",
    "hub": "uploads to the Hub, which needs an account",
    "reopened": "needs a package of Argos Translate, or a training; tests/adapt/test_adaptation.py "
    "and tests/interop/test_argos.py do the same",
    "cluster": "needs a cluster; tests/commands/test_corpus_shards.py has a scheduler and workers",
}
"""Why a block marked `<!-- not run: KEY -->` is not run."""

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<mark>\w+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its code, and the key of why it is not run."""

    language: str
    code: str
    mark: str | None


def blocks(page):
    """All fenced blocks of a page, in order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["code"], match["mark"]) for match in found]
