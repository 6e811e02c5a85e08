"""Checksums of the files of a checkpoint, so that damage is found before a training goes on."""

from pathlib import Path

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.file_contents import content_digest

CHECKSUMS = "checksums.sha256"
"""File of a checkpoint, in the form that `sha256sum --check` reads."""

_NOT_NEEDED = (CHECKSUMS, "training_args.bin", "README.md")


def write_checksums(folder: Path) -> None:
    """Writes the checksums of the files in a folder, but not of those in folders below it.

    Args:
        folder: Directory of a checkpoint that is complete.
    """
    lines = (f"{content_digest(path)}  {path.name}\n" for path in needed_files(folder))
    write_atomic(folder / CHECKSUMS, "".join(lines))


def needed_files(folder: Path) -> list[Path]:
    """Lists the files of a checkpoint, but neither the checksums nor what is never read.

    Args:
        folder: Directory of the checkpoint.

    Returns:
        Paths, sorted by their names.
    """
    files = (path for path in folder.iterdir() if path.name not in _NOT_NEEDED)
    return sorted(path for path in files if path.is_file())


def changed_files(folder: Path, suffixes: tuple[str, ...] = ("",)) -> list[str]:
    """Lists the files that are no longer as they were when their checksums were written.

    Args:
        folder: Directory of a checkpoint. Without checksums, no file counts as changed.
        suffixes: Ends of the names of the files that are checked.

    Returns:
        Names of changed and missing files, and that of the list itself if it is damaged.
    """
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except ValueError:
        return [CHECKSUMS]
    changed = []
    for line in lines:
        digest, space, name = line.partition("  ")
        if not space or len(digest) != 64 or Path(name).name != name:
            changed.append(CHECKSUMS)
        elif name.endswith(suffixes):
            path = folder / name
            if not path.is_file() or content_digest(path) != digest:
                changed.append(name)
    return sorted(set(changed)) if lines else [CHECKSUMS]
