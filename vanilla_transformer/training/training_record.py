"""A record in each checkpoint of what the training has done, and what may change before it goes on.

`CHANGES` is the table of what a resumed training compares, and `list_changes` its only reader.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import logging

from vanilla_transformer.names import MUON, NOAM, SCHEDULES_OF_A_SCORE
from vanilla_transformer.training.checkpoints import needed_files, read_checkpoint, saved_record

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
SCORES = "Its last checkpoint is scored again."


@dataclass(frozen=True)
class Change:
    """Something that may have changed since a checkpoint was saved.

    Attributes:
        field: Its name in the record; or that of a setting in the state of the optimizer or of the
            schedule, after "optimizer.", "muon." or "schedule.".
        label: Its name in messages, that of an option in backticks.
        effects: What a change leads to: an error (`KEPT`), a warning when the training
            goes on (`COURSE`, `ORDER`), or new scores of a finished run (`SCORES`).
    """

    field: str
    label: str
    effects: tuple[str, ...]


CHANGES = (
    Change("optimizer.initial_lr", "`learning_rate`", (KEPT,)),
    Change("optimizer.weight_decay", "`weight_decay`", (KEPT,)),
    Change("optimizer.betas", "`adam_beta1`, `adam_beta2`", (KEPT,)),
    Change("optimizer.eps", "`adam_epsilon`", (KEPT,)),
    Change("muon.algorithm", "`optim`", (KEPT,)),
    Change("muon.initial_lr", "`muon_learning_rate`", (KEPT,)),
    Change("muon.momentum", "`muon_momentum`", (KEPT,)),
    Change("muon.weight_decay", "`weight_decay`", (KEPT,)),
    Change("schedule.warmup_steps", "`warmup_steps`", (KEPT,)),
    *(
        Change(f"schedule.{name}", f"`lr_scheduler_kwargs` {name}", (KEPT,))
        for name in ("factor", "d_model", "patience", "threshold", "min_lrs", "cooldown")
    ),
    Change("learning_rate", "`learning_rate`", (KEPT,)),
    Change("best", "`metric_for_best_model`", (KEPT,)),
    Change("lr_scheduler_type", "`lr_scheduler_type`", (COURSE,)),
    Change("warmup_steps", "`warmup_steps`", (COURSE,)),
    Change("max_steps", "`max_steps`", (COURSE,)),
    Change("max_grad_norm", "`max_grad_norm`", (COURSE,)),
    Change("gradient_accumulation_steps", "`gradient_accumulation_steps`", (COURSE,)),
    Change("num_processes", "number of processes", (COURSE,)),
    Change("max_tokens", "`max_tokens`", (ORDER,)),
    Change("seed", "`seed`", (ORDER,)),
    Change("max_source_length", "`max_source_length`", (ORDER, SCORES)),
    Change("max_target_length", "`max_target_length`", (ORDER, SCORES)),
    Change("train", "training data", (ORDER,)),
    Change("shares", "shares of the corpora", (ORDER,)),
    Change("validation", "validation data", (COURSE, SCORES)),
    Change("test", "test data", (SCORES,)),
    Change("search", "search settings", (SCORES,)),
)
_WITHOUT_VALUES = ("train", "validation", "test", "search")  # digests, and a long text
_OF_ANY_LENGTH = (
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    NOAM,
    *SCHEDULES_OF_A_SCORE,
)
"""Schedules that do not depend on the number of steps."""


def list_changes(own: Mapping[str, Any], saved: Mapping[str, Any], effect: str) -> str:
    """Lists what has changed since a checkpoint was saved, with both values.

    Args:
        own: Values of this training, by the fields of `CHANGES`. Other names are ignored.
        saved: Values of the checkpoint. What it does not have has not changed.

    Returns:
        For example "`seed` (42, now 7), training data"; "" without a change.
    """
    changed = [
        row.label
        if row.field in _WITHOUT_VALUES
        else f"{row.label} ({saved[row.field]}, now {own[row.field]})"
        for row in CHANGES
        if effect in row.effects
        and row.field in own.keys() & saved.keys()
        and own[row.field] != saved[row.field]
    ]
    return ", ".join(changed)


class TrainingRecord(TrainerCallback, ExportableState):
    """Keeps the time and the loss of a training, and what decides its course, in the checkpoints.

    Attributes:
        training: Random name of the training, which a resumption keeps.
        first_step: The step after which the record begins; 0 unless the checkpoint had none.
        resumed_step: The step after which this process has begun.
        seconds: Time of the training up to the last call of `update`.
        loss: Sum of the losses of all steps up to the last call of `update`.
        inputs: What decides the course of the training, by the fields of `CHANGES`: the options,
            and what the run adds, such as digests of its texts.
        folder: Directory of the checkpoint that is being saved, whose files `state` lists.
    """

    def __init__(self) -> None:
        self.training = ""
        self.first_step = self.resumed_step = 0
        self.seconds = self.loss = self.seconds_before = self.loss_before = 0.0
        self.inputs: dict[str, Any] = {}
        self.folder: Path | None = None
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
        for effect in (COURSE, ORDER):
            if changed := list_changes(self.inputs, inputs, effect):
                logger.warning(f"Since the checkpoint was saved, {changed} changed. {effect}")
        self.seconds = self.seconds_before = saved.get("seconds", 0.0)
        self.loss = self.loss_before = saved.get("loss", 0.0)
        self._started = time.monotonic()
        states[type(self).__name__] = self.state()

    def update(self, loss: float) -> None:
        """Brings the record up to date with the sum of the losses of this process's steps."""
        self.seconds = self.seconds_before + time.monotonic() - self._started
        self.loss = self.loss_before + loss

    def state(self) -> dict[str, Any]:
        """Returns what the checkpoint keeps; called by Trainer."""
        names = ("training", "first_step", "seconds", "loss", "inputs")
        attributes = {name: getattr(self, name) for name in names}
        files = [] if self.folder is None else needed_files(self.folder)
        return {"args": {}, "attributes": {**attributes, "files": [path.name for path in files]}}


