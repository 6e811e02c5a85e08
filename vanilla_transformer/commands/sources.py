"""Where the lines come from: arguments, a file, or standard input."""

import sys
from collections.abc import Iterable, Sequence

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
