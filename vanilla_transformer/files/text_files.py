"""Reads UTF-8 text line by line, from files and binary streams, and shows such lines.

Only `.zst` needs more than the standard library: pyarrow.
"""

import codecs
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EISDIR
from io import BufferedReader
from itertools import chain, zip_longest
from pathlib import Path
from stat import S_ISDIR
from typing import BinaryIO, cast

from vanilla_transformer.extras import optional_packages

_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_PACKED = {".gz": "gzip", ".zst": "zstd"}


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, plain, `.gz` or `.zst`, without their line ends.

    Only "\n" and "\r\n" end a line, or "\r" in a file that has no other line ends. Other characters
    that Unicode counts as line ends, such as U+2028, are part of the text. A byte order mark at the
    start of the file is dropped.
    """
    with open_bytes(path) as stream:
        yield from decode_lines(stream, os.fspath(path))


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file, plain, `.gz` or `.zst`, as a stream of its unpacked bytes."""
    file = Path(path)
    kind = _PACKED.get(file.suffix, "")
    try:
        with _open_packed(file, kind) as stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
        # An error of the system has a number, an error of a decompressor has none.
        if not kind or getattr(error, "errno", None):
            raise
        raise ValueError(
            f"{path} is not an intact {kind} file ({error}): compress the text again."
        ) from error


def _open_packed(file: Path, kind: str) -> BinaryIO:
    if kind == "zstd":
        with optional_packages():
            import pyarrow  # type: ignore[import-untyped]  # pyarrow ships no types

        return cast(BinaryIO, BufferedReader(pyarrow.input_stream(str(file), compression="zstd")))
    return cast(BinaryIO, gzip.open(file) if kind else file.open("rb"))


def check_files(*paths: str | None) -> None:
    """Raises the error of the system for a path that is no file; a pipe is not opened."""
    for path in filter(None, paths):
        if S_ISDIR(os.stat(path).st_mode):
            raise IsADirectoryError(EISDIR, "A directory, where a file is needed", path)


def suffix_of(path: str) -> str:
    """Returns the ending that names the format of a file, plain or packed."""
    for packed in _PACKED:
        path = path.removesuffix(packed)
    return Path(path).suffix


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
    lines: Iterable[bytes] = chain([first] if first else [], stream)
    if b"\r" in (content := first.removesuffix(b"\n").removesuffix(b"\r")):
        second = stream.readline()
        lines = chain([first, second], stream) if second else content.split(b"\r")
    for number, line in enumerate(lines, start=1):
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1} is not UTF-8: convert the file (iconv -f LATIN1 -t UTF-8) or "
                "correct the line."
            ) from error
        yield text


def on_one_line(text: str) -> str:
    """Returns a text with spaces for line breaks."""
    return _LINE_BREAK.sub(" ", text)


def as_cell(text: str) -> str:
    """Returns a text as a cell of a table: with spaces for line breaks and tabs."""
    return on_one_line(text).replace("\t", " ")


def short_line(text: str, longest: int) -> str:
    """Returns a text as one line to be shown, cut off after some characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
