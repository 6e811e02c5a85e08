"""The inputs that decide the course of a training: a resumption may change some of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from accelerate.state import PartialState
from transformers import TrainerCallback, TrainerState
from transformers.utils import logging

from vanilla_transformer.names import NOAM, SCHEDULES_OF_A_SCORE
from vanilla_transformer.training.store import (
    RECORD,
    Checkpoint,
    delete_old_checkpoints,
    write_file_sizes,
)
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

logger = logging.get_logger(__name__)

_MUST_EQUAL = (
    *("optim", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("muon_learning_rate", "muon_momentum", "lr_scheduler_kwargs", "metric_for_best_model"),
    *("ema_decay", "minutes", "`num_train_epochs` beside `minutes`"),
)
"""Inputs that a training takes from its checkpoint: another value is an error."""
_WARN_IF_CHANGED = (
    *("lr_scheduler_type", "warmup_steps", "max_grad_norm", "gradient_accumulation_steps"),
    *("number of processes", "max_tokens", "seed", "max_source_length", "max_target_length"),
    *("train data", "shares of the corpora", "validation data", "test data", "search settings"),
    "guided_alignment_weight",
)
"""Inputs that a resumed training takes anew: another value is a warning."""


def _tracked_options(args: TokenBudgetTrainingArguments) -> dict[str, Any]:
    """Returns the options that decide the course of a training, by their names."""
    names = (*_MUST_EQUAL, *_WARN_IF_CHANGED)
    options = {name: vars(args)[name] for name in names if name in vars(args)}
    options = {name: getattr(value, "value", value) for name, value in options.items()}
    options["seed"] = args.order_seed
    options["number of processes"] = args.world_size
    options["lr_scheduler_kwargs"] = args.lr_scheduler_kwargs or {}
    if options["lr_scheduler_type"] in (NOAM, *SCHEDULES_OF_A_SCORE):  # they keep their options
        warmup = {"warmup_steps": options.pop("warmup_steps")}
        options["lr_scheduler_kwargs"] = {**warmup, **options["lr_scheduler_kwargs"]}
    if (watched := options.pop("metric_for_best_model")) is not None:
        options["metric_for_best_model"] = watched.removeprefix("eval_")
    return options


class TrainingRecord(TrainerCallback):
    """Records in each checkpoint the inputs that decide the training, and completes it.

    Older checkpoints are deleted only then.

    Attributes:
        inputs: The inputs that decide the course of the training, by name: the options, and others
            of the run, such as digests of its texts.
        folder: Directory of the checkpoint that is being saved.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.inputs, self.folder = dict(inputs), Path()

    def compare(self, args: TokenBudgetTrainingArguments, checkpoint: Checkpoint) -> None:
        """Refuses or reports changes since a checkpoint was saved; of options, with both values.

        An input that the checkpoint does not have has not changed.
        """
        current, saved = {**self.inputs, **_tracked_options(args)}, checkpoint.inputs
        changed = [
            name
            for name in (*_MUST_EQUAL, *_WARN_IF_CHANGED)
            if name in current and name in saved and current[name] != saved[name]
        ]
        labels = (
            name if " " in name else f"`{name}` ({saved[name]}, now {current[name]})"
            for name in changed
        )
        sentence = f"Since the checkpoint was saved, {', '.join(labels)} changed."
        if {*changed} & {*_MUST_EQUAL}:
            raise ValueError(
                f"{sentence} A resumed training keeps the values of its checkpoint: give the "
                "former one, or train the model further, in another directory, with "
                "`--model-name-or-path`."
            )
        if changed:
            logger.warning(f"{sentence} The rest of the run differs from an uninterrupted run.")

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Adds the inputs to the state that each checkpoint keeps; called by Trainer."""
        self.inputs |= _tracked_options(args)
        cast("dict[str, Any]", state.stateful_callbacks)[RECORD] = self.inputs

    def on_save(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Completes a checkpoint; called by Trainer after the other callbacks."""
        PartialState().wait_for_everyone()  # each process writes files of its own
        if args.should_save:
            write_file_sizes(self.folder)
            if args.save_total_limit:
                best = state.best_model_checkpoint
                delete_old_checkpoints(self.folder, args.save_total_limit, best)
