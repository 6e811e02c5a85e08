"""Writes files that exist whole or not at all."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: Path, text: str) -> None:
    """Writes a text file; a process that is killed leaves the former file or the new one.

    Args:
        path: Path of the file. Its folder must exist.
        text: The content.

    Raises:
        OSError: If the file cannot be written; the former file stays.
    """
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as unfinished:
        try:
            unfinished.write(text)
            unfinished.flush()
            os.fsync(unfinished.fileno())
            os.chmod(unfinished.name, _usual_mode())
            os.replace(unfinished.name, path)
        except BaseException:
            os.unlink(unfinished.name)
            raise


def _usual_mode() -> int:
    """Returns the permissions of a new file; temporary files are private."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
