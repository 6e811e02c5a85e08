r"""Splits texts into the segments that a model gets one by one; joins what it returns.

A line is a segment. A line that is too long for the model is cut into several; nothing of it is
left out. Line breaks and blank lines stay as they are.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from vanilla_transformer.documents.kept import Edit, Span, apply_edits
from vanilla_transformer.documents.readings import Reading
from vanilla_transformer.documents.sentences import Cut, cut_line
from vanilla_transformer.documents.terms import Match
from vanilla_transformer.languages import known_tag
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE

_LINE_BREAKS = re.compile(r"([\n\r\v\f\x85\u2028\u2029]+)")


@dataclass(frozen=True)
class Document:
    """A text whose segments are numbers into a list of segments.

    Between these stand cuts, and the rest of the text, which stays as it is.
    """

    parts: tuple[str | int | Cut, ...]

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments, in order."""
        return [part for part in self.parts if isinstance(part, int)]

    def in_language(self, tag: Callable[[], str | None]) -> list[str | int]:
        """Returns the parts, with cuts as a language joins the parts of a text.

        Args:
            tag: Returns the tag of the language; it is called if there are cuts.
        """
        if all(not isinstance(part, Cut) for part in self.parts):  # the usual case
            return list(self.parts)  # type: ignore[arg-type]  # mypy does not see it
        language = tag()
        return [
            part.in_language(language) if isinstance(part, Cut) else part for part in self.parts
        ]


@dataclass(frozen=True)
class Segment:
    """What the model gets at once: a line, or a part of one.

    Attributes:
        ids: Those of its reading, the end included.
        direction: Its languages, and the tag that the model reads before its text.
        unknown: Number of its characters that the model reads as unknown.
        kept: Spans that its output has too, unchanged.
        edits: What the model reads in the place of parts of it.
        matches: The terms of a glossary in it.
    """

    text: str
    ids: Sequence[int]
    direction: Direction
    unknown: int = 0
    kept: tuple[Span, ...] = ()
    edits: Sequence[Edit] = ()
    matches: tuple[Match, ...] = ()

    @property
    def reading(self) -> Reading:
        """What the model reads."""
        return Reading(self.text, self.edits)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SplitTexts:
    """Texts that are split into segments.

    Attributes:
        documents: Each text, with numbers into `segments` in the place of its segments.
    """

    documents: list[Document]
    segments: list[Segment]


def split_texts(
    texts: Sequence[str],
    make: Callable[[list[str], list[Direction]], list[Segment]],
    limit: int,
    directions: Sequence[Direction],
    tags: Collection[str] = (),
    whole: Callable[[str], Sequence[Span]] = lambda _: (),
) -> SplitTexts:
    """Splits texts into lines, and cuts long lines.

    Args:
        make: Returns the segment of each text, which the model reads by its direction.
        limit: Largest number of ids of a segment. Only a single character may have more.
        directions: That of each text.
        tags: Words at the beginning of a line that each part of it gets.
        whole: Returns the parts of a line in which it is not cut.
    """
    documents, lines = split_lines(texts)
    of_lines = [
        direction.of_text(lines[number], tags)
        for document, direction in zip(documents, directions, strict=True)
        for number in document.segments
    ]
    read = [replace(direction, tag="") if tag else direction for tag, direction in of_lines]
    segments = make(lines, read)
    if max(map(len, segments), default=0) <= limit:  # the usual case
        return SplitTexts(documents, segments)
    pieces: list[str] = []
    of_pieces: list[Direction] = []
    parts_of_line: list[list[int | Cut]] = []
    for segment, (tag, direction) in zip(segments, of_lines, strict=True):
        line = segment.text
        parts: list[str | Cut] = [line]
        if len(segment) > limit:

            def count(text: str, direction: Direction = direction) -> int:
                return len(make([text], [direction])[0])

            line = line[len(tag) :]
            language = known_tag(direction.source)
            parts = cut_line(line, count, limit, language, whole(line))
            parts[0] = f"{tag}{parts[0]}"
        parts_of_line.append([])
        for number, part in enumerate(parts):
            if isinstance(part, str):
                parts_of_line[-1].append(len(pieces))
                pieces.append(part)
                of_pieces.append(direction if number else segment.direction)
            else:
                parts_of_line[-1].append(part)
    documents = [
        Document(
            tuple(
                chain.from_iterable(
                    parts_of_line[part] if isinstance(part, int) else [part]
                    for part in document.parts
                )
            )
        )
        for document in documents
    ]
    return SplitTexts(documents, make(pieces, of_pieces))


def split_lines(texts: Sequence[str]) -> tuple[list[Document], list[str]]:
    """Splits texts into documents, and the lines that are not blank, to which these refer.

    White space around a line is no part of it. The document keeps it, as it keeps line breaks.
    """
    documents: list[Document] = []
    lines: list[str] = []
    for text in texts:
        parts: list[str | int | Cut] = []
        for line in _LINE_BREAKS.split(text):  # lines and breaks by turns
            begin, content = len(line) - len(line.lstrip(WHITE_SPACE)), line.strip(WHITE_SPACE)
            parts.append(line[:begin])
            if content:
                parts += [len(lines), line[begin + len(content) :]]
                lines.append(content)
        documents.append(Document(tuple(part for part in parts if part != "")))
    return documents, lines


def without_unknown(split: SplitTexts) -> SplitTexts:
    """Leaves segments of kept and unknown parts alone, such as an emoji, as they are.

    A model that reads no token in their place would write words out of nothing.
    """
    segments: list[Segment] = []
    parts: list[int | str] = []
    for segment in split.segments:
        others = apply_edits(segment.text, [Edit(*span, "") for span in segment.kept])
        if segment.unknown and not segment.edits and not others.strip():
            parts.append(segment.text)
        else:
            parts.append(len(segments))
            segments.append(segment)
    documents = [
        Document(tuple(parts[part] if isinstance(part, int) else part for part in document.parts))
        for document in split.documents
    ]
    return SplitTexts(documents, segments)
