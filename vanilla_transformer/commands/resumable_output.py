"""An output file that goes on after an interruption, without losing or doubling a line."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.data.text_files import read_lines


@contextmanager
def continued_output(path: str, identity: Mapping[str, Any]) -> Iterator[tuple[TextIO, int]]:
    """Opens a text file that keeps what was written when the process ends before it is complete.

    Each line goes to `PATH.unfinished` as it is printed. This file takes its place at the end.
    `PATH.unfinished.json` records what the lines were made from.

    Args:
        path: The file.
        identity: What the lines are made from. An interrupted file goes on only if it is equal.

    Yields:
        The stream, and the number of complete lines that it holds already.

    Raises:
        ValueError: If the interrupted file was made from something else.
    """
    unfinished, record = Path(f"{path}.unfinished"), Path(f"{path}.unfinished.json")
    done = 0
    if unfinished.is_file() and record.is_file():
        _check_identity(unfinished, record, identity)
        done = _keep_complete_lines(unfinished)
    else:
        unfinished.unlink(missing_ok=True)
        record.write_text(json.dumps(identity), encoding="utf-8")
    with unfinished.open("a", encoding="utf-8", newline="\n", buffering=1) as stream:
        yield stream, done
    unfinished.replace(path)
    record.unlink()


def is_complete(path: str) -> bool:
    """Returns whether the file is there and no interrupted one waits to take its place.

    Args:
        path: The file.
    """
    return Path(path).exists() and not Path(f"{path}.unfinished").exists()


def check_nothing_is_replaced(path: str) -> None:
    """Checks that no interrupted file waits to take the place of a complete one.

    Args:
        path: The file.

    Raises:
        ValueError: If both are there.
    """
    unfinished = Path(f"{path}.unfinished")
    if Path(path).exists() and unfinished.exists():
        raise ValueError(
            f"`--output` {path!r} exists, and {str(unfinished)!r} would replace it: add "
            "--overwrite to go on with the latter, or delete the latter to keep the former."
        )


def report_complete(path: str, source: str) -> None:
    """Prints on standard error that a file is complete, and what is not known of it.

    Args:
        path: The file.
        source: The file with the lines that it was made from.

    Raises:
        ValueError: If they do not have as many lines.
    """
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


def file_identity(path: str) -> list[Any]:
    """Returns the full path, size and time of a file, or of the weights in a directory.

    Args:
        path: A file, a directory, or a name on the Hub, which stands for itself.
    """
    found = Path(path)
    if not found.exists():
        return [path]
    files = sorted(found.glob("*.safetensors")) if found.is_dir() else [found]
    return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _check_identity(unfinished: Path, record: Path, identity: Mapping[str, Any]) -> None:
    try:
        recorded = read_object(record)
    except ValueError:
        recorded = {}
    wanted = json.loads(json.dumps(identity))
    names = sorted(name for name in {*recorded, *wanted} if recorded.get(name) != wanted.get(name))
    if names:
        raise ValueError(
            f"{str(unfinished)!r} was made with another {', '.join(names)}: give the same "
            "files and options, or delete it to begin again."
        )


def _keep_complete_lines(file: Path) -> int:
    """Cuts a line that was not completed, and returns the number of lines."""
    content = file.read_bytes()
    kept = content[: content.rfind(b"\n") + 1]
    if len(kept) < len(content):
        with file.open("r+b") as stream:
            stream.truncate(len(kept))
    return kept.count(b"\n")
