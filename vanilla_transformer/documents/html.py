"""HTML: its texts, with the tags of their inline elements; all else stays as it is.

The rules for tags, comments and raw text are those of the HTML standard's tokenizer (section
"Tokenization"), so far as they decide where text begins and ends: a test compares them with a
parser that passes the standard's tests. Parsers that are kept by others either write markup anew
or do not report where each part of it begins.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from vanilla_transformer.documents.markup import MarkedText, Tag
from vanilla_transformer.documents.places import (
    Code,
    Document,
    Item,
    Place,
    partners_of,
    split_edges,
)
from vanilla_transformer.languages import JOINED_LINES

_NAME = r"(?:=[^\s/>=]*+|[^\s/>=]++)"
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|(?=>)|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = re.compile(rf"({_NAME})(?:\s*+=\s*+({_VALUE}))?+")
_ATTRIBUTES = rf"(?:[\s/]++|{_NAME}(?:\s*+=\s*+{_VALUE})?+)*+"
# Nothing here is tried in two ways, so the time is linear in the length.
_MARKUP = re.compile(
    rf"""
    <!--(?:-?>|.*?--!?>|.*\Z)            # a comment
    |<!\[CDATA\[.*?(?:\]\]>|\Z)          # a section of foreign content
    |<[!?][^>]*+(?:>|\Z)                 # a document type, a processing instruction
    |</[^a-zA-Z>][^>]*+(?:>|\Z)          # a comment by mistake
    |</>
    |</(?P<closed>[a-zA-Z][^\s/>]*+){_ATTRIBUTES}>
    |<(?P<opened>[a-zA-Z][^\s/>]*+)(?P<attributes>{_ATTRIBUTES})>
    |</?[a-zA-Z].*\Z                     # a tag without an end
    """,
    re.DOTALL | re.VERBOSE,
)
_IN_SCRIPT = re.compile(r"<!--(?!-*>)|-->|</?script(?=[\s/>])", re.IGNORECASE)
_WITHOUT_MARKUP = frozenset(
    "iframe noembed noframes noscript script style textarea title xmp".split()  # noqa: SIM905
)
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


Kind = Literal["text", "begin", "end", "empty", "cut"]


class Piece(NamedTuple):
    """A piece of HTML.

    Attributes:
        begin: Where it begins.
        text: It, as it is written.
        kind: "text", which is translated; "begin", "end" or "empty", a tag or another thing in a
            text; "cut", a tag that ends a text.
        name: That of the element, of a "begin" and an "end".
        is_preformatted: Whether it is in `pre`.
    """

    begin: int
    text: str
    kind: Kind
    name: str = ""
    is_preformatted: bool = False


def read_html(source: str) -> Document:
    """Reads HTML.

    A text is what stands between the tags of blocks, such as `p`, and `br`; inline elements are
    tags in it. Attributes, comments, document types, scripts, styles, and elements with
    `translate="no"` or the class `notranslate` stay as they are; so do `code`, `kbd`, `samp`,
    `var`, `textarea`, `svg`, `math` and `template`. What has `translate="yes"` in one of them is
    translated. White space within a text counts as one space, and a line break between Chinese or
    Japanese characters as nothing, except in `pre`.
    """
    source = source.replace("\0", "\ufffd")  # as browsers do
    groups = groupby(split_markup(source), lambda piece: piece.kind == "cut")
    places = [place for is_cut, pieces in groups if not is_cut for place in _places(list(pieces))]
    return Document(source, places)


def _places(pieces: list[Piece]) -> Iterator[Place]:
    """Yields what is between two tags of blocks: a text, or several around unpaired tags."""
    items: list[Item] = [
        html.unescape(piece.text)
        if piece.kind == "text"
        else Code(piece.text, piece.kind, piece.name)  # type: ignore[arg-type]  # it is no "cut"
        for piece in pieces
    ]
    partners = partners_of(items)
    lone = [
        index
        for index, piece in enumerate(pieces)
        if piece.kind in ("begin", "end") and index not in partners
    ]
    if lone:  # what they enclose is more than a text
        for last, index in pairwise([-1, *lone, len(pieces)]):
            yield from _places(pieces[last + 1 : index])
        return
    before, marked, after = split_edges(items)
    if not any(map(str.isalnum, marked.text)):
        return
    # Characters as the source wrote them.
    references = [
        reference
        for piece in pieces
        if piece.kind == "text"
        for reference in _REFERENCE.findall(piece.text)
    ]
    meant = {html.unescape(reference): reference for reference in references}
    written = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    written |= {sign: text for sign, text in meant.items() if sign not in (text, " ")}

    def escape(text: str) -> str:
        return "".join(written.get(character, character) for character in text)

    def write(output: MarkedText) -> str:
        edges = (
            "".join(escape(item) if isinstance(item, str) else item.text for item in items)
            for items in (before, after)
        )
        return output.write(escape).join(edges)

    marked = marked if pieces[0].is_preformatted else _collapsed(marked)
    begin, end = pieces[0].begin, pieces[-1].begin + len(pieces[-1].text)
    yield Place(begin, end, marked, write, "".join(piece.text for piece in pieces))


def _collapsed(marked: MarkedText) -> MarkedText:
    """Returns a text with one space for white space, also where that goes on behind a tag."""
    text, tags, opened = "", list[Tag](), list[int]()
    for part in marked.parts():
        if isinstance(part, Tag):
            tags.append(replace(part, position=len(text)))
            if part.kind == "begin":
                opened.append(len(text))
            begin = opened.pop() if part.kind == "end" else len(text)
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


def split_markup(source: str) -> Iterator[Piece]:
    """Yields the pieces of HTML, of which texts are as long as possible."""
    position, preformatted = 0, 0
    open_elements = Counter[str]()
    # The elements that begin or end what is kept: name, open elements of this name, is it kept?
    regions = [("", 0, False)]
    while position < len(source):
        match = _MARKUP.search(source, position)
        start = match.start() if match else len(source)
        was_kept = regions[-1][2]
        kind: Kind
        if start > position:
            kind = "empty" if was_kept else "text"
            yield Piece(position, source[position:start], kind, is_preformatted=preformatted > 0)
        if match is None:
            return
        position = match.end()
        opened, closed = (match["opened"] or "").lower(), (match["closed"] or "").lower()
        preformatted = max(0, preformatted + (opened == "pre") - (closed == "pre"))
        open_elements[opened] += 1
        open_elements[closed] = max(0, open_elements[closed] - 1)
        while open_elements[regions[-1][0]] < regions[-1][1]:
            regions.pop()
        if opened and opened not in _VOID:
            asked = _is_kept(opened, match["attributes"])
            if asked is not None and asked != regions[-1][2]:
                regions.append((opened, open_elements[opened], asked))
        name = opened or closed
        kind = "begin" if opened else "end"
        if not name or (was_kept and regions[-1][2]):
            kind = "empty"
        elif name in _BLOCKS:
            kind = "cut"
        elif name in _VOID or (name in _FOREIGN and match[0].endswith("/>")):
            kind = "empty"
        yield Piece(start, match[0], kind, name, preformatted > 0)
        if opened in _WITHOUT_MARKUP:
            end = _end_of_content(source, position, opened)
            kind = "text" if opened == "title" and not regions[-1][2] else "empty"
            yield Piece(position, source[position:end], kind)
            position = end


def _end_of_content(source: str, position: int, name: str) -> int:
    """Finds the tag that ends an element whose content is no markup."""
    if name != "script":
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, position)
        return end.start() if end else len(source)
    # In a script, `<!--` hides a pair of script tags.
    hides = is_hidden = False
    for match in _IN_SCRIPT.finditer(source, position):
        word = match[0].lower()
        if word == "</script" and not is_hidden:
            return match.start()
        hides = word != "-->" and (hides or word == "<!--")
        is_hidden = hides and (word == "<script" or (is_hidden and word != "</script"))
    return len(source)


def _is_kept(name: str, attributes: str) -> bool | None:
    """Returns whether an element is kept; None: as the element around it."""
    if attributes.endswith("/") and name in _FOREIGN:
        return None
    is_translated = False
    for attribute, written in _ATTRIBUTE.findall(attributes):
        value = written.strip("\"'").lower()
        if attribute.lower() == "translate" and value.strip() == "no":
            return True
        is_translated |= attribute.lower() == "translate" and value.strip() in ("yes", "")
        if attribute.lower() == "class" and "notranslate" in value.split():
            return True
    if is_translated:
        return False
    return True if name in _KEPT else None
