"""A record in each checkpoint of what the training has done before."""

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import logging

from vanilla_transformer.training.checkpoints import (
    TRAINER_STATE,
    checkpoint_step,
    read_trainer_state,
)
from vanilla_transformer.training.checksums import needed_files

logger = logging.get_logger(__name__)

_COURSE = ("lr_scheduler_type", "warmup_steps", "max_grad_norm", "gradient_accumulation_steps")
"""Options that decide the size of the steps, and that no saved state keeps."""


class TrainingRecord(TrainerCallback, ExportableState):
    """Keeps the time and the loss of a training, and its resumptions, in the checkpoints.

    Attributes:
        processes: First step and random name of each process that has continued the training.
        num_processes: Number of processes that train at the same time.
        seconds: Time of the training up to the last call of `update`.
        loss: Sum of the losses of all steps up to the last call of `update`.
        learning_rate: Learning rate in the arguments of the training.
        inputs: What decides the course of the training, in short, by name: "max_tokens", "seed",
            the options of the schedule, and what the run adds, such as digests of its texts.
        folder: Directory of the checkpoint that is being saved, whose files `state` lists.
        seconds_before: Time of the training before this process.
        loss_before: Sum of the losses of the steps before this process.
    """

    def __init__(self) -> None:
        self.processes: list[list[Any]] = []
        self.num_processes, self.learning_rate = 1, 0.0
        self.seconds = self.loss = self.seconds_before = self.loss_before = 0.0
        self.inputs: dict[str, Any] = {}
        self.folder: Path | None = None
        self._started = time.monotonic()

    @property
    def first_step(self) -> int:
        """The step after which the recorded training begins; 0 unless its start is unknown."""
        return int(self.processes[0][0]) if self.processes else 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restores the record of the checkpoint, if the run is resumed; called by Trainer."""
        states = cast("dict[str, Any]", state.stateful_callbacks)
        saved = _saved_attributes(states) if state.global_step else {}
        self.processes = [*saved.get("processes", []), [state.global_step, secrets.token_hex(8)]]
        self.num_processes, self.learning_rate = args.world_size, args.learning_rate
        self.inputs |= _order_of_examples(args) | _course_of_steps(args)
        _warn_of_changes(self.inputs, saved.get("inputs", {}))
        self.seconds = self.seconds_before = saved.get("seconds", 0.0)
        self.loss = self.loss_before = saved.get("loss", 0.0)
        self._started = time.monotonic()
        states[type(self).__name__] = self.state()

    def update(self, loss: float) -> None:
        """Brings the record up to date.

        Args:
            loss: Sum of the losses of the steps of this process.
        """
        self.seconds = self.seconds_before + time.monotonic() - self._started
        self.loss = self.loss_before + loss

    def state(self) -> dict[str, Any]:
        """Returns what the checkpoint keeps; called by Trainer."""
        names = ("processes", "num_processes", "seconds", "loss", "learning_rate", "inputs")
        attributes = {name: getattr(self, name) for name in names}
        files = [] if self.folder is None else needed_files(self.folder)
        return {"args": {}, "attributes": {**attributes, "files": [path.name for path in files]}}


def read_record(folder: Path) -> dict[str, Any]:
    """Reads the record in a checkpoint or at the end of a run.

    Args:
        folder: Directory of the checkpoint or of the run.

    Returns:
        The record's saved attributes; empty if an earlier version wrote the state.
    """
    return _saved_attributes(read_trainer_state(folder).get("stateful_callbacks", {}))


def recorded_processes(state: TrainerState) -> list[list[Any]]:
    """Returns the first step and the name of each process of a training; empty without a record.

    Args:
        state: State of the training.
    """
    return list(_saved_attributes(cast(Any, state.stateful_callbacks)).get("processes", []))


def _order_of_examples(args: TrainingArguments) -> dict[str, Any]:
    """Returns the options that decide which examples make a batch."""
    seed = args.seed if args.data_seed is None else args.data_seed
    return {"max_tokens": getattr(args, "max_tokens", None), "seed": seed}


def _course_of_steps(args: TrainingArguments) -> dict[str, Any]:
    values = {name: getattr(args, name) for name in _COURSE}
    return {name: getattr(value, "value", value) for name, value in values.items()}


def _warn_of_changes(own: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Tells what a resumed training does differently, so that it is not exact."""
    course = [
        f"`{name}` ({saved[name]}, now {own[name]})"
        for name in _COURSE
        if name in saved and own[name] != saved[name]
    ]
    if course:
        logger.warning(
            f"Before this resumption, the training had other {' and '.join(course)}. The rest of "
            "the training follows the new values."
        )
    names = {"train": "training data", "max_tokens": "`max_tokens`", "seed": "`seed`"}
    changed = [name for name in names if name in saved and own.get(name) != saved[name]]
    if not changed:
        return
    told = [
        names[name] if name == "train" else f"{names[name]} ({saved[name]}, now {own.get(name)})"
        for name in changed
    ]
    logger.warning(
        f"Before this resumption, the training had other {' and '.join(told)}. The rest of its "
        "epoch may repeat some examples and leave out others. To train on other data, give "
        "`--model_name_or_path` and another directory."
    )


