"""The checkpoints of a training: which there are, whether they are whole, and which one goes on.

A directory holds the checkpoints of one training. Their order is that of their numbers; the times
of files do not count.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.utils import logging

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.file_contents import content_digest, read_object

logger = logging.get_logger(__name__)

TRAINER_STATE = "trainer_state.json"
"""File that Trainer writes last into a checkpoint, and a run at its end."""

CHECKSUMS = "checksums.sha256"
"""File of a checkpoint, in the form that `sha256sum --check` reads."""

TRAINING_WEIGHTS = "training_weights.safetensors"
"""File of a checkpoint with the training weights, where the model is a running mean."""

_WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
_NEVER_READ = (CHECKSUMS, "training_args.bin", "README.md")
_NAME = re.compile(r"checkpoint-(\d+)", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, or the directory of a run at its end.

    Attributes:
        state: Fields of its trainer_state.json; empty if the file is missing or damaged, as when
            the process was killed while it wrote the checkpoint.
    """

    path: Path
    state: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Number of optimizer steps after which a directory checkpoint-N was saved."""
        return int(self.path.name.rpartition("-")[2])

    @property
    def record(self) -> dict[str, Any]:
        """What `TrainingRecord` has saved; empty if another program wrote the checkpoint."""
        return saved_record(self.state.get("stateful_callbacks", {}))

    def is_of_training(self, name: str | None) -> bool:
        """Returns whether a training has written it; True also if one of them has no record."""
        own = self.record.get("training")
        return own is None or name is None or own == name


def saved_record(callbacks: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes of `TrainingRecord` among the callbacks of a Trainer's state."""
    saved = callbacks.get("TrainingRecord")
    return dict(saved.get("attributes", {})) if isinstance(saved, dict) else {}


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Reads the state in a checkpoint, or in the directory of a run at its end."""
    try:
        return Checkpoint(Path(path), read_object(Path(path, TRAINER_STATE)))
    except (OSError, ValueError):
        return Checkpoint(Path(path), {})


def list_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Lists the directories checkpoint-N of a run, complete or not, sorted by N."""
    found = (path for path in Path(run).glob("checkpoint-*") if _NAME.fullmatch(path.name))
    read = (read_checkpoint(path) for path in found if path.is_dir())
    return sorted(read, key=lambda checkpoint: checkpoint.step)


