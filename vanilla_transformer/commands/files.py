"""What subcommands read and write: lines, whole outputs, outputs that are made in parts."""

import gzip
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

from vanilla_transformer.commands.options import OutputFile, ResumedFile
from vanilla_transformer.data.atomic_files import (
    LOCK,
    explained_full_disk,
    replaced_file,
    write_atomic,
)
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.data.model_directory import model_files
from vanilla_transformer.data.text_files import decode_lines, read_lines

T = TypeVar("T")

LINES_PER_CHUNK = 2048
"""Lines that are computed together, and that an interrupted output loses at most."""
MANIFEST = "manifest.json"
"""The file, in a directory of parts, that tells what the parts are made from."""
_PARTS = "part-*[0-9]"


# Lines that are read ------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileLines:
    """The lines of a text file, read as a stream; their number tells how long a work takes."""

    path: str

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def source_lines(lines: Sequence[str], file: str | None) -> Iterable[str]:
    """Returns the lines to work on; a file and standard input are read as a stream."""
    if lines:
        return lines
    return FileLines(file) if file else decode_lines(sys.stdin.buffer, "standard input")


def in_chunks(rows: Iterable[T], done: int = 0) -> Iterator[tuple[int, list[T]]]:
    """Yields the rows after the first `done` in chunks, each with the number of its first row."""
    rows = islice(rows, done, None)
    while chunk := list(islice(rows, LINES_PER_CHUNK)):
        yield done, chunk
        done += len(chunk)


# Outputs ------------------------------------------------------------------------------------------


def check_output(
    file: OutputFile, read_from: Mapping[str, str | None], name: str = "--output"
) -> None:
    """Checks that an output can be written, and replaces nothing that was not meant.

    Args:
        read_from: Files that are read at the same time, by the options that name them.
        name: The option that the output is called in errors.
    """
    path = file.output
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
    if not file.overwrite:
        raise ValueError(f"`{name}` {path!r} exists: add --overwrite, or choose another file.")


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


# Outputs that are made in parts -------------------------------------------------------------------


def is_made_already(file: ResumedFile) -> bool:
    """Returns whether `--resume` finds a complete output, and says so."""
    path = file.output
    if path is None or not file.resume or file.overwrite or not os.path.exists(path):
        return False
    print(
        f"{path} exists: nothing to do. The model and the options that made it are not known; "
        "--overwrite makes it again.",
        file=sys.stderr,
    )
    return True


def write_in_chunks(
    file: OutputFile,
    identity: Mapping[str, Any],
    rows: Iterable[T],
    write: Callable[[int, list[T], TextIO], None],
    total: int,
    unit: str,
) -> None:
    """Writes the output of some rows, chunk by chunk.

    With `--resume`, each chunk is a part in the directory `OUTPUT.unfinished`, so that the same
    command goes on after a kill. The output is made from the parts when all are there.

    Args:
        identity: What decides the output.
        write: Writes the lines of a chunk; takes the number of its first row, from 0, its rows and
            the stream.
        total: The number of rows, which are called `unit` in messages about the progress.
    """
    from vanilla_transformer.progress import Progress

    if not (isinstance(file, ResumedFile) and file.resume):
        with (
            open_output(file.output) as stream,
            Progress(total, unit, shown=not stream.isatty()) as progress,
        ):
            for first, chunk in in_chunks(rows):
                write(first, chunk, stream)
                progress.update(first + len(chunk))
        return
    folder = Path(f"{file.output}.unfinished")
    with parts_directory(folder, {**identity, "lines_per_part": LINES_PER_CHUNK}):
        # Parts are made in order and all but the last are full, so their number tells what is done.
        done = LINES_PER_CHUNK * sum(1 for _ in folder.glob(_PARTS))
        with Progress(total, unit, done=min(done, total)) as progress:
            for first, chunk in in_chunks(rows, done):
                with open_part(folder / f"part-{first:09}") as stream:
                    write(first, chunk, stream)
                progress.update(first + len(chunk))
        with open_output(file.output) as stream:
            for part in sorted(folder.glob(_PARTS)):
                with part.open(encoding="utf-8", newline="") as lines:
                    shutil.copyfileobj(lines, stream)
    shutil.rmtree(folder)


@contextmanager
def parts_directory(folder: Path, identity: Mapping[str, Any]) -> Iterator[None]:
    """Makes a directory of parts, or goes on with one; keeps other programs out of it."""
    from vanilla_transformer.data.directory_lock import locked_directory

    with locked_directory(folder, is_main=True):
        folder.mkdir(parents=True, exist_ok=True)
        manifest, wanted = folder / MANIFEST, json.loads(json.dumps(identity))
        if manifest.exists():
            known = read_object(manifest)
            names = sorted(n for n in {*known, *wanted} if known.get(n) != wanted.get(n))
            if names:
                raise ValueError(
                    f"{str(folder)!r} was made with another {', '.join(names)}: give the same "
                    "files and options, or delete it to begin again."
                )
        elif not all(path.match("*.partial") or path.name == LOCK for path in folder.iterdir()):
            raise ValueError(f"{str(folder)!r} is not empty: choose another output.")
        else:
            write_atomic(manifest, json.dumps(wanted, indent=1) + "\n")
        try:
            yield
        finally:
            for path in folder.glob("*.partial"):  # of a process that was killed
                path.unlink(missing_ok=True)


@contextmanager
def open_part(path: Path) -> Iterator[TextIO]:
    """Opens a part, which exists when it is whole and on the disk."""
    with (
        explained_full_disk(path),
        replaced_file(path) as unfinished,
        unfinished.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def file_identity(path: str) -> list[Any]:
    """Returns path, size and time of a file or of those of a model, or a name on the Hub."""
    entry = Path(path)
    if not entry.exists():
        return [path]
    files = model_files(entry) if entry.is_dir() else [entry]
    return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
