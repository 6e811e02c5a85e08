"""The checkpoints of a training: which there are, whether they are whole, and which one goes on.

A directory holds the checkpoints of one training. Their order is that of their numbers; the times
of files do not count. A checkpoint is whole if it has its list of checksums, which is written last,
and all files are as listed.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.utils import logging

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.names import is_error_rate

logger = logging.get_logger(__name__)

TRAINER_STATE = "trainer_state.json"
"""File with the state of Trainer: in a checkpoint, and in the directory of a run at its end."""

CHECKSUMS = "checksums.sha256"
"""List of the files of a folder, in the form that `sha256sum --check` reads."""

TRAINING_WEIGHTS = "training_weights.safetensors"
"""File of a checkpoint with the training weights, where the model is a running mean."""

_NEVER_READ = (CHECKSUMS, "training_args.bin", "README.md")
_REMEDY = (
    "A training cannot resume from it: use an earlier checkpoint, or train its model further, in "
    "another directory, with `--model_name_or_path`."
)


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
    """Lists the directories checkpoint-N of a run, whole or not, sorted by N."""
    paths = [path for path in Path(run).glob("checkpoint-*") if path.is_dir()]
    numbered = [path for path in paths if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(map(read_checkpoint, numbered), key=lambda checkpoint: checkpoint.step)


def complete_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Lists the checkpoints of a run that have a state, sorted by their numbers."""
    return [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.state]


def check_one_training(checkpoints: Sequence[Checkpoint]) -> None:
    """Refuses checkpoints of two trainings, whose numbers do not tell which ones are newer."""
    names = {checkpoint.record.get("training"): checkpoint.path for checkpoint in checkpoints}
    names.pop(None, None)  # of another program, or cut off
    if len(names) > 1:
        first, second, *_ = names.values()
        raise ValueError(
            f"{str(first)!r} and {second.name} belong to two trainings: move those of one away."
        )


def delete_old_checkpoints(newest: Path, limit: int, best: str | None) -> None:
    """Keeps so many checkpoints of a run: the newest ones, and the best one in any case.

    Those with larger numbers than the newest one count as the oldest: they are what a killed
    process has left of its steps.
    """
    last, kept = read_checkpoint(newest).step, {newest.resolve(), Path(best or newest).resolve()}
    listed = list_checkpoints(newest.parent)
    others = [checkpoint for checkpoint in listed if checkpoint.path.resolve() not in kept]
    others.sort(key=lambda checkpoint: (checkpoint.step <= last, checkpoint.step))
    for checkpoint in others[: max(0, len(listed) - limit)]:
        shutil.rmtree(checkpoint.path, ignore_errors=True)


# Whether a checkpoint is whole -------------------------------------------------------------------


def write_checksums(folder: Path) -> None:
    """Writes the checksums of the files in a folder, but not of those in folders below it."""
    files = sorted(path for path in folder.iterdir() if path.name not in _NEVER_READ)
    lines = (f"{content_digest(path)}  {path.name}\n" for path in files if path.is_file())
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
    changed = set[str]()
    for line in lines:
        digest, space, name = line.partition("  ")
        if not space or len(digest) != 64 or Path(name).name != name:
            changed.add(CHECKSUMS)
        elif name.endswith(suffixes):
            path = folder / name
            if not path.is_file() or content_digest(path) != digest:
                changed.add(name)
    return sorted(changed) if lines else [CHECKSUMS]


