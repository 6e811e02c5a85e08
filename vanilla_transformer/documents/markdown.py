"""The texts of Markdown: paragraphs, headings and cells, with emphasis and links as tags."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from vanilla_transformer.documents.markup import MarkedText, Tag
from vanilla_transformer.documents.places import (
    Code,
    Document,
    Item,
    Kind,
    Place,
    place_of,
    with_tags,
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


def read_markdown(source: str) -> Document:
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
        quote = _as_cell if before.type in ("td_open", "th_open") else str
        begins, prefixes = [], []
        for number, line in enumerate(token.content.split("\n"), token.map[0]):
            text = quote(line.strip())
            begins.append(source.index(text, max(starts[number], end), starts[number + 1]))
            prefixes.append(source[starts[number] : begins[-1]])
            end = begins[-1] + len(text)
        items = list(_items(token, prefixes))
        signs = {
            sign.content: sign.markup for sign in token.children if sign.type == "text_special"
        }
        write = partial(_written, signs)
        places += place_of(source, (begins[0], end), items, write, quote)
    return Document(source, places)


def _as_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _written(signs: Mapping[str, str], output: MarkedText) -> str:
    """Returns an output with its tags, and with characters as the source wrote them.

    Emphasis around nothing, whose signs would be text, goes.
    """
    tags: list[Tag] = []
    for tag in output.tags:
        is_emphasis = tag.kind == "end" and not tag.text.strip("*_~")
        if is_emphasis and tags[-1].kind == "begin" and tags[-1].position == tag.position:
            tags.pop()  # its partner: pairs are nested
        else:
            tags.append(tag)
    output = replace(output, tags=tuple(tags))
    return output.write(lambda text: "".join(signs.get(sign, sign) for sign in text))


def _items(token: Any, prefixes: Sequence[str]) -> Iterator[Item]:
    """Yields the texts of a block, and its markup as codes.

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
            yield Code(written[: written.index("\n") + 1] + prefixes[line])
        elif kind == "html_inline":
            tags = (item for item in with_tags(written) if isinstance(item, Code))
            yield next(tags, Code(written))
        elif kind == "auto":
            yield Code(written)
            next(children)  # the address
            next(children)  # the end
        else:
            kinds: dict[str, Kind] = {"open": "begin", "close": "end"}
            yield Code(written, kinds.get(side, "empty"), name)
        position += len(written)
    yield content[position:]  # what the patterns above do not tell
