"""Where the lines come from: arguments, files, or standard input."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from vanilla_transformer.commands.options import CommandParser
from vanilla_transformer.data.text_files import decode_lines, read_line_pairs, read_lines

PAIRS_PER_CHUNK = 2048


def add_lines_argument(parser: CommandParser) -> None:
    """Adds the lines that are given as arguments.

    Args:
        parser: Parser of the subcommand.
    """
    parser.add_argument(
        "lines",
        metavar="LINE",
        nargs="*",
        default=[],
        help="source texts; without them, lines come from --input or from standard input",
    )


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


def read_pair_chunks(
    source: str, target: str, skip: int = 0
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Reads two files with as many lines as a stream.

    Args:
        source: Path of one file.
        target: Path of the other file.
        skip: Number of pairs to pass over.

    Yields:
        The number of the first line, and up to `PAIRS_PER_CHUNK` lines of each file.

    Raises:
        ValueError: As `read_line_pairs`.
    """
    pairs = islice(read_line_pairs(source, target), skip, None)
    first = skip + 1
    while chunk := list(islice(pairs, PAIRS_PER_CHUNK)):
        yield first, [one for one, _ in chunk], [other for _, other in chunk]
        first += len(chunk)


@contextmanager
def named_lines(file: str, first: int) -> Iterator[None]:
    """Names the lines of a file that an error inside of the `with` block is about.

    Args:
        file: Path of the file of the sources.
        first: Number of the first line that is computed.

    Raises:
        ValueError: The same problem, with the line.
    """
    from vanilla_transformer.inference.translator import LongSourceError

    try:
        yield
    except LongSourceError as error:
        raise ValueError(f"{file}, line {first + error.number}: it {error.problem}") from error
    except ValueError as error:
        raise ValueError(f"{file}, from line {first}: {error}") from error