def complete_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Lists the checkpoints of a run that were written to their end, sorted by their numbers."""
    return [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.state]


def make_newest(path: Path) -> None:
    """Makes a directory checkpoint-N, and all other checkpoints of the run older than it.

    Trainer keeps the newest by the time of the directories, or by their numbers if the times are
    close to each other. Both can be wrong: a run that goes on from checkpoint-3 may still hold what
    a killed process has written of its checkpoint-8, and clocks change. Checkpoints beyond N count
    as the oldest.
    """
    path.mkdir(parents=True, exist_ok=True)
    os.utime(path)  # by the clock of the file system
    now, newest = path.stat().st_mtime, read_checkpoint(path).step
    others = [one for one in list_checkpoints(path.parent) if one.path != path]
    others.sort(key=lambda one: (one.step <= newest, one.step))
    for age, one in enumerate(reversed(others), start=1):
        os.utime(one.path, (now - 2 * age,) * 2)


# Whether a checkpoint is whole -------------------------------------------------------------------


def needed_files(folder: Path) -> list[Path]:
    """Lists the files of a checkpoint, sorted, without the checksums and what is never read."""
    files = (path for path in folder.iterdir() if path.name not in _NEVER_READ)
    return sorted(path for path in files if path.is_file())


def write_checksums(folder: Path) -> None:
    """Writes the checksums of the files in a folder, but not of those in folders below it."""
    lines = (f"{content_digest(path)}  {path.name}\n" for path in needed_files(folder))
    write_atomic(folder / CHECKSUMS, "".join(lines))


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


def _find_problem(checkpoint: Checkpoint, args: TrainingArguments, has_mean: bool) -> str:
    """Returns why a training cannot resume exactly from a checkpoint; "" if it can."""
    path = checkpoint.path
    if missing := _missing_files(checkpoint, args, has_mean):
        return f"{str(path)!r} is an incomplete checkpoint: it lacks {', '.join(missing)}."
    if changed := changed_files(path):
        return (
            f"{str(path)!r} is a damaged checkpoint: after it was saved, {', '.join(changed)} "
            f"changed (delete {CHECKSUMS} if you made the change)."
        )
    return ""


def _missing_files(checkpoint: Checkpoint, args: TrainingArguments, has_mean: bool) -> list[str]:
    path = checkpoint.path
    missing = [] if checkpoint.state else [f"{TRAINER_STATE} (written last)"]
    if any(path.glob("global_step*")):  # DeepSpeed keeps all else in a folder of its own
        return missing
    index = path / f"{_WEIGHTS[0]}.index.json"
    if index.is_file():
        try:
            wanted = sorted(set(read_object(index)["weight_map"].values()))
        except (ValueError, KeyError, AttributeError):
            return [*missing, index.name]
    else:
        has_weights = any((path / name).is_file() for name in _WEIGHTS)
        wanted = [] if has_weights or any(path.glob("pytorch_model_fsdp*")) else [_WEIGHTS[0]]
    wanted += [] if any(path.glob("optimizer*")) else ["optimizer.pt"]
    saved_by = checkpoint.record.get("inputs", {}).get("num_processes", args.world_size)
    several = [f"rng_state_{index}.pth" for index in range(saved_by)]
    wanted += ["scheduler.pt", *(several if saved_by > 1 else ["rng_state.pth"])]
    wanted += ["scaler.pt"] if args.fp16 else []  # the scale of the loss
    wanted += checkpoint.record.get("files", [])  # also those that deleting has begun with
    missing += [name for name in wanted if not (path / name).is_file()]
    if has_mean and not (path / TRAINING_WEIGHTS).is_file():
        missing.append(f"{TRAINING_WEIGHTS} (its training kept no running mean)")
    return list(dict.fromkeys(missing))


# Which checkpoint goes on ------------------------------------------------------------------------


def resumed_checkpoint(
    args: TrainingArguments, given: str | bool, has_mean: bool = False
) -> Checkpoint | None:
    """Decides which whole checkpoint a training goes on from; None: its directory holds none.

    Args:
        given: Directory of a checkpoint; True: the newest one in the output directory. Checkpoints
            that lack files, or whose files are not as they were saved, are then passed over with a
            warning.
        has_mean: Whether the training keeps a running mean of the weights.

    Raises:
        FileNotFoundError: If the given directory does not exist.
        ValueError: If the given checkpoint, or each one that was written, is incomplete or damaged;
            if the output directory holds checkpoints of another training, or later ones than the
            given one; or if the model is a running mean and the training keeps none.
    """
    run = Path(str(args.output_dir))
    if given is True:
        found = _newest_whole(run, args, has_mean)
    else:
        found = read_checkpoint(str(given))
        _check_named(found, run, args, has_mean)
    if found is not None and (found.path / TRAINING_WEIGHTS).is_file() and not has_mean:
        raise ValueError(
            f"The model in {str(found.path)!r} is a running mean of the weights: resume with the "
            "`--ema_decay` of its training, or train the mean further, in another directory, with "
            "`--model_name_or_path`."
        )
    return found


_REMEDY = (
    "A training cannot resume from it: use an earlier checkpoint, or train its model further, in "
    "another directory, with `--model_name_or_path`."
)


def _newest_whole(run: Path, args: TrainingArguments, has_mean: bool) -> Checkpoint | None:
    problems, listed = list[str](), list_checkpoints(run)
    for checkpoint in reversed(listed):
        if not (problem := _find_problem(checkpoint, args, has_mean)):
            name = checkpoint.record.get("training")
            for other in listed:
                if not other.is_of_training(name):
                    raise ValueError(
                        f"{checkpoint.path.name} and {other.path.name} in {str(run)!r} belong to "
                        "two trainings, so the newest checkpoint is not certain: move those of one "
                        "training away."
                    )
            return checkpoint
        logger.warning(f"{problem} It is passed over.")
        if checkpoint.state or (checkpoint.path / CHECKSUMS).is_file():
            problems.append(problem)  # it was whole once
    if problems:
        raise ValueError(f"{problems[0]} {_REMEDY}")
    return None


def _check_named(
    checkpoint: Checkpoint, run: Path, args: TrainingArguments, has_mean: bool
) -> None:
    path = checkpoint.path
    if not path.is_dir():
        raise FileNotFoundError(
            f"`resume_from_checkpoint` {str(path)!r} does not exist: check the path, or give "
            "`True` for the newest checkpoint."
        )
    if problem := _find_problem(checkpoint, args, has_mean):
        raise ValueError(f"{problem} {_REMEDY}")
    if path.resolve().parent == run.resolve() and _NAME.fullmatch(path.name):
        later = [one.path.name for one in complete_checkpoints(run) if one.step > checkpoint.step]
        if later:
            raise ValueError(
                f"`resume_from_checkpoint` is {path.name}, but {str(run)!r} also holds "
                f"{', '.join(later)}: move what is later away, or choose another `output_dir`. A "
                "directory holds one training."
            )
