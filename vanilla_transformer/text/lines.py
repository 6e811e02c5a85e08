"""The lines of texts; the white space and line breaks around them stay as they are."""

from itertools import chain
from typing import NamedTuple

import regex

from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.text.edits import Span

_NUMBERS = r"(?:\{\d+\}|\[\d+,(?:\d+|\*)\])\s*"  # before a branch of Laravel: {0}, [2,*]
# Text in which brackets are closed, and text after an opening quotation mark.
_GROUPS = r"(?:[^\[\](){}<>]|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>){0,200}"
_QUOTES = ('""', "''", "``", "\u201e\u201c", "\u201c\u201d", "\u00ab\u00bb", "\u300c\u300d")
_QUOTED = "|".join(rf"(?<!\w){mark[0]}(?!\s|s\b|\d)[^{mark[1]}]{{0,200}}" for mark in _QUOTES)
LINE_BREAKS = regex.compile(r"([\t\n\r\v\f\x85\u2028\u2029]+|(?<=\));;|<[bB][rR]\s*/?>)")
"""The breaks between lines: white space, tags `<br>`, and signs between kinds of files."""
BRANCHED = regex.compile(
    r"\|\s*\*"  # kinds of files: Text files (*.txt)|*.txt
    rf"|\{{\w*\}}|(?<![^\s|]):[a-z]\w|\|\s*{_NUMBERS}"  # a plural: one file|{n} files
    r"|\s\|\|\s|^\|"  # usages of a command: list || add NAME; a choice: |yes|yY
    r"|^\s*[^\s|]+(?:\s*\|\s*[^\s|]+)+\s*$"  # words, and no sentence: one|many
)
"""A mark of a line that its pipes part. In prose they do not: "Press Ctrl|Alt to open it"."""
PIPES = regex.compile(  # but for those within brackets or quotation marks
    rf"(^{_NUMBERS}(?=[^|]*\|{_NUMBERS})"
    rf"|(?<!\\|{_QUOTED})\|+(?!{_GROUPS}[\])}}>])(?:{_NUMBERS})?)"
)


class Line(NamedTuple):
    """A line of a text, without the white space around it."""

    text: str
    span: Span


def split_lines(text: str) -> list[str | Line]:
    """Splits a text into lines that are not blank, and the white space and breaks between these."""
    parts = (
        PIPES.split(line) if BRANCHED.search(line) else [line] for line in LINE_BREAKS.split(text)
    )
    pieces, position = list[str | Line](), 0
    for index, piece in enumerate(chain.from_iterable(parts)):  # lines and breaks alternately
        line = "" if index % 2 else piece.strip(WHITE_SPACE)
        if line:
            before, _, after = piece.partition(line)
            begin = position + len(before)
            pieces += [before, Line(line, (begin, begin + len(line))), after]
        else:
            pieces.append(piece)
        position += len(piece)
    return [piece for piece in pieces if piece]


def count_characters(text: str) -> int:
    """Counts the characters of a text that are no white space."""
    return sum(map(len, text.split()))
