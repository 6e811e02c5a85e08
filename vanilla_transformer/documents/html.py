"""HTML: its texts, with the tags of their inline elements; all else stays as it is."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Final, Literal, NamedTuple

import regex

from vanilla_transformer.documents.marked_text import (
    TAG_SIGN,
    TAG_SIGNS,
    Item,
    Tag,
    has_letters,
    join_codes,
    partners_of,
    split_edges,
)
from vanilla_transformer.documents.places import Place
from vanilla_transformer.documents.tags import HTML, Dialect, Token, read_attributes, split_tags
from vanilla_transformer.text.languages import JOINED_LINES

_FIXED = frozenset({"code", "docauthor", "kbd", "math", "samp", "svg", "template", "var"})
_FOREIGN = frozenset({"math", "svg"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_BLOCKS = frozenset(
    "address article aside base blockquote body br button caption center col colgroup dd "  # noqa: SIM905
    "details dialog dir div dl doctitle dt fieldset figcaption figure footer form frame "
    "frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav navlabel ol "
    "optgroup option p plaintext pre rp rt search section select summary table tbody td tfoot "
    "th thead title tr ul xmp".split()
)
"""Elements whose tags end a text, also of the contents of a book (`.ncx`)."""
_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);")
_WHITE_SPACE = re.compile(r"[ \t\r\n\f]+")
_PAIR_SIGNS = TAG_SIGNS["begin"] + TAG_SIGNS["end"]
_SECOND_SPACE = regex.compile(rf"(?<= {TAG_SIGN}*[{_PAIR_SIGNS}]) ")  # as in " <b> "
_PAIR: Final = ("begin", "end")
Role = Literal["text", "pre", "begin", "end", "fixed", "block"]
"""What a token is to a translator: text, text in `pre`, a tag, what stays, or the end of a text."""


def places_of_html(source: str, dialect: Dialect = HTML) -> Iterator[Place]:
    """Yields the places of texts.

    A text ends at the tags of blocks, such as `p`, and at `br`; inline elements are tags in it.
    Attributes, comments, document types, scripts, styles, and elements with `translate="no"` or the
    class `notranslate` stay as they are; so do `code`, `kbd`, `samp`, `var`, `textarea`, `svg`,
    `math` and `template`. Elements with `translate="yes"` in them are translated. Except in `pre`,
    white space counts as one space, a line break between Chinese or Japanese characters as none.
    """
    for is_block, tokens in groupby(split_markup(source, dialect), lambda pair: pair[1] == "block"):
        if not is_block:
            yield from _places_between_blocks(list(tokens))


def _places_between_blocks(tokens: list[tuple[Token, Role]]) -> Iterator[Place]:
    """Yields the place of the text of tokens, or several places around unpaired tags."""
    items: list[Item] = [
        html.unescape(token.text)
        if role in ("text", "pre")
        else Tag(0, token.text, role if role in _PAIR else "empty", token.name.lower())
        for token, role in tokens
    ]
    partners = partners_of(items)
    tags = [n for n, (_, role) in enumerate(tokens) if role in _PAIR]
    if unpaired := [n for n in tags if n not in partners]:  # their elements enclose more
        for before, index in pairwise([-1, *unpaired, len(tokens)]):
            yield from _places_between_blocks(tokens[before + 1 : index])
        return
    marked = split_edges(join_codes(items))
    if not has_letters(marked.plain):
        return
    texts = [(token, role) for token, role in tokens if role in ("text", "pre")]
    escapes = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
    for reference in (found for token, _ in texts for found in _REFERENCE.findall(token.text)):
        sign = html.unescape(reference)
        if len(sign) == 1 and sign != " ":
            escapes[ord(sign)] = reference  # an output writes the sign as its source does
    if texts[0][1] != "pre":  # an image or `code` keeps the spaces on both sides
        coded = _WHITE_SPACE.sub(" ", JOINED_LINES.sub("", marked.coded))
        marked = marked.with_coded(_SECOND_SPACE.sub("", coded))
    (first, _), (last, _) = tokens[0], tokens[-1]
    end = last.begin + len(last.text)
    yield Place(marked, begin=first.begin, end=end, escape=lambda text: text.translate(escapes))


class _Region(NamedTuple):
    """An element that switches translation off or on for all that is in it.

    Attributes:
        depth: Number of open elements of this name, itself included.
        is_fixed: Whether it switches translation off.
    """

    name: str
    depth: int
    is_fixed: bool


def split_markup(source: str, dialect: Dialect = HTML) -> Iterator[tuple[Token, Role]]:
    """Yields the tokens of HTML, each with what it is to a translator."""
    open_elements = Counter[str]()
    regions = [_Region("", 0, is_fixed=False)]
    for token in split_tags(source, dialect):
        was_fixed = regions[-1].is_fixed
        name = token.name.lower()
        role: Role = "fixed"
        if token.kind in ("text", "raw"):
            if not was_fixed and (token.kind == "text" or name == "title"):  # which has no tags
                role = "pre" if token.kind == "text" and open_elements["pre"] else "text"
        elif token.kind != "other":
            step = {"begin": 1, "end": -1}.get(token.kind, 0)
            open_elements[name] = max(0, open_elements[name] + step)  # an end tag may end nothing
            while open_elements[regions[-1].name] < regions[-1].depth:
                regions.pop()
            if token.kind == "begin" and name not in _VOID:
                asked = _is_fixed(name, token.attributes)
                if asked is not None and asked != regions[-1].is_fixed:
                    regions.append(_Region(name, open_elements[name], asked))
            is_void = name in _VOID or (name in _FOREIGN and token.text.endswith("/>"))
            if not (was_fixed and regions[-1].is_fixed):
                if name in _BLOCKS:
                    role = "block"
                elif token.kind in _PAIR and not is_void:
                    role = token.kind
        yield token, role


def _is_fixed(name: str, attributes: str) -> bool | None:
    """Returns whether translation is off in an element. None: as in the element around it."""
    if attributes.endswith("/") and name in _FOREIGN:
        return None
    values = dict(reversed([*read_attributes(attributes.lower())]))  # the first one counts
    asked = values.get("translate")
    if asked == "no" or "notranslate" in values.get("class", "").split():
        return True
    if asked in ("yes", ""):
        return False
    return True if name in _FIXED else None
