"""A file with places for its texts: everything around these stays as it is."""

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from vanilla_transformer.documents.markup import MarkedText, Tag
from vanilla_transformer.documents.tags import TEXT, split_tags
from vanilla_transformer.text.edits import Edit, Span, apply_edits
from vanilla_transformer.text.memory import Pair

_LINE_BREAK = re.compile(r"\r\n?|\n")
_DECLARED = re.compile(
    rb"""<(?:\?xml[^>]*?\sencoding|meta[^>]+charset)\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE
)
_BETWEEN = re.compile(r"[\s,;/|+]*[,;/|+][\s,;/|+]*")
_EDGES = re.compile(r"(\A\s+|\s+\Z)")

Item = str | Tag


@dataclass(frozen=True)
class Place:
    """A text in a file, and the part of the file that its output replaces.

    Attributes:
        begin, end: The span of this part in the file.
        text: The text to translate.
        before: White space and tags before the text.
        after: White space and tags behind it.
        stays: Whether nothing changes where the output equals the text.
        escape: Writes text so that it is no markup.
        encode: Writes text and tags as strings of the format are written.
        key: The name of the text, if its format names texts.
    """

    begin: int
    end: int
    text: MarkedText
    before: tuple[Item, ...] = ()
    after: tuple[Item, ...] = ()
    stays: bool = True
    escape: Callable[[str], str] = str
    encode: Callable[[str], str] = str
    key: object = None

    def write(self, output: MarkedText) -> str:
        """Returns the part of the file with an output; each format has its own way."""
        return self.encode(self.with_edges(output).write(self.escape))

    def with_edges(self, output: MarkedText) -> MarkedText:
        """Returns an output between the items before and behind the text.

        A stored translation has the spaces that a person gave it.
        """
        text = marked_text([*self.before, *output.parts(), *self.after])
        return text if output.is_known else text.with_spaces()


class Row(NamedTuple):
    """A text of a document.

    Attributes:
        location: Its location for a person, such as "line 3".
        part: Its part of the file. None: it cannot stand in another file.
        key: Its name, if it has one.
        number: Its number among the texts of one message.
    """

    text: MarkedText
    location: str
    part: str | None
    key: object = None
    number: int = 0


class Document(ABC):
    """A file with texts.

    Attributes:
        rows: The texts to translate.
        language: The language of the translations, as the file names it. "": it does not.
        pairs: The texts that are translated already, as a memory has them.
        marks_doubt: Whether the file can say that a translation is to be checked.
        kept: The texts that stay, since the file compares with them, each with its place.
        words: The file in small letters, if texts of it may have a sign before the letter of a key.
    """

    rows: Sequence[Row]
    language = ""
    pairs: Sequence[Pair] = ()
    marks_doubt = False
    kept: Sequence[str] = ()
    words: str | None = None

    @property
    def texts(self) -> list[MarkedText]:
        """The texts to translate."""
        return [row.text for row in self.rows]

    @abstractmethod
    def write(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> bytes:
        """Returns the file with an output for each of its texts; None: the text stays.

        The file names the language of the outputs if its format can.
        """


class FileTemplate(Document):
    """A file whose texts can be replaced.

    Args:
        source: The content of the file.
        places: The places of its texts, in the order of their ends. A place may be within a tag of
            another one.
        encoding: Characters that it lacks become references of XML.
    """

    def __init__(self, source: str, places: Sequence[Place], encoding: str = "utf-8") -> None:
        self._source, self._places, self._encoding = source, places, encoding
        breaks = [match.end() for match in _LINE_BREAK.finditer(source)]
        self.rows = [
            Row(
                place.text,
                f"line {bisect_right(breaks, place.begin) + 1}",
                source[place.begin : place.end],
                place.key,
            )
            for place in places
        ]

    def write(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> bytes:
        """As for `Document`."""
        return self.join(outputs, language).encode(self._encoding, "xmlcharrefreplace")

    def join(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> str:
        """Returns the file as a text; see `write`."""
        edits: list[Edit] = []
        for place, output in zip(self._places, outputs, strict=True):
            first = len(edits)
            while first and edits[first - 1].begin >= place.begin:
                first -= 1  # it lies within a tag of this place
            inner = edits[first:]
            if output is None or (place.stays and output == place.text):
                written = self._part((place.begin, place.end), inner)
            elif output.part is not None:
                written = output.part
            else:
                before, tags, after = (
                    tuple(self._filled(item, inner) for item in items)
                    for items in (place.before, output.tags, place.after)
                )
                place = replace(place, before=before, after=after)
                written = place.write(replace(output, tags=tags))  # type: ignore[arg-type]
            edits[first:] = [Edit(place.begin, place.end, written)]
        return apply_edits(self._source, edits)

    def _filled(self, item: Item, edits: Sequence[Edit]) -> Item:
        """Returns an item in or around a text, with the outputs of places within a tag."""
        if isinstance(item, str) or not item.span:
            return item
        return replace(item, text=self._part(item.span, edits))

    def _part(self, span: Span, edits: Sequence[Edit]) -> str:
        """Returns a part of the file with the edits within it."""
        begin, end = span
        inner = [edit for edit in edits if begin <= edit.begin and edit.end <= end]
        return apply_edits(self._source, inner, begin, end)


def decode_text(content: bytes, encoding: str = "utf-8") -> str:
    """Decodes a file as it says that it is encoded."""
    try:
        source = content.decode(encoding)
    except LookupError:
        line = content.count(b"\n", 0, content.find(encoding.encode())) + 1
        raise ValueError(f"line {line}: unknown encoding {encoding}.") from None
    if "\0" in source:
        raise ValueError("no file of text: it has zeros.")
    return source


def decode_markup(content: bytes) -> tuple[str, str]:
    """Decodes a file of XML or HTML; returns it with the encoding in which it is written."""
    declared = _DECLARED.search(content, 0, 2048)
    encoding = declared[1].decode() if declared else "utf-8"
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(content[:2], encoding)
    source = decode_text(content, encoding)
    # A file of ASCII alone may name any encoding by mistake: other characters become references.
    is_utf_8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    return source, "ascii" if content.isascii() and not is_utf_8 else encoding


def replaced_signs(text: str, signs: Mapping[str, str]) -> str:
    """Returns a text with signs as a file writes them."""
    return "".join(signs.get(sign, sign) for sign in text)


def split_text(text: str) -> list[Item]:
    """Returns a text and the tags in it, in order; an opening tag needs no partner."""
    return [
        token.text
        if token.kind == "text"
        else Tag(0, token.text, "end" if token.kind == "end" else "begin", token.name)
        for token in split_tags(text, TEXT)
    ]


def is_translated(text: str) -> bool:
    """Returns whether a text has letters."""
    return any(map(str.isalpha, text))


def split_edges(items: Sequence[Item]) -> tuple[tuple[Item, ...], MarkedText, tuple[Item, ...]]:
    """Returns the white space and tags before a text, the text, and the ones behind it."""
    split: list[Item] = []
    for item in items:
        split += filter(None, _EDGES.split(item)) if isinstance(item, str) else [item]
    partners = partners_of(split)
    begin, end = 0, len(split)

    def is_edge(index: int) -> bool:
        item = split[index]
        return index not in partners if isinstance(item, Tag) else item.isspace()

    while begin < end:
        if is_edge(begin):
            begin += 1
        elif is_edge(end - 1):
            end -= 1
        elif partners.get(begin) == end - 1:
            begin, end = begin + 1, end - 1
        else:
            break
    inner = [
        replace(item, kind=item.kind if begin <= partners.get(index, -1) < end else "empty")
        if isinstance(item, Tag)
        else item
        for index, item in enumerate(split[:end])
    ]
    return tuple(split[:begin]), marked_text(inner[begin:]), tuple(split[end:])


def edge_tags(before: Iterable[Item], after: Iterable[Item]) -> list[list[str]]:
    """Returns the tags before and behind a text."""
    return [[item.text for item in edge if isinstance(item, Tag)] for edge in (before, after)]


def marked_text(items: Iterable[Item]) -> MarkedText:
    """Makes a text of its parts."""
    text, tags = "", list[Tag]()
    for item in items:
        if isinstance(item, str):
            text += item
        else:
            tags.append(replace(item, position=len(text)))
    return MarkedText(text, tuple(tags))


def join_codes(items: Sequence[Item]) -> list[Item]:
    """Joins tags that enclose no text to one tag, and tags with only signs between them."""
    joined: list[Item] = []
    for item in items:
        if isinstance(item, Tag) and item.kind == "end":
            row = [item]
            for before in reversed(joined):
                if not isinstance(before, Tag) or before.kind == "end":
                    break
                row.insert(0, before)
                if before.kind == "begin":
                    break
            if (row[0].kind, row[0].name) == ("begin", item.name):
                del joined[1 - len(row) :]
                item = Tag(0, "".join(tag.text for tag in row))
        if len(joined) > 1 and isinstance(item, Tag) and item.kind == "empty":
            code, between = joined[-2:]
            is_code = isinstance(code, Tag) and code.kind == "empty"
            if is_code and isinstance(between, str) and _BETWEEN.fullmatch(between):
                del joined[-2:]
                item = Tag(0, f"{code.text}{between}{item.text}")  # type: ignore[union-attr]
        joined.append(item)
    texts = ["", *(item if isinstance(item, str) else "" for item in joined), ""]
    return [
        item
        if isinstance(item, str) or item.kind != "empty"
        else replace(item, is_spaced=(before[-1:].isspace(), behind[:1].isspace()))
        for before, item, behind in zip(texts, joined, texts[2:], strict=False)
    ]


def free_names(text: str) -> Iterator[str]:
    """Yields placeholders that a text does not have."""
    return (name for number in count() if (name := f"{{{number}}}") not in text)


def find_place(
    span: Span, items: Sequence[Item], make: Callable[..., Place] = Place
) -> Iterator[Place]:
    """Yields the place of a text, made by `make`, if the text has letters."""
    before, text, after = split_edges(items)
    if is_translated(text.text):
        yield make(*span, text, before, after)


def partners_of(items: Sequence[Item]) -> dict[int, int]:
    """Returns the index of the partner of each tag of a pair; pairs that cross others are none."""
    partners: dict[int, int] = {}
    waiting: list[tuple[str, int]] = []
    counts = Counter[str]()
    for index, item in enumerate(items):
        if isinstance(item, str) or item.kind == "empty":
            continue
        if item.kind == "begin":
            waiting.append((item.name, index))
            counts[item.name] += 1  # so that an end without a begin closes nothing
        while item.kind == "end" and counts[item.name] and index not in partners:
            name, first = waiting.pop()
            counts[name] -= 1
            if name == item.name:
                partners |= {first: index, index: first}
    return partners
