"""Texts with tags in them, and with the tags and white space at their edges."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import Literal, Self

import regex

from vanilla_transformer.documents.tags import TEXT, split_tags
from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.languages import IDEOGRAPHIC

_EDGES = re.compile(r"(\A\s+|\s+\Z)")
TagKind = Literal["begin", "end", "empty"]
TAG_SIGNS: Mapping[TagKind, str] = {"begin": "\ud800", "end": "\ud801", "empty": "\ud802"}
"""The character that stands for a tag while a text is edited: half of a UTF-16 pair, in no file."""
TAG_SIGN = "[\ud800-\ud802]"
_NO_SPACE = regex.compile(rf"(?<=\ud802) (?={IDEOGRAPHIC})|(?<={IDEOGRAPHIC}) (?=\ud802)")


@dataclass(frozen=True)
class Tag:
    """A piece of markup in a text.

    Attributes:
        position: Number of the text's characters before it; 0 in an `Item`, until `MarkedText.of`.
        text: The markup, as it is written.
        kind: "begin" and "end" make a pair; a tag without a partner is "empty".
        name: The name that both tags of a pair have.
        span: The span of the tag in the file, if there may be other texts in it.
        number: The number that tells the tag from equal ones in its text.
    """

    position: int
    text: str
    kind: TagKind = "empty"
    name: str = ""
    span: Span | None = None
    number: int = field(default=0, compare=False)


Item = str | Tag
"""A part of a text: a tag, or the text between two tags."""
Edges = tuple[tuple[Item, ...], tuple[Item, ...]]
"""White space and tags before a text, and after it."""


@dataclass(frozen=True)
class MarkedText:
    """A text (`plain`) with its tags in order, whose pairs are nested, and with its edges."""

    plain: str
    tags: tuple[Tag, ...] = ()
    edges: Edges = field(default=((), ()), compare=False)

    @classmethod
    def of(cls, items: Iterable[Item], edges: Edges = ((), ())) -> Self:
        """Makes a text of its parts."""
        text, tags = "", list[Tag]()
        for item in items:
            if isinstance(item, str):
                text += item
            else:
                tags.append(replace(item, position=len(text)))
        return cls(text, tuple(tags), edges)

    @property
    def whole(self) -> Self:
        """The text with its edges in it."""
        before, after = self.edges
        whole = MarkedText.of([*before, *self.items(), *after])
        return replace(self, plain=whole.plain, tags=whole.tags, edges=((), ()))

    def items(self) -> Iterator[Item]:
        """Yields the texts between the tags, and the tags, in order."""
        position = 0
        for tag in self.tags:
            yield self.plain[position : tag.position]
            yield tag
            position = tag.position
        yield self.plain[position:]

    @property
    def coded(self) -> str:
        """The text with a character for each tag."""
        return self.with_tag_texts(TAG_SIGNS[tag.kind] for tag in self.tags).write()

    def with_coded(self, coded: str) -> Self:
        """Returns another text with the same tags, each where its character is."""
        parts = re.split(TAG_SIGN, coded)
        positions = accumulate(map(len, parts))
        tags = [replace(tag, position=end) for tag, end in zip(self.tags, positions, strict=False)]
        return replace(self, plain="".join(parts), tags=tuple(tags))

    def with_tag_texts(self, texts: Iterable[str]) -> Self:
        """Returns the text with other texts of its tags."""
        tags = (replace(tag, text=text) for tag, text in zip(self.tags, texts, strict=True))
        return replace(self, tags=tuple(tags))

    def without_spaces(self) -> Self:
        """Returns a text without spaces between tags and Chinese or Japanese characters."""
        return self.with_coded(_NO_SPACE.sub("", self.coded))

    def write(self, escape: Callable[[str], str] = str) -> str:
        """Returns the text with its tags; `escape` writes text so that it is no markup."""
        return "".join(
            escape(item) if isinstance(item, str) else item.text for item in self.items()
        )


@dataclass(frozen=True)
class TextTranslation(MarkedText):
    """A translation of a text, with its tags and edges.

    Attributes:
        is_doubtful: Whether a person should check it; PO, XLIFF and Qt can say so.
        is_known: Whether it is from a memory; XLIFF can say so.
        file_part: The part of the file that is written as it is. None: the translation is written.
    """

    is_doubtful: bool = False
    is_known: bool = False
    file_part: str | None = None

    def repeats(self, source: MarkedText) -> bool:
        """Returns whether it equals its source, with the same tags in it and around it."""
        fields = (source.plain, source.tags, source.edges)
        return (self.plain, self.tags, self.edges) == fields


Translations = Sequence[TextTranslation | None]
"""The translation of each text of a document. None: the text stays."""


def split_text(text: str) -> list[Item]:
    """Returns a text and the tags in it, in order; a tag may lack its partner.

    `<br>` stays in the text, as the line break that it is.
    """
    return [
        token.text
        if token.kind == "text" or token.name.lower() == "br"
        else Tag(0, token.text, "end" if token.kind == "end" else "begin", token.name)
        for token in split_tags(text, TEXT)
    ]


def has_letters(text: str) -> bool:
    """Returns whether a text has letters."""
    return any(map(str.isalpha, text))


def split_edges(items: Sequence[Item]) -> MarkedText:
    """Makes a text of its parts; the white space and tags around it become its edges."""
    split: list[Item] = []
    for item in items:
        split += filter(None, _EDGES.split(item)) if isinstance(item, str) else [item]
    partners = partners_of(split)

    def is_edge(index: int) -> bool:
        item = split[index]
        return index not in partners if isinstance(item, Tag) else item.isspace()

    begin, end = 0, len(split)
    while begin < end:
        if is_edge(begin):
            begin += 1
        elif is_edge(end - 1):
            end -= 1
        elif partners.get(begin) == end - 1:
            begin, end = begin + 1, end - 1
        else:
            break
    pairs = {index for index, partner in partners.items() if begin <= partner < end}
    inner = split[begin:end]
    for index, item in enumerate(inner, start=begin):
        if isinstance(item, Tag):
            kind = item.kind if index in pairs else "empty"
            inner[index - begin] = replace(item, number=index, kind=kind)
    return MarkedText.of(inner, (tuple(split[:begin]), tuple(split[end:])))


def without_equal_edges(source: MarkedText, target: MarkedText) -> tuple[str, str]:
    """Returns a text and its translation as a memory has them: without edges of the same tags."""
    source_tags, target_tags = (
        [[item.text for item in edge if isinstance(item, Tag)] for edge in side.edges]
        for side in (source, target)
    )
    if source_tags != target_tags:
        source, target = source.whole, target.whole
    return source.write(), target.write()


def join_codes(items: Sequence[Item]) -> list[Item]:
    """Joins each pair of tags that encloses no text to one tag."""
    joined: list[Item] = []
    for item in items:
        if isinstance(item, Tag) and item.kind == "end":
            tags = [item]  # back to the nearest tag that begins
            for before in reversed(joined):
                if not isinstance(before, Tag) or before.kind == "end":
                    break
                tags.insert(0, before)
                if before.kind == "begin":
                    break
            if (tags[0].kind, tags[0].name) == ("begin", item.name):
                del joined[1 - len(tags) :]
                item = Tag(0, "".join(tag.text for tag in tags))
        joined.append(item)
    return joined


def free_names(text: str) -> Iterator[str]:
    """Yields placeholders that a text does not have."""
    return (name for number in count() if (name := f"{{{number}}}") not in text)


def partners_of(items: Sequence[Item]) -> dict[int, int]:
    """Returns the index of the partner of each tag of a pair; tags that cross a pair have none."""
    partners = dict[int, int]()
    open_tags = list[tuple[str, int]]()  # the name and the index of each
    counts = Counter[str]()  # of open tags, by name
    for index, item in enumerate(items):
        if isinstance(item, str) or item.kind == "empty":
            continue
        if item.kind == "begin":
            open_tags.append((item.name, index))
            counts[item.name] += 1
        elif counts[item.name]:  # or else the end has no begin
            while open_tags[-1][0] != item.name:
                crossing, _ = open_tags.pop()
                counts[crossing] -= 1
            _, first = open_tags.pop()
            counts[item.name] -= 1
            partners |= {first: index, index: first}
    return partners
