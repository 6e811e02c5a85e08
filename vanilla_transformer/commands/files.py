"""What subcommands read and write: lines, and whole outputs."""

import gzip
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO, cast

from vanilla_transformer.command_line import usage_errors
from vanilla_transformer.files.atomic_files import LOCK, replaced_file
from vanilla_transformer.files.text_files import check_files, read_lines

MANIFEST = "manifest.json"
"""The file, in a directory of shards, that tells what they are made from."""


@dataclass(frozen=True)
class FileLines:
    """The lines of a text file, read as a stream; their number tells how long a work takes."""

    path: str

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def check_glossary(path: str | None) -> None:
    """Checks a file of terms; a pipe is not opened."""
    from vanilla_transformer.inference.glossaries import as_glossary

    check_files(path)
    if path and os.path.isfile(path):
        as_glossary(path)


def check_languages(
    model: str, source: str | None, target: str | None, texts: Iterable[str] = ()
) -> tuple[str | None, str | None] | None:
    """Checks languages of texts; a wrong one is wrong usage. Returns them as the model has them."""
    from vanilla_transformer.inference.language_check import check_directions

    with usage_errors():
        return check_directions(model, source, target, texts)


def check_output(
    path: str | None, overwrite: bool, read_from: Mapping[str, str | None], name: str = "--output"
) -> None:
    """Checks that an output can be written, and replaces nothing that was not meant.

    Args:
        path: The file; None: standard output.
        read_from: Files that are read at the same time, by the options that name them.
        name: The option that the output is called in errors.
    """
    if not path:
        return
    if not os.path.isdir(folder := os.path.dirname(path) or "."):
        raise ValueError(f"The directory {folder!r} of `{name}` does not exist: make it first.")
    if not os.path.exists(path):
        return
    if os.path.isdir(path):
        raise ValueError(f"`{name}` {path!r} is a directory: give the name of a file.")
    for option, source in read_from.items():
        if source and os.path.exists(source) and os.path.samefile(path, source):
            raise ValueError(f"`{name}` {path!r} is also the `{option}`: choose another file.")
    if not overwrite:
        raise ValueError(f"`{name}` {path!r} exists: add --overwrite, or choose another file.")


def check_shards(folder: Path) -> None:
    """Checks that a directory, if it is there, holds shards and nothing else."""
    if (folder / MANIFEST).exists() or not folder.is_dir():
        return
    if not all(path.match("*.partial") or path.name == LOCK for path in folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty: choose another output.")


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    r"""Opens a text file that appears, or replaces an older one, when it is complete.

    Lines of a file end with "\n" on every system.

    Args:
        path: The file, packed if its name ends in `.gz`; None: standard output, in UTF-8.

    Yields:
        The stream. After an error in the `with` block an older file is as it was. Standard output,
        devices and pipes get each line as it is printed.
    """
    if path is None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
        yield sys.stdout
    elif os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe
        with open(path, "w", encoding="utf-8", buffering=1) as stream:
            yield stream
    else:
        opened = gzip.open if path.endswith(".gz") else open
        with (
            replaced_file(Path(path).resolve()) as unfinished,
            opened(unfinished, "wt", encoding="utf-8", newline="\n") as file,
        ):
            yield cast(TextIO, file)
        print(f"{path}: written.", file=sys.stderr)
