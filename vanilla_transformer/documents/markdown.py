"""The texts of Markdown: paragraphs, headings and cells, with emphasis and links as tags."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from vanilla_transformer.documents.markup import Kind, MarkedText, Tag
from vanilla_transformer.documents.places import (
    FileTemplate,
    Item,
    Place,
    find_place,
    split_text,
)
from vanilla_transformer.extras import optional_packages
from vanilla_transformer.languages import JOINED_LINES

_BEFORE = re.compile(r"\ufeff?(?:---\r?\n.*?\n---\r?\n)?", re.DOTALL)
_NEW_LINE = re.compile(r"\r\n?|\n")
_TARGET = r"(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)"
_TITLE = r"""(?:\s+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?"""
_LINK_END = rf"\](?:\(\s*{_TARGET}{_TITLE}\s*\)|\[(?:[^\[\]\\]|\\.)*\])?"
_FORMS = {  # what the tokens of the parser do not tell
    "auto": re.compile(r"<[^<>]*>"),
    "code_inline": re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL),
    "hardbreak": re.compile(r"(?: {2,}|\\)\n[ \t]*"),
    "image": re.compile(rf"!\[(?:[^\[\]\\]|\\.|\[[^\[\]]*\])*{_LINK_END}", re.DOTALL),
    "link_close": re.compile(_LINK_END, re.DOTALL),
    "softbreak": re.compile(r" *\n[ \t]*"),
}


@dataclass(frozen=True, kw_only=True)
class _MarkdownPlace(Place):
    """A block of Markdown.

    Attributes:
        signs: Characters as the source writes them, such as a star with a backslash.
        is_cell: Whether it is a cell of a table.
    """

    signs: Mapping[str, str]
    is_cell: bool

    def write(self, output: MarkedText) -> str:
        """Emphasis around nothing, whose signs would be text, goes."""
        tags: list[Tag] = []
        for tag in output.tags:
            is_emphasis = tag.kind == "end" and not tag.text.strip("*_~")
            if is_emphasis and tags[-1].kind == "begin" and tags[-1].position == tag.position:
                tags.pop()  # its partner: pairs are nested
            else:
                tags.append(tag)
        output = replace(output, tags=tuple(tags))
        written = self.with_edges(
            output.write(lambda text: "".join(self.signs.get(sign, sign) for sign in text))
        )
        return _as_cell(written) if self.is_cell else written


def read_markdown(source: str) -> FileTemplate:
    """Reads CommonMark with tables. Code, blocks of HTML and front matter stay as they are."""
    with optional_packages():
        from markdown_it import MarkdownIt
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    end = _BEFORE.match(source).end()  # type: ignore[union-attr]  # it matches nothing, too
    starts = [end, *(match.end() for match in _NEW_LINE.finditer(source, end)), len(source)]
    places: list[Place] = []
    for before, token in pairwise(parser.parse(source[end:])):
        if token.type != "inline" or not token.map or not token.children:
            continue
        # The parser takes the backslash before each | out of cells.
        is_cell = before.type in ("td_open", "th_open")
        begins, prefixes = [], []
        for number, line in enumerate(token.content.split("\n"), token.map[0]):
            text = _as_cell(line.strip()) if is_cell else line.strip()
            begins.append(source.index(text, max(starts[number], end), starts[number + 1]))
            prefixes.append(source[starts[number] : begins[-1]])
            end = begins[-1] + len(text)
        items = list(_items(token, prefixes))
        signs = {
            sign.content: sign.markup for sign in token.children if sign.type == "text_special"
        }
        make = partial(_MarkdownPlace, signs=signs, is_cell=is_cell)
        places += find_place((begins[0], end), items, make)
    return FileTemplate(source, places)


def _as_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _items(token: Any, prefixes: Sequence[str]) -> Iterator[Item]:
    """Yields the texts of a block, and its markup as tags.

    Args:
        prefixes: What is before each of its lines.
    """
    content, position, line = token.content, 0, 0
    children = iter(token.children)
    for child in children:
        kind = "auto" if child.info == "auto" else child.type
        match = _FORMS[kind].match(content, position) if kind in _FORMS else None
        written = match[0] if match else child.markup or child.content
        if kind == "link_open":
            written = "["
        if not content.startswith(written, position):
            break
        name, _, side = kind.rpartition("_")
        if kind == "text":
            yield written
        elif kind == "text_special":
            yield child.content
        elif kind == "softbreak":
            line += 1
            yield "" if JOINED_LINES.match(content, position) else " "
        elif kind == "hardbreak":
            line += 1
            yield " "  # no white space goes out of the line
            yield Tag(0, written[: written.index("\n") + 1] + prefixes[line])
        elif kind == "html_inline":
            tags = (item for item in split_text(written) if isinstance(item, Tag))
            yield next(tags, Tag(0, written))
        elif kind == "auto":
            yield Tag(0, written)
            next(children)  # the address
            next(children)  # the end
        else:
            kinds: dict[str, Kind] = {"open": "begin", "close": "end"}
            yield Tag(0, written, kinds.get(side, "empty"), name)
        position += len(written)
    yield content[position:]  # what the patterns above do not tell
