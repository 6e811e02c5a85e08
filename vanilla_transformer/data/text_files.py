"""Lines of UTF-8 text, from files and streams."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 text file, plain or `.gz`, without their line ends.

    A line ends at "\n" or "\r\n" alone: other characters that Unicode counts as line ends, such as
    U+2028, are text. A byte order mark at the start is dropped.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: at bytes that are not UTF-8 (naming the line), or when a `.gz` is damaged.
    """
    try:
        with _open(path) as lines:
            yield from decode_lines(lines, os.fspath(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is no intact gzip file ({error}): make it again") from error


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a binary stream as `read_lines` does those of a file.

    Args:
        lines: the stream.
        name: what it is called in errors.

    Raises:
        ValueError: at bytes that are not UTF-8, naming the line.
    """
    for number, line in enumerate(lines, start=1):
        yield _decode(line, name, number)


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that exists.

    Raises:
        FileNotFoundError: when there is no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist or is no file: check the path")
    return Path(path)


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    existing = existing_file(path)
    return cast(BinaryIO, gzip.open(path)) if existing.suffix == ".gz" else existing.open("rb")


def _decode(line: bytes, name: str, number: int) -> str:
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}, line {number}: byte 0x{line[error.start]:02x} at position {error.start + 1} "
            "is not UTF-8: convert the file (iconv -t UTF-8) or mend the line"
        ) from error