def _inputs_of(args: TrainingArguments, max_steps: int) -> dict[str, Any]:
    schedule = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
    named = ("learning_rate", "warmup_steps", "max_grad_norm", "gradient_accumulation_steps")
    watched = args.metric_for_best_model
    follows_length = (
        schedule not in _OF_ANY_LENGTH or 0 < args.warmup_steps < 1  # a share of the steps
    )
    return {
        **{name: getattr(args, name) for name in named},
        "lr_scheduler_type": schedule,
        "num_processes": args.world_size,
        "max_tokens": getattr(args, "max_tokens", None),
        "seed": args.seed if args.data_seed is None else args.data_seed,
        **({"max_steps": max_steps} if follows_length else {}),
        **({"best": watched.removeprefix("eval_")} if watched is not None else {}),
    }


# The states of the optimizer and of the schedule -------------------------------------------------


@contextmanager
def checked_settings(
    optimizer: torch.optim.Optimizer, schedule: Any, learning_rate: float, path: str
) -> Iterator[None]:
    """Refuses settings that loading a checkpoint, inside, replaces by others.

    The schedules that follow a score change the rate itself. Only the record tells with which
    `learning_rate` such a training began.
    """
    given = _group_settings(optimizer), _schedule_settings(schedule)
    with readable_state(path):
        yield
    loaded = _group_settings(optimizer), _schedule_settings(schedule)
    changes = [list_changes(given[1], loaded[1], KEPT)]
    for own, saved in zip(given[0], loaded[0], strict=True):
        if own.keys() - saved.keys() and saved.keys() - own.keys():
            raise ValueError(
                f"The state in {path!r} is that of another optimizer, which has the settings "
                f"{sorted(saved)}: resume with the `--optim` of the training."
            )
        kind = "muon" if own.get("algorithm") == MUON else "optimizer"
        both = [{f"{kind}.{name}": group[name] for name in group} for group in (own, saved)]
        changes.append(list_changes(both[0], both[1], KEPT))
    if "initial_lr" not in given[0][0]:
        recorded = read_checkpoint(path).record.get("inputs", {})
        changes.append(list_changes({"learning_rate": learning_rate}, recorded, KEPT))
    if changes := [text for text in dict.fromkeys(changes) if text]:
        raise ValueError(f"Since {path!r} was saved, {', '.join(changes)} changed. {KEPT}")


def _group_settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Returns the settings of each parameter group by their names there."""
    return [
        {
            name: value.item() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


def _schedule_settings(schedule: Any) -> dict[str, Any]:
    return {f"schedule.{name}": value for name, value in vars(schedule).items()}


@contextmanager
def readable_state(
    path: str, files: str = "optimizer.pt or scheduler.pt", cause: str = "another `--optim`"
) -> Iterator[None]:
    """Explains that files of a checkpoint are damaged, or else belong to `cause`.

    Raises:
        ValueError: In place of the errors of torch.
    """
    try:
        yield
    except Exception as error:  # the unpickler raises errors of any type on damaged bytes
        raise ValueError(
            f"{files} in {path!r} cannot be loaded ({error}): it is damaged, or belongs to "
            f"{cause}. Use an earlier checkpoint, or the options of the training."
        ) from error
