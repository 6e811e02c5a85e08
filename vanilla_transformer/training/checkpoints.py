"""Lists the checkpoints of a run, and tells complete ones from those that were cut off."""

import os
import re
from pathlib import Path
from typing import Any

from vanilla_transformer.data.file_contents import read_object

TRAINER_STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)", re.ASCII)


def checkpoints(run: str | Path) -> list[Path]:
    """Lists the complete checkpoints of a run, the oldest first.

    Args:
        run: Output directory of the run.

    Returns:
        The directories checkpoint-N, sorted by N.
    """
    return [path for path in numbered_checkpoints(run) if is_complete(path)]


def numbered_checkpoints(run: str | Path) -> list[Path]:
    """Lists the checkpoints of a run, complete or not, the oldest first.

    Args:
        run: Output directory of the run.

    Returns:
        The directories checkpoint-N, sorted by N; empty if the output directory does not exist.
    """
    found = Path(run).glob("checkpoint-*")
    return sorted(
        (path for path in found if path.is_dir() and _NAME.fullmatch(path.name)),
        key=checkpoint_step,
    )


def checkpoint_step(checkpoint: Path) -> int:
    """Returns the number of optimizer steps after which a checkpoint was saved.

    Args:
        checkpoint: A directory checkpoint-N.
    """
    return int(checkpoint.name.rpartition("-")[2])


def make_newest(checkpoint: Path) -> None:
    """Makes a directory for a checkpoint, and all other checkpoints of the run older than it.

    Trainer keeps the newest by the time of the directories, or by their numbers if the times are
    close to each other. Both can be wrong: a run that goes on from checkpoint-3 may still hold the
    checkpoint-8 of a run that was killed, and clocks change.

    Args:
        checkpoint: A directory checkpoint-N. Other checkpoints beyond N count as the oldest.
    """
    checkpoint.mkdir(parents=True, exist_ok=True)
    os.utime(checkpoint)  # by the clock of the file system
    now, step = checkpoint.stat().st_mtime, checkpoint_step(checkpoint)
    others = [path for path in numbered_checkpoints(checkpoint.parent) if path != checkpoint]
    others.sort(key=lambda path: (checkpoint_step(path) <= step, checkpoint_step(path)))
    for age, path in enumerate(reversed(others), start=1):
        os.utime(path, (now - 2 * age,) * 2)


def is_complete(checkpoint: Path) -> bool:
    """Returns whether a checkpoint holds the file that Trainer writes last.

    Args:
        checkpoint: Directory of the checkpoint.

    Returns:
        False if the process was killed while it wrote the checkpoint.
    """
    return bool(read_trainer_state(checkpoint))


def read_trainer_state(folder: Path) -> dict[str, Any]:
    """Reads the state of the Trainer in a checkpoint or at the end of a run.

    Args:
        folder: Directory of the checkpoint or of the run.

    Returns:
        The fields of the state; empty if the file is missing or damaged.
    """
    try:
        return read_object(folder / TRAINER_STATE)
    except (OSError, ValueError):
        return {}
