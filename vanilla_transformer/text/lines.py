"""The lines of texts; the white space and line breaks around them stay as they are."""

import re
from typing import NamedTuple

from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.text.edits import Span

_NUMBERS = r"(?:\{\d+\}|\[\d+,(?:\d+|\*)\])\s*"  # before a branch of Laravel
_GROUPS = r"(?:[^\[\](){}<>]|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>)*"
_PIPE = rf"""(?<![\\"'`\u2018\u201c])\|+(?!["'`\u2019\u201d]|{_GROUPS}[\])}}>])"""
LINE_BREAKS = re.compile(  # a pipe within brackets or quotation marks parts nothing
    rf"([\t\n\r\v\f\x85\u2028\u2029]+|(?<=\));;|<[bB][rR]\s*/?>"
    rf"|^{_NUMBERS}(?=[^|]*\|{_NUMBERS})|{_PIPE}(?:{_NUMBERS})?)"
)
"""What parts a text: white space, tags `<br>`, and signs between branches or kinds of files."""


class Line(NamedTuple):
    """A line of a text, without the white space around it."""

    text: str
    span: Span


def split_lines(text: str) -> list[str | Line]:
    """Splits a text into lines that are not blank, and the white space and breaks between these."""
    pieces, position = list[str | Line](), 0
    for index, piece in enumerate(LINE_BREAKS.split(text)):  # lines and breaks alternately
        line = "" if index % 2 else piece.strip(WHITE_SPACE)
        before = piece.index(line) if line else len(piece)
        begin, end = position + before, position + before + len(line)
        position += len(piece)
        pieces.append(text[begin - before : begin])
        if line:
            pieces += [Line(line, (begin, end)), text[end:position]]
    return [piece for piece in pieces if piece != ""]


def count_characters(text: str) -> int:
    """Counts the characters of a text that are no white space."""
    return sum(map(len, text.split()))
