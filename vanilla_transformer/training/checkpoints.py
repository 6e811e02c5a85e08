"""The checkpoints of a run: which there are, and which of them a kill cut off."""

import json
import re
from pathlib import Path

TRAINER_STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)", re.ASCII)


def checkpoints(run: str | Path) -> list[Path]:
    """Lists the complete checkpoints of a run, the oldest first.

    Args:
        run: Its output directory.

    Returns:
        The directories checkpoint-N, by N.
    """
    return [path for path in numbered_checkpoints(run) if is_complete(path)]


def numbered_checkpoints(run: str | Path) -> list[Path]:
    """Lists the checkpoints of a run, complete or not, the oldest first.

    Args:
        run: Its output directory.

    Returns:
        The directories checkpoint-N, by N; none where there is no such output directory.
    """
    return sorted((path for path in Path(run).glob("checkpoint-*") if _is_numbered(path)), key=step)


def _is_numbered(path: Path) -> bool:
    return path.is_dir() and _NAME.fullmatch(path.name) is not None


def step(checkpoint: Path) -> int:
    """Returns the number of optimizer steps after which a checkpoint was saved.

    Args:
        checkpoint: Its directory, checkpoint-N.
    """
    return int(checkpoint.name.rpartition("-")[2])


def is_complete(checkpoint: Path) -> bool:
    """Tells whether a checkpoint holds the file that Trainer writes last.

    Args:
        checkpoint: Its directory.

    Returns:
        False where a kill cut it off.
    """
    try:
        json.loads((checkpoint / TRAINER_STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
