"""HTML: its texts, with the tags of their inline elements; all else stays as it is."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from vanilla_transformer.documents.markup import MarkedText, Tag
from vanilla_transformer.documents.places import (
    FileTemplate,
    Item,
    Place,
    join_codes,
    partners_of,
    split_edges,
)
from vanilla_transformer.documents.tags import HTML, Dialect, read_attributes, split_tags
from vanilla_transformer.text.languages import JOINED_LINES

_KEPT = frozenset({"code", "kbd", "math", "samp", "svg", "template", "var"})
_FOREIGN = frozenset({"math", "svg"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_BLOCKS = frozenset(
    "address article aside base blockquote body br button caption center col colgroup dd details "  # noqa: SIM905
    "dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 "
    "head header hgroup hr html legend li main menu nav ol optgroup option p plaintext pre rp rt "
    "search section select summary table tbody td tfoot th thead title tr ul xmp".split()
)
"""Elements whose tags end a text."""
_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);")
_WHITE_SPACE = re.compile(r"[ \t\r\n\f]+")

PieceKind = Literal["text", "begin", "end", "empty", "cut"]


class Piece(NamedTuple):
    """A piece of HTML.

    Attributes:
        begin: Its position in the source.
        text: The piece, as it is written.
        kind: "text", which is translated; "begin", "end" or "empty", a tag or another thing in a
            text; "cut", a tag that ends a text.
        name: The name of the element, of a "begin" and an "end".
        is_preformatted: Whether it is in `pre`.
    """

    begin: int
    text: str
    kind: PieceKind
    name: str = ""
    is_preformatted: bool = False


def read_html(source: str, encoding: str = "utf-8", dialect: Dialect = HTML) -> FileTemplate:
    """Reads HTML.

    A text ends at the tags of blocks, such as `p`, and at `br`; inline elements are tags in it.
    Attributes, comments, document types, scripts, styles, and elements with `translate="no"` or the
    class `notranslate` stay as they are; so do `code`, `kbd`, `samp`, `var`, `textarea`, `svg`,
    `math` and `template`. Elements with `translate="yes"` in them are translated. White space
    within a text counts as one space, and a line break between Chinese or Japanese characters as
    nothing, except in `pre`.
    """
    groups = groupby(split_markup(source, dialect), lambda piece: piece.kind == "cut")
    places = [place for is_cut, pieces in groups if not is_cut for place in _places(list(pieces))]
    return FileTemplate(source, places, encoding)


def _places(pieces: list[Piece]) -> Iterator[Place]:
    """Yields the places between two tags of blocks: one text, or several around unpaired tags."""
    items: list[Item] = [
        html.unescape(piece.text)
        if piece.kind == "text"
        else Tag(0, piece.text, piece.kind, piece.name)  # type: ignore[arg-type]  # it is no "cut"
        for piece in pieces
    ]
    partners = partners_of(items)
    lone = [
        index
        for index, piece in enumerate(pieces)
        if piece.kind in ("begin", "end") and index not in partners
    ]
    if lone:  # their elements enclose more than this text
        for last, index in pairwise([-1, *lone, len(pieces)]):
            yield from _places(pieces[last + 1 : index])
        return
    before, marked, after = split_edges(join_codes(items))
    if not any(map(str.isalnum, marked.text)):
        return
    references = [
        reference
        for piece in pieces
        if piece.kind == "text"
        for reference in _REFERENCE.findall(piece.text)
    ]
    meant = {html.unescape(reference): reference for reference in references}
    written = {sign: text for sign, text in meant.items() if sign not in (text, " ")}
    signs = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **written}
    marked = marked if pieces[0].is_preformatted else _collapsed(marked)
    begin, end = pieces[0].begin, pieces[-1].begin + len(pieces[-1].text)
    yield Place(begin, end, marked, before, after, escape=partial(_escaped, signs=signs))


def _escaped(text: str, signs: Mapping[str, str]) -> str:
    return "".join(signs.get(sign, sign) for sign in text)


def _collapsed(marked: MarkedText) -> MarkedText:
    """Returns a text with one space for white space, also where that goes on behind a tag."""
    text, tags, opened = "", list[Tag](), list[int]()
    for part in marked.parts():
        if isinstance(part, Tag):
            tags.append(replace(part, position=len(text)))
            if part.kind == "begin":
                opened.append(len(text))
            begin = opened.pop() if part.kind == "end" else len(text)  # of the element
            continue
        part = _WHITE_SPACE.sub(" ", JOINED_LINES.sub("", part))
        if text.endswith(" ") and part.startswith(" "):
            part = part[1:]
            last = tags[-1]
            if last.kind != "begin" and begin == last.position:
                # An image or `code`, which has spaces on both sides.
                tags[-1] = replace(last, text=f"{last.text} ")
        text += part
    return MarkedText(text, tuple(tags))


def split_markup(source: str, dialect: Dialect = HTML) -> Iterator[Piece]:
    """Yields the pieces of HTML, of which texts are as long as possible."""
    preformatted = 0
    open_elements = Counter[str]()
    # Elements around here that switch translation off or on: name, open elements of it, is it off?
    regions = [("", 0, False)]
    for begin, text, of_token, written_name, attributes in split_tags(source, dialect):
        was_kept = regions[-1][2]
        name = written_name.lower()
        kind: PieceKind = "empty"
        if of_token == "text":
            kind = "empty" if was_kept else "text"
        elif of_token == "raw":
            kind = "text" if name == "title" and not was_kept else "empty"  # a title has no tags
        elif of_token != "other":
            step = {"begin": 1, "end": -1}.get(of_token, 0)
            open_elements[name] = max(0, open_elements[name] + step)  # some end tags end nothing
            preformatted = open_elements["pre"]
            while open_elements[regions[-1][0]] < regions[-1][1]:
                regions.pop()
            if of_token == "begin" and name not in _VOID:
                asked = _is_kept(name, attributes)
                if asked is not None and asked != regions[-1][2]:
                    regions.append((name, open_elements[name], asked))
            kind = of_token
            if was_kept and regions[-1][2]:
                kind = "empty"
            elif name in _BLOCKS:
                kind = "cut"
            elif name in _VOID or (name in _FOREIGN and text.endswith("/>")):
                kind = "empty"
        is_preformatted = preformatted > 0 and of_token != "raw"
        yield Piece(begin, text, kind, name, is_preformatted)


def _is_kept(name: str, attributes: str) -> bool | None:
    """Returns whether an element is kept; None: as the element around it."""
    if attributes.endswith("/") and name in _FOREIGN:
        return None
    is_translated = False
    for attribute, written in read_attributes(attributes):
        value = written.lower()
        if attribute.lower() == "translate" and value.strip() == "no":
            return True
        is_translated |= attribute.lower() == "translate" and value.strip() in ("yes", "")
        if attribute.lower() == "class" and "notranslate" in value.split():
            return True
    if is_translated:
        return False
    return True if name in _KEPT else None
