"""A record in each checkpoint of what the training has done before."""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from vanilla_transformer.training.checkpoints import checkpoint_step, read_trainer_state


class TrainingRecord(TrainerCallback, ExportableState):
    """Keeps the time and the loss of a training, and its resumptions, in the checkpoints.

    Attributes:
        processes: First step and random name of each process that has continued the training.
        num_processes: Number of processes that train at the same time.
        seconds: Time of the training up to the last call of `update`.
        loss: Sum of the losses of all steps up to the last call of `update`.
        seconds_before: Time of the training before this process.
        loss_before: Sum of the losses of the steps before this process.
    """

    def __init__(self) -> None:
        self.processes: list[list[Any]] = []
        self.num_processes = 1
        self.seconds = self.loss = self.seconds_before = self.loss_before = 0.0
        self._started = time.time()

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
        self.num_processes = args.world_size
        self.seconds = self.seconds_before = saved.get("seconds", 0.0)
        self.loss = self.loss_before = saved.get("loss", 0.0)
        self._started = time.time()
        states[type(self).__name__] = self.state()

    def update(self, loss: float) -> None:
        """Brings the record up to date.

        Args:
            loss: Sum of the losses of the steps of this process.
        """
        self.seconds = self.seconds_before + time.time() - self._started
        self.loss = self.loss_before + loss

    def state(self) -> dict[str, Any]:
        """Returns what the checkpoint keeps; called by Trainer."""
        names = ("processes", "num_processes", "seconds", "loss")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}


def read_record(folder: Path) -> dict[str, Any]:
    """Reads the record in a checkpoint or at the end of a run.

    Args:
        folder: Directory of the checkpoint or of the run.

    Returns:
        The record's saved attributes; empty if an earlier version wrote the state.
    """
    return _saved_attributes(read_trainer_state(folder).get("stateful_callbacks", {}))


def _saved_attributes(callbacks: Mapping[str, Any]) -> dict[str, Any]:
    saved = callbacks.get(TrainingRecord.__name__)
    return dict(saved["attributes"]) if isinstance(saved, dict) else {}


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
    step = checkpoint_step(earlier)
    return bool([process for process in second if process[0] < step] == first)
