"""Keeps other programs out of a directory while one writes to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vanilla_transformer.files.atomic_files import LOCK


@contextmanager
def locked_directory(folder: Path, is_main: bool) -> Iterator[None]:
    """Keeps other runs out of a directory until the block ends, or the process, in whatever way.

    A process that is killed leaves the file `LOCK` there, which locks nothing any more. A directory
    that is missing is made, and deleted again if the run leaves nothing in it.
    """
    if not is_main:
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):  # it could not be locked either
        raise ValueError(
            f"The output directory {str(folder)!r} cannot be written to: choose another directory."
        )
    lock = FileLock(folder / LOCK, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"Another run is writing to the output directory {str(folder)!r}: wait until it "
            "has ended, or choose another directory."
        ) from None
    main = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == main:  # not in a forked worker
            lock.release()
            for remove in ((folder / LOCK).unlink, *(path.rmdir for path in missing)):
                with suppress(OSError):  # it is in use
                    remove()
