"""Names the file when a disk is full; the writers of torch and safetensors do not."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SIGNS = (
    "no space left",
    "file too large",
    "disk quota exceeded",
    "inline_container",  # torch: where its writer stands
    "pytorchstreamwriter",
)


@contextmanager
def explained_full_disk(path: Path, weights: str = "model.safetensors") -> Iterator[None]:
    """Explains that a file could not be written whole.

    Args:
        path: The file; or the folder of the files, of which the newest is named.
        weights: File in this folder that safetensors writes, and deletes when it fails.

    Raises:
        OSError: In place of the errors of the writers, if the disk is full or the size of a file
            is limited.
    """
    try:
        yield
    except Exception as error:
        if not _is_full_disk(error):
            raise
        is_weights = type(error).__name__ == "SafetensorError"
        name = path
        if path.is_dir():
            name = path / weights if is_weights else _newest_file(path)
        raise OSError(
            f"{str(name)!r} cannot be written whole: no space left on the disk, or a limit on the "
            "size of files. What was saved before is kept: make room, and go on from there."
        ) from error


def _is_full_disk(error: BaseException) -> bool:
    """Returns whether an error, or one behind it, comes from a full disk.

    A writer that fails again when it is closed hides the reason.
    """
    seen, current = set[int](), cast("BaseException | None", error)
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, OSError):
            if current.errno in _FULL:
                return True
        elif any(sign in str(current).lower() for sign in _SIGNS):
            return True
        current = current.__cause__ or current.__context__
    return False


def _newest_file(folder: Path) -> Path:
    files = (path for path in folder.iterdir() if path.is_file())
    return max(files, key=lambda path: path.stat().st_mtime_ns, default=folder)
