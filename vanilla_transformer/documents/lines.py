r"""Splits texts into the segments that a model gets one by one; joins what it returns.

A line is a segment. A line that is too long for the model is split between its sentences, or, where
a sentence is too long itself, between its words. Line breaks, blank lines and the white space
between sentences stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

_AFTER_SENTENCE = re.compile(
    r"""(?<=[.!?\u2026])["'\u00bb\u201d\u2019)\]]*(\s+)|(?<=[\u3002\uff01\uff1f])()"""
)
_AFTER_WORD = re.compile(r"(\s+)")


@dataclass(frozen=True)
class Document:
    """A text whose segments are numbers into a list of segments, and whose rest stays as it is."""

    parts: tuple[str | int, ...]

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments, in order."""
        return [part for part in self.parts if isinstance(part, int)]

    def join(self, outputs: Callable[[int], str]) -> str:
        """Puts an output in the place of each segment."""
        return "".join(part if isinstance(part, str) else outputs(part) for part in self.parts)


@dataclass(frozen=True)
class Segment:
    """What the model gets at once: a line, or a part of one, and its ids, the end included."""

    text: str
    ids: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SplitTexts:
    """Texts that are split into segments.

    Attributes:
        documents: Each text, with numbers into `segments` in the place of its segments.
        cut_words: Number of segments that lost their end: a single word was too long.
    """

    documents: list[Document]
    segments: list[Segment]
    cut_words: int = 0


def split_texts(
    texts: Sequence[str], encode: Callable[[list[str]], list[Sequence[int]]], limit: int
) -> SplitTexts:
    """Splits texts into lines, and long lines into sentences or words; encodes all of them.

    Args:
        encode: Returns the ids of each text.
        limit: Largest number of ids of a segment. Of a longer word, the rest is left out.
    """
    documents, lines = split_lines(texts)
    encoded = encode(lines)
    if max(map(len, encoded), default=0) <= limit:  # the usual case
        return SplitTexts(documents, list(map(Segment, lines, encoded)))
    pieces: list[str] = []
    parts_of_line: list[list[str | int]] = []  # numbers of pieces, and the white space between them
    for line, ids in zip(lines, encoded, strict=True):
        split = [line]
        if len(ids) > limit:
            split = split_long_line(line, lambda text: len(encode([text])[0]), limit)
        parts_of_line.append([])
        for number, part in enumerate(split):
            if number % 2 or not part.strip():
                parts_of_line[-1].append(part)
            else:
                parts_of_line[-1].append(len(pieces))
                pieces.append(part)
    documents = [
        Document(
            tuple(
                chain.from_iterable(
                    [part] if isinstance(part, str) else parts_of_line[part]
                    for part in document.parts
                )
            )
        )
        for document in documents
    ]
    encoded = encode(pieces)
    kept = [ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for ids in encoded]
    cut_words = sum(len(ids) > limit for ids in encoded)  # what no white space divides
    return SplitTexts(documents, list(map(Segment, pieces, kept)), cut_words)


def split_lines(texts: Sequence[str]) -> tuple[list[Document], list[str]]:
    r"""Splits texts into documents, and the lines that are not blank, to which these refer.

    Args:
        texts: Texts of any number of lines, which end in "\n" or "\r\n".
    """
    documents: list[Document] = []
    lines: list[str] = []
    for text in texts:
        if "\n" not in text and text.strip() and not text.endswith("\r"):  # the usual case
            documents.append(Document((len(lines),)))
            lines.append(text)
            continue
        parts: list[str | int] = []
        for number, line in enumerate(text.split("\n")):
            content = line.removesuffix("\r")
            parts += ["\n"] * (number > 0)
            if content.strip():
                parts.append(len(lines))
                lines.append(content)
            parts += ["\r"] * (content != line)
        documents.append(Document(tuple(parts)))
    return documents, lines


def split_long_line(line: str, count_tokens: Callable[[str], int], limit: int) -> list[str]:
    """Splits a line into pieces that are short enough, and the white space between them.

    Args:
        limit: Largest number of tokens of a piece. Only a single word may be longer.

    Returns:
        Pieces and separators by turns: piece, separator, piece, ... Together they are the line.
    """
    pieces: list[str] = []
    for sentence in _group_units(_AFTER_SENTENCE, line, count_tokens, limit):
        if pieces and len(pieces) % 2 == 0 and not sentence.strip():
            pieces[-1] += sentence
        elif len(pieces) % 2 == 1 or count_tokens(sentence) <= limit:
            pieces.append(sentence)
        else:
            pieces += _group_units(_AFTER_WORD, sentence, count_tokens, limit)
    return pieces


def _group_units(
    boundary: re.Pattern[str], text: str, count_tokens: Callable[[str], int], limit: int
) -> list[str]:
    """Splits at as few boundaries as possible: piece, separator, piece, ..."""
    units: list[tuple[int, int]] = []  # where each begins and ends
    start = 0
    for match in boundary.finditer(text):
        end = match.end() - len(match.group(1) or "")
        if end > start:
            units.append((start, end))
            start = match.end()
    if start < len(text) or not units:
        units.append((start, len(text)))
    grouped: list[str] = []
    first = 0
    while first < len(units):
        begin = units[first][0]

        def fits(end: int, begin: int = begin) -> bool:
            return count_tokens(text[begin:end]) <= limit

        last = _last_that_fits(units, first, fits)
        end = units[last][1] if last + 1 < len(units) else len(text)
        grouped.append(text[begin:end])
        first = last + 1
        if first < len(units):
            grouped.append(text[end : units[first][0]])
    return grouped


def _last_that_fits(
    units: Sequence[tuple[int, int]], first: int, fits: Callable[[int], bool]
) -> int:
    """Finds the last unit up to whose end a piece fits, in few steps; `first` always does."""
    last, step = first, 1
    while last + step < len(units) and fits(units[last + step][1]):
        last += step
        step *= 2
    while step > 1:
        step //= 2
        if last + step < len(units) and fits(units[last + step][1]):
            last += step
    return last
