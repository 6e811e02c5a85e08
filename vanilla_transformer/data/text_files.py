"""Reads UTF-8 text line by line, from files and binary streams, and shows such lines."""

import codecs
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO, cast

_LINE_BREAK = re.compile(r"\r\n|[\r\n]")


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, plain or `.gz`, without their line ends.

    Only "\n" and "\r\n" end a line. Other characters that Unicode counts as line ends, such as
    U+2028, are part of the text. A byte order mark at the start of the file is dropped.
    """
    with open_bytes(path) as stream:
        yield from decode_lines(stream, os.fspath(path))


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file, plain or `.gz`, as a stream of its unpacked bytes."""
    opened = gzip.open if Path(path).suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            yield cast(BinaryIO, stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is not an intact gzip file ({error}): compress the text again."
        ) from error


def read_line_pairs(
    source: str | os.PathLike[str], target: str | os.PathLike[str]
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of lines of two files."""
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (one, other) in enumerate(lines, start=1):
        if one is None or other is None:
            ended, longer = (source, target) if one is None else (target, source)
            raise ValueError(
                f"{os.fspath(ended)!r} ends before line {number} of {os.fspath(longer)!r}: give as "
                "many lines in both."
            )
        yield one, other


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yields the lines of a binary stream, by the same rules as `read_lines`."""
    first = stream.readline().removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(chain([first] if first else [], stream), start=1):
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1} is not UTF-8: convert the file (iconv -t UTF-8) or correct "
                "the line."
            ) from error
        yield text


def on_one_line(text: str) -> str:
    """Returns a text with spaces in the place of line breaks."""
    return _LINE_BREAK.sub(" ", text)


def short_line(text: str, longest: int) -> str:
    """Returns a text as one line to be shown, cut off after some characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
