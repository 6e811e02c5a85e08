"""A record in each checkpoint of what the training has done, and what may change before it goes on.

`TRACKED_SETTINGS` is the table of what a resumed training compares, and `list_changes` its only
reader.
"""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from accelerate.state import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import logging

from vanilla_transformer.names import MUON, NOAM, SCHEDULES_OF_A_SCORE
from vanilla_transformer.training.checkpoints import (
    delete_old_checkpoints,
    saved_record,
    write_checksums,
)

logger = logging.get_logger(__name__)

KEPT = (
    "A resumed training keeps what its checkpoint has: give the former value, or train the model "
    "further, in another directory, with `--model_name_or_path`."
)
COURSE = "The rest of the training follows the new value, unlike an uninterrupted training."
ORDER = (
    "The rest of its epoch may repeat some examples and leave out others. To train on other data, "
    "give `--model_name_or_path` and another directory."
)
SCORES = "The scores are those of the new value."

TRACKED_SETTINGS = {
    **dict.fromkeys(("optim", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2"), KEPT),
    **dict.fromkeys(("adam_epsilon", "muon_learning_rate", "muon_momentum"), KEPT),
    **dict.fromkeys(("lr_scheduler_kwargs", "metric_for_best_model"), KEPT),
    **dict.fromkeys(("lr_scheduler_type", "warmup_steps", "max_steps"), COURSE),
    **dict.fromkeys(("max_grad_norm", "gradient_accumulation_steps"), COURSE),
    **dict.fromkeys(("number of processes", "validation data"), COURSE),
    **dict.fromkeys(("max_tokens", "seed", "max_source_length", "max_target_length"), ORDER),
    **dict.fromkeys(("train data", "shares of the corpora"), ORDER),
    **dict.fromkeys(("test data", "search settings"), SCORES),
}
"""What may have changed since a checkpoint was saved, and what a change leads to.

`KEPT` is an error; the others are warnings when the training goes on.
"""
_WITHOUT_VALUES = ("train data", "validation data", "test data", "search settings")
_KEEP_THEIR_OPTIONS = (NOAM, *SCHEDULES_OF_A_SCORE)
"""Schedules that are resumed with the options of the checkpoint."""
_OF_ANY_LENGTH = ("constant", "constant_with_warmup", "inverse_sqrt", *_KEEP_THEIR_OPTIONS)
"""Schedules that do not depend on the number of steps."""


def list_changes(current: Mapping[str, Any], saved: Mapping[str, Any], effect: str) -> str:
    """Lists what has changed since a checkpoint was saved, with both values.

    Args:
        current: Values of this training, by the names in `TRACKED_SETTINGS`.
        saved: Values of the checkpoint. What it does not have has not changed.

    Returns:
        For example "`seed` (42, now 7), training data"; "" without a change.
    """
    changed = []
    for name, its_effect in TRACKED_SETTINGS.items():
        is_known = name in current and name in saved
        if its_effect == effect and is_known and current[name] != saved[name]:
            label = name if " " in name else f"`{name}`"  # an option
            values = f" ({saved[name]}, now {current[name]})"
            changed.append(label if name in _WITHOUT_VALUES else label + values)
    return ", ".join(changed)


class TrainingRecord(TrainerCallback, ExportableState):
    """Keeps the time and the loss of a training, and what decides its course, in the checkpoints.

    Attributes:
        training: Random name of the training, which a resumption keeps.
        first_step: The step after which the record begins; 0 unless the checkpoint had none.
        resumed_step: The step after which this process has begun.
        seconds: Time of the training up to the last call of `update`.
        loss: Sum of the losses of all steps up to the last call of `update`.
        inputs: What decides the course of the training, by the names in `TRACKED_SETTINGS`: the
            options, and what the run adds, such as digests of its texts.
        folder: Directory of the checkpoint that is being saved.
    """

    def __init__(self) -> None:
        self.training = ""
        self.first_step = self.resumed_step = 0
        self.seconds = self.loss = self.seconds_before = self.loss_before = 0.0
        self.inputs: dict[str, Any] = {}
        self.folder = Path()
        self._started = time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restores the record of the checkpoint, if the run is resumed; called by Trainer."""
        states = cast("dict[str, Any]", state.stateful_callbacks)
        step = self.resumed_step = state.global_step
        saved = saved_record(states) if step else {}
        self.training = saved.get("training") or secrets.token_hex(8)
        self.first_step = saved.get("first_step", 0 if saved else step)
        self.inputs |= _inputs_of(args, state.max_steps)
        inputs = saved.get("inputs", {})
        if changed := list_changes(self.inputs, inputs, KEPT):
            raise ValueError(f"Since the checkpoint was saved, {changed} changed. {KEPT}")
        for effect in (COURSE, ORDER, SCORES):
            if changed := list_changes(self.inputs, inputs, effect):
                logger.warning(f"Since the checkpoint was saved, {changed} changed. {effect}")
        self.seconds = self.seconds_before = saved.get("seconds", 0.0)
        self.loss = self.loss_before = saved.get("loss", 0.0)
        self._started = time.monotonic()
        states[type(self).__name__] = self.state()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Completes a checkpoint by its checksums, and only then deletes older ones.

        Trainer calls it; other callbacks have added their files before.
        """
        PartialState().wait_for_everyone()  # each process writes files of its own
        if args.should_save:
            write_checksums(self.folder)
            if args.save_total_limit:
                best = state.best_model_checkpoint
                delete_old_checkpoints(self.folder, args.save_total_limit, best)

    def update(self, loss: float) -> None:
        """Brings the record up to date with the sum of the losses of this process's steps."""
        self.seconds = self.seconds_before + time.monotonic() - self._started
        self.loss = self.loss_before + loss

    def state(self) -> dict[str, Any]:
        """Returns what the checkpoint keeps; called by Trainer."""
        names = ("training", "first_step", "seconds", "loss", "inputs")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}


def _inputs_of(args: TrainingArguments, max_steps: int) -> dict[str, Any]:
    """Returns the options that decide the course of a training, by their names."""
    optimizer, schedule = (
        getattr(kind, "value", kind) for kind in (args.optim, args.lr_scheduler_type)
    )
    names = ["learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"]
    names += ["max_grad_norm", "gradient_accumulation_steps", "warmup_steps"]
    if optimizer == MUON:
        names += ["muon_learning_rate", "muon_momentum"]
    inputs = {
        **{name: getattr(args, name) for name in names},
        "optim": optimizer,
        "lr_scheduler_type": schedule,
        "lr_scheduler_kwargs": args.lr_scheduler_kwargs or {},
        "number of processes": args.world_size,
        "max_tokens": getattr(args, "max_tokens", None),
        "seed": args.seed if args.data_seed is None else args.data_seed,
    }
    if schedule in _KEEP_THEIR_OPTIONS:
        warmup = {"warmup_steps": inputs.pop("warmup_steps")}
        inputs["lr_scheduler_kwargs"] = {**warmup, **inputs["lr_scheduler_kwargs"]}
    if schedule not in _OF_ANY_LENGTH or 0 < args.warmup_steps < 1:  # a share of the steps
        inputs["max_steps"] = max_steps
    if (watched := args.metric_for_best_model) is not None:
        inputs["metric_for_best_model"] = watched.removeprefix("eval_")
    return inputs
