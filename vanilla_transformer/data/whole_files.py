"""Writes files and directories that exist whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from vanilla_transformer.data.disk_space import explained_full_disk


def write_whole(path: Path, text: str) -> None:
    """Writes a text file; a process that is killed leaves the former file or the new one.

    Args:
        path: Path of the file. Its folder must exist.
        text: The content.

    Raises:
        OSError: If the file cannot be written; the former file stays.
    """
    with (
        explained_full_disk(path),
        replaced_file(path) as unfinished,
        unfinished.open("w", encoding="utf-8") as stream,
    ):
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def replaced_file(path: str | Path) -> Iterator[Path]:
    """Makes a file that takes its place, also that of an older one, when it is complete.

    Args:
        path: The file. Its folder must exist.

    Yields:
        A path beside it for the new file, which does not exist yet. Its name is used by nobody
        else, so that several processes may write the same file: the last one stays.
    """
    unfinished = Path(f"{path}.{token_hex(4)}.partial")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def replaced_directory(path: str | Path) -> Iterator[Path]:
    """Makes a directory that takes its place, also that of an older one, when it is complete.

    The content of an older one is deleted last: after an error it is as it was. The directory
    itself stays, because it may be a mount point or the working directory.

    Args:
        path: The directory, or a link to it. Its parents are made.

    Yields:
        A path for the new directory, which does not exist yet.
    """
    target = Path(path).resolve()
    exists = target.is_dir()
    target.parent.mkdir(parents=True, exist_ok=True)
    # A mount point is another file system than its parent: no file can be renamed into it.
    with TemporaryDirectory(
        dir=target if exists else target.parent, prefix=f".{target.name}-"
    ) as unfinished:
        made, old = Path(unfinished, "new", target.name), Path(unfinished, "old")
        made.parent.mkdir()
        yield made
        if not exists:
            made.rename(target)
            return
        old.mkdir()
        kept = sorted(path for path in target.iterdir() if path.name != Path(unfinished).name)
        moves = [(path, old / path.name) for path in kept]
        moves += [(path, target / path.name) for path in sorted(made.iterdir())]
        _rename_all(moves)


def _rename_all(moves: list[tuple[Path, Path]]) -> None:
    """Renames files or directories; after an error those that were renamed are where they were."""
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            source.rename(target)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            target.rename(source)
        raise
