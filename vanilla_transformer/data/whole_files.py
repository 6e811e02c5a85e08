"""Writes files that exist whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import NamedTemporaryFile
from typing import TextIO, cast

from vanilla_transformer.data.disk_space import explained_full_disk


def write_whole(path: Path, text: str) -> None:
    """Writes a text file; a process that is killed leaves the former file or the new one.

    Args:
        path: Path of the file. Its folder must exist.
        text: The content.

    Raises:
        OSError: If the file cannot be written; the former file stays.
    """
    with explained_full_disk(path), _unfinished_file(path.parent) as unfinished:
        unfinished.write(text)
        unfinished.flush()
        os.fsync(unfinished.fileno())
        os.chmod(unfinished.name, _usual_mode())
        os.replace(unfinished.name, path)


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
def _unfinished_file(folder: Path) -> Iterator[TextIO]:
    """Opens a file that is deleted if it is not finished."""
    unfinished = NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False)  # noqa: SIM115
    try:
        yield cast(TextIO, unfinished)
        unfinished.close()
    except BaseException:
        # Closing writes what is left in the buffer, which may fail again.
        with suppress(OSError):
            unfinished.close()
        os.unlink(unfinished.name)
        raise


def _usual_mode() -> int:
    """Returns the permissions of a new file; temporary files are private."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
