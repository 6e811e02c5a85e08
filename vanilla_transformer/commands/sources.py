"""Where the lines come from: arguments, a file, or standard input."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from vanilla_transformer.data.text_files import decode_lines, read_lines


def source_lines(lines: Sequence[str], file: str | None) -> Iterable[str]:
    """Returns the lines to work on; a file and standard input are read as a stream.

    Args:
        lines: The lines that were given as arguments.
        file: Path of a file with one line each; None: standard input, unless there are lines.

    Raises:
        ValueError: If standard input is needed and closed.
    """
    if lines:
        return list(lines)
    if file:
        return read_lines(file)
    if sys.stdin is None:
        raise ValueError("Standard input is closed: give lines as arguments, or --input.")
    return decode_lines(sys.stdin.buffer, "standard input")


def line_pairs(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs of two files of equally many lines.

    Args:
        source: Path of the source texts, plain or `.gz`.
        target: Path of the target texts.

    Raises:
        ValueError: If a file ends before the other; the error names the file and the line.
    """
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (one, other) in enumerate(lines, start=1):
        if one is None or other is None:
            ended = source if one is None else target
            raise ValueError(f"{ended!r} ends before line {number}: give as many lines in both.")
        yield one, other