def _saved_attributes(callbacks: Mapping[str, Any]) -> dict[str, Any]:
    saved = callbacks.get(TrainingRecord.__name__)
    return dict(saved.get("attributes", {})) if isinstance(saved, dict) else {}


def leads_to(earlier: Path, later: Path) -> bool:
    """Returns whether the training of one checkpoint went on to another one, by their records.

    Args:
        earlier: A complete checkpoint.
        later: A complete checkpoint with a higher number, or the directory of a finished run.

    Returns:
        False also if one of them has no record.
    """
    first, second = (read_record(folder).get("processes") for folder in (earlier, later))
    if not first or not second:
        return False
    return _is_start(first, second, checkpoint_step(earlier))


def of_one_training(found: Sequence[Path], processes: list[list[Any]]) -> list[Path]:
    """Selects the checkpoints from which a training went on, by their records.

    Args:
        found: Complete checkpoints.
        processes: The record's processes of the training; empty: there is no record.

    Returns:
        The checkpoints of the training; all of them if it has no record. A checkpoint without a
        record, from an earlier version, counts.
    """
    if not processes:
        return list(found)
    selected = []
    for path in found:
        first = read_record(path).get("processes")
        if not first or _is_start(first, processes, checkpoint_step(path)):
            selected.append(path)
    return selected


def younger_checkpoint(found: Sequence[Path]) -> Path | None:
    """Finds a checkpoint that is younger than the last one and belongs to another training.

    Args:
        found: Complete checkpoints, sorted by their numbers, at least one.

    Returns:
        The youngest such checkpoint; None: the last one is also the newest of its training.
    """
    last = found[-1]
    others = [path for path in found[:-1] if not leads_to(path, last) and _is_younger(path, last)]
    return max(others, key=written_at, default=None)


def _is_younger(path: Path, other: Path) -> bool:
    """Returns whether a checkpoint is younger than one of another training.

    A training that goes on from a step of the other one, in a process of its own, is younger,
    whatever the clock said. Only trainings with nothing in common are compared by their times.
    """
    first, second = (read_record(folder).get("processes", []) for folder in (path, other))
    if first and second and first != second:
        if second == first[: len(second)]:
            return True
        if first == second[: len(first)]:
            return False
    return written_at(path) > written_at(other)


def _is_start(first: list[list[Any]], second: list[list[Any]], step: int) -> bool:
    """Returns whether the processes up to a step are the same."""
    return [process for process in second if process[0] < step] == first


def written_at(checkpoint: Path) -> int:
    """Returns the time at which a complete checkpoint was completed, in nanoseconds."""
    return (checkpoint / TRAINER_STATE).stat().st_mtime_ns
