"""Writing of lines: all of a file, or nothing."""

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO, cast

from vanilla_transformer.data.atomic_files import replaced_file


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Opens a text file that appears, or replaces an older one, when it is complete.

    Args:
        path: The file, packed if its name ends in `.gz`; None: standard output, in UTF-8.

    Yields:
        The stream. After an error in the `with` block an older file is as it was. Standard output,
        devices and pipes get each line as it is printed.

    Raises:
        ValueError: If standard output is needed and closed.
    """
    if path is None:
        if sys.stdout is None:
            raise ValueError("Standard output is closed: open it, or give --output.")
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
        yield sys.stdout
    elif Path(path).exists() and not Path(path).is_file():  # a device or a pipe
        with open(path, "w", encoding="utf-8", buffering=1) as stream:
            yield stream
    else:
        opened = gzip.open if path.endswith(".gz") else open
        with (
            replaced_file(path) as unfinished,
            opened(unfinished, "wt", encoding="utf-8") as file,
        ):
            yield cast(TextIO, file)


def print_line(text: str, stream: TextIO) -> None:
    """Prints a text as one line, so that outputs stay aligned with the lines of the input.

    Args:
        text: The text; line breaks, which some models can generate, become spaces.
        stream: Where it is printed.
    """
    print(text.replace("\r", " ").replace("\n", " "), file=stream)
