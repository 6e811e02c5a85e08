"""What subcommands read and write: models, lines, whole outputs, outputs that are continued.

Nothing here needs torch or transformers.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO, cast

from vanilla_transformer.commands.options import check_usage
from vanilla_transformer.data.atomic_files import replaced_file
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.data.model_directory import model_files
from vanilla_transformer.data.text_files import (
    decode_lines,
    existing_file,
    read_line_pairs,
    read_lines,
)

PAIRS_PER_CHUNK = 2048


def check_data_files(options: Mapping[str, Any]) -> None:
    """Checks that the data files among the options exist; the error names the option."""
    for name, path in data_files(options).items():
        try:
            existing_file(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"`{name}`: {error}") from None


def data_files(options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the data files among the options by the names of their options."""
    names = [
        f"{split}_{part}"
        for split in ("train", "validation", "test")
        for part in ("file", "source", "target")
    ]
    return {name: options[name] for name in names if options.get(name)}


# Lines that are read ------------------------------------------------------------------------------


def source_lines(lines: Sequence[str], file: str | None) -> Iterable[str]:
    """Returns the lines to work on; a file and standard input are read as a stream."""
    if lines:
        return list(lines)
    if file:
        return read_lines(file)
    if sys.stdin is None:
        raise ValueError("Standard input is closed: give lines as arguments, or --input.")
    return decode_lines(sys.stdin.buffer, "standard input")


