"""A file with numbered places for its texts: what is around them stays as it is."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from vanilla_transformer.documents.kept import Span
from vanilla_transformer.documents.markup import MarkedText, Tag

Kind = Literal["begin", "end", "empty"]

_PLACE = re.compile("\0([0-9]+)\0")
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z0-9]+)\b[^<>]*>|\{\\[^{}]*\}")
_CHOICE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_EDGES = re.compile(r"(\A\s+|\s+\Z)")


@dataclass(frozen=True)
class Code:
    """What is no text within a text, such as a tag.

    Attributes:
        text: It, as the file has it.
        kind: That of its tag.
        name: What an opening code and the one that closes it have in common.
    """

    text: str
    kind: Kind = "empty"
    name: str = ""

    def __str__(self) -> str:
        return self.text


Item = str | Code


@dataclass(frozen=True)
class Place:
    """Where a text stands in a file.

    Attributes:
        begin: Where the part of the file begins that an output replaces.
        end: Where it ends.
        text: The text to translate.
        written: Returns an output as the file has it.
        stays: What the file has where the output equals the text. None: what `written` returns.
    """

    begin: int
    end: int
    text: MarkedText
    written: Callable[[MarkedText], str]
    stays: str | None = None


class Document:
    """A file whose texts can be replaced.

    Args:
        source: The content of the file.
        places: Where its texts stand, in the order of their ends. The number of a place within
            another one stands in what the other one writes, as `without` puts it there.
        encoding: How characters are written; those that it lacks become references of XML.
    """

    def __init__(self, source: str, places: Sequence[Place], encoding: str = "utf-8") -> None:
        self.texts = [place.text for place in places]
        self._places, self._encoding = places, encoding
        self._template = without(source, places, 0, len(source))

    def write(self, outputs: Sequence[MarkedText]) -> bytes:
        """Returns the file with an output in the place of each of `texts`."""
        return self.join(outputs).encode(self._encoding, "xmlcharrefreplace")

    def join(self, outputs: Sequence[MarkedText]) -> str:
        """Returns the same as a text."""

        def fill(template: str) -> str:
            return _PLACE.sub(lambda match: written(int(match[1])), template)

        def written(number: int) -> str:
            place, output = self._places[number], outputs[number]
            is_same = place.stays is not None and output == place.text
            return fill(place.stays if is_same else place.written(output))  # type: ignore[arg-type]

        return fill(self._template)


def without(source: str, places: Sequence[Place], begin: int, end: int) -> str:
    """Returns a part of a file with the number of each place in the place of what is there."""
    numbers = range(len(places) - 1, -1, -1)
    behind = takewhile(lambda number: places[number].begin >= begin, numbers)  # those are the last
    inner = [
        (places[number].begin, -places[number].end, number)
        for number in behind
        if places[number].end <= end
    ]
    parts, position = [], begin
    for first, last, number in sorted(inner):
        if first >= position:  # else it is within another one
            parts += [source[position:first], f"\0{number}\0"]
            position = -last
    return "".join([*parts, source[position:end]])


def with_tags(text: str) -> list[Item]:
    r"""Returns a text and the tags in it, such as `<i>` or `{\an8}`, in order."""
    items: list[Item] = []
    position = 0
    for match in _TAG.finditer(text):
        kind: Kind = "end" if match["end"] else "begin"
        items += [
            text[position : match.start()],
            Code(match[0], kind, match["name"] or ""),
        ]
        position = match.end()
    return [*items, text[position:]]


def is_translated(text: str) -> bool:
    """Returns whether a text has letters, and is no message of ICU that chooses among several."""
    return any(map(str.isalpha, text)) and not _CHOICE.search(text)


def split_edges(items: Sequence[Item]) -> tuple[list[Item], MarkedText, list[Item]]:
    """Makes a text of its parts, without white space and codes around all of it.

    Returns:
        What is before the text, the text, and what is behind it.
    """
    split: list[Item] = []
    for item in items:
        former = split[-1] if split else ""
        if isinstance(item, str):
            split += [part for part in _EDGES.split(item) if part]
        elif item.kind == "empty" and isinstance(former, Code) and former.kind == "begin":
            split[-1] = replace(former, text=former.text + item.text)  # they stay together
        else:
            split.append(item)
    partners = partners_of(split)
    begin, end = 0, len(split)

    def is_edge(index: int) -> bool:
        item = split[index]
        return index not in partners if isinstance(item, Code) else item.isspace()

    while begin < end:
        if is_edge(begin):
            begin += 1
        elif is_edge(end - 1):
            end -= 1
        elif partners.get(begin) == end - 1:
            begin, end = begin + 1, end - 1
        else:
            break
    text, tags = "", []
    for index in range(begin, end):
        item = split[index]
        if isinstance(item, str):
            text += item
        else:
            is_paired = begin <= partners.get(index, -1) < end
            tags.append(Tag(len(text), item.text, item.kind if is_paired else "empty"))
    return split[:begin], MarkedText(text, tuple(tags)), split[end:]


def place_of(
    source: str,
    span: Span,
    items: Sequence[Item],
    write: Callable[[MarkedText], str] = MarkedText.write,
    quote: Callable[[str], str] = str,
) -> Iterator[Place]:
    """Yields the place of a text, if there is something to translate in it.

    Args:
        write: Returns an output with its tags.
        quote: Returns that and what is around it as the file has it.
    """
    before, text, after = split_edges(items)

    def written(output: MarkedText) -> str:
        edges = ("".join(map(str, part)) for part in (before, after))
        return quote(write(output).join(edges))

    if is_translated(text.text):
        yield Place(*span, text, written, source[slice(*span)])


def partners_of(items: Sequence[Item]) -> dict[int, int]:
    """Pairs the codes that open and close; what would cross another pair has no partner."""
    partners: dict[int, int] = {}
    waiting: list[tuple[str, int]] = []
    counts = Counter[str]()
    for index, item in enumerate(items):
        if isinstance(item, str) or item.kind == "empty":
            continue
        if item.kind == "begin":
            waiting.append((item.name, index))
            counts[item.name] += 1
        while item.kind == "end" and counts[item.name] and index not in partners:
            name, first = waiting.pop()
            counts[name] -= 1
            if name == item.name:
                partners |= {first: index, index: first}
    return partners
