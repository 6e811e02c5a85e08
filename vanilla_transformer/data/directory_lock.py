"""Keeps other programs out of a directory while one writes to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformers.utils import logging

logger = logging.get_logger(__name__)

_locks = set[int]()
"""Descriptors of the directories that this process has locked."""


def _close_locks() -> None:
    """Closes them in a forked worker, which would keep a lock when its run has been killed."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks)


@contextmanager
def locked_directory(folder: Path, is_main: bool) -> Iterator[None]:
    """Keeps other runs out of a directory until the block ends, or the process, in whatever way.

    The directory itself is locked: no file is added. One that is missing is made, and deleted again
    if the run leaves nothing in it.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    descriptor = None
    try:
        if is_main and (descriptor := _locked_descriptor(folder)) is not None:
            _locks.add(descriptor)
        yield
    finally:
        if descriptor is not None and descriptor in _locks:  # not in a forked worker
            for path in missing:
                with suppress(OSError):  # it is in use
                    path.rmdir()
            _locks.remove(descriptor)
            os.close(descriptor)


def _locked_descriptor(folder: Path) -> int | None:
    """Locks a directory; returns None, with a warning, where this is not possible."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    except BlockingIOError:
        raise ValueError(
            f"Another run is writing to the output directory {str(folder)!r}: wait until it "
            "has ended, or choose another directory."
        ) from None
    except (ImportError, OSError) as error:  # e.g. Windows, or a network file system
        logger.warning(
            f"{str(folder)!r} cannot be locked ({error}): make sure that no other run writes to it."
        )
        return None