def read_pair_chunks(
    source: str, target: str, skip: int = 0, progress: bool = False
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Reads two files of as many lines as a stream, from the pair after the first `skip`.

    Args:
        progress: Whether to show on standard error how many pairs are done.

    Yields:
        The number of the first line, and up to `PAIRS_PER_CHUNK` lines of each file.
    """
    from vanilla_transformer.progress import Progress

    pairs = islice(read_line_pairs(source, target), skip, None)
    done = skip
    total = count_lines(source) if progress else None
    with Progress(total, "pairs", done=done, shown=progress) as shown:
        while chunk := list(islice(pairs, PAIRS_PER_CHUNK)):
            yield done + 1, [one for one, _ in chunk], [other for _, other in chunk]
            done += len(chunk)
            shown.reach(done)


@dataclass(frozen=True)
class CountedLines:
    """Lines that are read as a stream, and their number, which tells how long the work takes."""

    lines: Iterable[str]
    count: int

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return self.count


def count_lines(file: str) -> int | None:
    """Counts the lines of a file, which is read for this; None: it can be read only once."""
    return sum(1 for _ in read_lines(file)) if Path(file).is_file() else None


def with_count(lines: Iterable[str], file: str | None, skip: int) -> Iterable[str]:
    """Adds to the lines of a file, less those that are left out, how many there are."""
    count = None if file is None else count_lines(file)
    return lines if count is None else CountedLines(lines, count - skip)


@contextmanager
def named_lines(file: str, first: int) -> Iterator[None]:
    """Names the line of a file that an error is about, where the block begins at line `first`."""
    from vanilla_transformer.inference.translator import LongSourceError

    try:
        yield
    except LongSourceError as error:
        raise ValueError(f"{file}, line {first + error.number}: it {error.problem}") from error
    except ValueError as error:
        raise ValueError(f"{file}, from line {first}: {error}") from error


# Outputs ------------------------------------------------------------------------------------------


def check_resumption(options: argparse.Namespace) -> None:
    """Refuses `--resume` where an output could not go on."""
    check_usage(
        (options.resume and not options.output, "--resume needs --output"),
        (
            options.resume and str(options.output).endswith(".gz"),
            "--resume cannot go on with a packed file: give another --output",
        ),
    )


def check_output(
    options: argparse.Namespace, read_from: Mapping[str, str | None], name: str = "--output"
) -> None:
    """Checks the options `output`, `overwrite` and, where there is one, `resume`.

    Args:
        read_from: Files that are read at the same time, by the options that name them.
        name: The option that the output is called in errors.

    Raises:
        ValueError: If the file exists and may not be replaced, or if it is one of `read_from`.
        OSError: If it is a directory, or no file can be made in its directory.
    """
    path, resumes = options.output, getattr(options, "resume", False)
    if not path:
        return
    output, unfinished = Path(path), _unfinished_file(path)
    if output.is_dir():
        raise IsADirectoryError(f"`{name}` {path!r} is a directory: give the name of a file.")
    if output.exists() and not (options.overwrite or resumes):
        raise ValueError(f"`{name}` {path!r} exists: add --overwrite, or choose another file.")
    for option, source in read_from.items():
        if source and output.exists() and output.samefile(source):
            raise ValueError(f"`{name}` {path!r} is also the `{option}`: choose another file.")
    if not output.parent.is_dir():
        raise FileNotFoundError(
            f"`{name}` {path!r}: the directory {str(output.parent)!r} does not exist."
        )
    if output.is_file() or not output.exists():  # not a device or a pipe
        try:
            with TemporaryFile(dir=unfinished.parent):
                pass
        except OSError as error:
            raise OSError(
                f"`{name}` {path!r}: no file can be made in {str(unfinished.parent)!r} "
                f"({error.strerror}): choose another directory."
            ) from error
    if resumes and not options.overwrite and output.exists() and unfinished.exists():
        raise ValueError(
            f"`{name}` {path!r} exists, and {str(unfinished)!r} would replace it: add "
            "--overwrite to go on with the latter, or delete the latter to keep the former."
        )


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
            replaced_file(Path(path).resolve()) as unfinished,
            opened(unfinished, "wt", encoding="utf-8", newline="\n") as file,
        ):
            yield cast(TextIO, file)


@contextmanager
def open_resumable(
    options: argparse.Namespace, identity: Mapping[str, Any]
) -> Iterator[tuple[TextIO, int]]:
    """Opens the output; with `--resume` it keeps its lines when the process ends too early.

    Each line goes to `PATH.unfinished` as it is printed. This file takes its place at the end.
    `PATH.unfinished.json` records what the lines were made from: it goes on only if `identity` is
    equal.

    Yields:
        The stream, and the number of complete lines that it holds already.
    """
    if not options.resume:
        with open_output(options.output) as stream:
            yield stream, 0
        return
    unfinished = _unfinished_file(options.output)
    record = Path(f"{unfinished}.json")
    done = 0
    if unfinished.is_file() and record.is_file():
        check_identity(unfinished, record, identity)
        content = unfinished.read_bytes()
        done, size = content.count(b"\n"), content.rfind(b"\n") + 1
        with unfinished.open("r+b") as file:
            file.truncate(size)  # a line that was not completed
    else:
        unfinished.unlink(missing_ok=True)
        record.write_text(json.dumps(identity), encoding="utf-8")
    with unfinished.open("a", encoding="utf-8", newline="\n", buffering=1) as stream:
        yield stream, done
    unfinished.replace(Path(options.output).resolve())
    record.unlink()


def check_done_lines(output: str, lines: Iterable[str]) -> None:
    """Refuses an interrupted output of sources and outputs whose sources are not these lines."""
    unfinished = _unfinished_file(output)
    for number, (found, line) in enumerate(zip_longest(read_lines(unfinished), lines), start=1):
        if found is None or line is None or not found.startswith(f"{as_cell(line)}\t"):
            raise ValueError(
                f"{str(unfinished)!r}, line {number}, does not begin with line {number} of the "
                "input: the outputs are shifted; delete it to begin again."
            )


def as_cell(text: str) -> str:
    """Returns a text as a cell of a line of cells: tabs and line breaks become spaces."""
    return text.replace("\t", " ").replace("\r", " ").replace("\n", " ")


def _unfinished_file(output: str) -> Path:
    """Returns the file that becomes an output, beside it, or beside what it names as a link."""
    return Path(f"{Path(output).resolve()}.unfinished")


def is_resumed_and_complete(options: argparse.Namespace, source: str) -> bool:
    """Returns whether `--resume` finds a complete file, and says what is not known of it."""
    path = options.output
    if not options.resume or options.overwrite or not Path(path).exists():
        return False
    if _unfinished_file(path).exists():
        return False
    with open(path, "rb") as stream:
        found = sum(1 for _ in stream)
    wanted = sum(1 for _ in read_lines(source))
    if found != wanted:
        raise ValueError(
            f"`--output` {path!r} exists and has {found:,} lines, but {source!r} has {wanted:,}: "
            "add --overwrite to make it again, or choose another file."
        )
    print(
        f"{path} is complete, with as many lines as {source} ({found:,}): nothing to do. The model "
        "and the options that made it are not known; add --overwrite to make it again.",
        file=sys.stderr,
    )
    return True


def file_identity(path: str) -> list[Any]:
    """Returns path, size and time of a file or of those of a model, or a name on the Hub."""
    found = Path(path)
    if not found.exists():
        return [path]
    files = model_files(found) if found.is_dir() else [found]
    return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def check_identity(output: Path, record: Path, identity: Mapping[str, Any]) -> None:
    """Refuses an output that was made from something else than its record says."""
    try:
        recorded = read_object(record)
    except ValueError:
        recorded = {}
    wanted = json.loads(json.dumps(identity))
    names = sorted(name for name in {*recorded, *wanted} if recorded.get(name) != wanted.get(name))
    if names:
        raise ValueError(
            f"{str(output)!r} was made with another {', '.join(names)}: give the same "
            "files and options, or delete it to begin again."
        )


def print_line(text: str, stream: TextIO) -> None:
    """Prints a text as one line: line breaks, which some models can generate, become spaces."""
    print(text.replace("\r", " ").replace("\n", " "), file=stream)
