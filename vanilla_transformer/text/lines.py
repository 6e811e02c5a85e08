"""The lines of texts; the white space and line breaks around them stay as they are."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.sentences import Cut

_NUMBERS = r"(?:\{\d+\}|\[\d+,(?:\d+|\*)\])\s*"  # before a branch of Laravel
_GROUPS = r"(?:[^\[\](){}<>]|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>)*"
_PIPE = rf"""(?<![\\"'`\u2018\u201c])\|+(?!["'`\u2019\u201d]|{_GROUPS}[\])}}>])"""
LINE_BREAKS = re.compile(  # a pipe within brackets or quotation marks parts nothing
    rf"([\t\n\r\v\f\x85\u2028\u2029]+|(?<=\));;|<[bB][rR]\s*/?>"
    rf"|^{_NUMBERS}(?=[^|]*\|{_NUMBERS})|{_PIPE}(?:{_NUMBERS})?)"
)
"""What parts a text: white space, tags `<br>`, and signs between branches or kinds of files."""


@dataclass(frozen=True)
class TextLayout:
    """A text as a row of parts.

    Attributes:
        parts: Indices of segments in a list, cuts, and text that stays as it is.
    """

    parts: tuple[str | int | Cut, ...]

    @property
    def segments(self) -> list[int]:
        """The indices of the segments, in order."""
        return [part for part in self.parts if isinstance(part, int)]

    def lines(self, lines: Sequence[str]) -> Iterator[tuple[Span, str]]:
        """Yields the lines of the text, out of those of all texts, with their places in it."""
        end = 0
        for part in self.parts:
            text = lines[part] if isinstance(part, int) else str(part)
            begin, end = end, end + len(text)
            if isinstance(part, int):
                yield (begin, end), text

    def with_parts(
        self, parts: Sequence[Sequence[str | int | Cut]] | Mapping[int, Sequence[str | int | Cut]]
    ) -> "TextLayout":
        """Returns the text with several parts in the place of each segment."""
        changed: list[str | int | Cut] = []
        for part in self.parts:
            changed += parts[part] if isinstance(part, int) else [part]
        return TextLayout(tuple(changed))

    def in_language(self, tag: Callable[[], str | None]) -> list[str | int]:
        """Returns the parts, with the text that a language has at each cut; `tag` tells it."""
        return [part.in_language(tag()) if isinstance(part, Cut) else part for part in self.parts]


def split_lines(texts: Sequence[str]) -> tuple[list[TextLayout], list[str]]:
    """Splits texts into layouts, and the lines that are not blank, to which these refer.

    White space around a line is no part of it. The layout keeps it, as it keeps line breaks.
    """
    layouts: list[TextLayout] = []
    lines: list[str] = []
    for text in texts:
        parts: list[str | int | Cut] = []
        for index, line in enumerate(LINE_BREAKS.split(text)):  # lines and breaks alternately
            content = "" if index % 2 else line.strip(WHITE_SPACE)
            begin = line.index(content) if content else len(line)
            parts.append(line[:begin])
            if content:
                parts += [len(lines), line[begin + len(content) :]]
                lines.append(content)
        layouts.append(TextLayout(tuple(part for part in parts if part != "")))
    return layouts, lines


def count_characters(text: str) -> int:
    """Counts the characters of a text that are no white space."""
    return sum(map(len, text.split()))