def _find_problem(checkpoint: Checkpoint, needs_list: bool) -> str:
    """Returns why a training cannot resume exactly from a checkpoint; "" if it can."""
    path = checkpoint.path
    missing = [] if checkpoint.state else [TRAINER_STATE]
    if not any(path.glob("global_step*")):  # DeepSpeed keeps its states in a folder of its own
        # Trainer goes on without these, and says nothing. FSDP and several processes number them.
        states = {name: name.partition(".")[0] for name in ("optimizer.pt", "rng_state.pth")}
        states["scheduler.pt"] = "scheduler"
        missing += [name for name, stem in states.items() if not any(path.glob(f"{stem}*"))]
    if needs_list and not (path / CHECKSUMS).is_file():
        missing.append(CHECKSUMS)
    if missing:
        return f"{str(path)!r} is an incomplete checkpoint: it lacks {', '.join(missing)}."
    if changed := changed_files(path):
        return (
            f"{str(path)!r} is a damaged checkpoint: after it was saved, {', '.join(changed)} "
            f"changed (if you made the change, delete {CHECKSUMS} and name this checkpoint)."
        )
    return ""


# Which checkpoint goes on ------------------------------------------------------------------------


def resumed_checkpoint(args: TrainingArguments, name: str | bool) -> Checkpoint | None:
    """Decides which whole checkpoint a training goes on from; None: its directory holds none.

    Args:
        name: Directory of a checkpoint; it may have no list of checksums. True: the newest whole
            one in the output directory. Others are then passed over with a warning.

    Raises:
        ValueError: If the named checkpoint, or each one that was whole once, is incomplete or
            damaged; or if the output directory holds checkpoints of two trainings, or later ones
            than the named one.
    """
    run = Path(str(args.output_dir))
    listed = list_checkpoints(run)
    if name is True:
        check_one_training(listed)
        return _newest_whole(listed)
    chosen = read_checkpoint(str(name))
    if problem := _find_problem(chosen, needs_list=False):
        raise ValueError(f"{problem} {_REMEDY}")
    if chosen.path.resolve().parent == run.resolve():
        check_one_training(listed)
        later = [c.path.name for c in listed if c.state and c.step > chosen.step]
        if later:
            raise ValueError(
                f"`resume_from_checkpoint` is {chosen.path.name}, but {str(run)!r} also holds "
                f"{', '.join(later)}: move what is later away, or choose another `output_dir`. A "
                "directory holds one training."
            )
    return chosen


def _newest_whole(listed: Sequence[Checkpoint]) -> Checkpoint | None:
    problems = list[str]()
    for checkpoint in reversed(listed):
        if not (problem := _find_problem(checkpoint, needs_list=True)):
            return checkpoint
        logger.warning(f"{problem} It is passed over.")
        is_of_others = checkpoint.state and not checkpoint.record
        if is_of_others or (checkpoint.path / CHECKSUMS).is_file():
            problems.append(problem)  # it was whole once
    if problems:
        raise ValueError(f"{problems[0]} {_REMEDY}")
    return None


# The best checkpoint ------------------------------------------------------------------------------


def deciding_scores(
    log: Sequence[Mapping[str, float]], metric: str, greater_is_better: bool | None
) -> tuple[str, dict[int, float]]:
    """Returns the scores that tell which checkpoint of a training is the best.

    A metric that is the worst possible in all evaluations, as the BLEU of outputs of one word is,
    tells nothing: then chrF decides, or else the loss.

    Args:
        log: The log of the training.
        metric: Name of a validation score, with or without "eval_".

    Returns:
        The name of the metric that decides, and its finite scores by step, negative where lower is
        better.
    """
    name = metric.removeprefix("eval_")
    of_metric = _scores_by_step(log, name, 1 if greater_is_better else -1)
    worst: float | None = -100 if is_error_rate(name) else 0 if greater_is_better else None
    if of_metric and all(score == worst for score in of_metric.values()):
        for other, sign in (("chrf", 1), ("loss", -1)):
            scores = _scores_by_step(log, other, sign)
            if any(scores.values()):
                return other, scores
    return name, of_metric


def _scores_by_step(log: Sequence[Mapping[str, float]], name: str, sign: int) -> dict[int, float]:
    key = f"eval_{name}"
    return {
        int(row["step"]): sign * row[key]
        for row in log
        if row["step"] and math.isfinite(row.get(key, math.nan))
    }
