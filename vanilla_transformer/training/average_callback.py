"""A callback that ends a training with the mean of its checkpoints."""

from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.utils import logging

from vanilla_transformer.training.checkpoint_selection import sort_by_score
from vanilla_transformer.training.checkpoints import checkpoint_step, checkpoints
from vanilla_transformer.training.mean_weights import average_weights
from vanilla_transformer.training.sharded_weights import refuse_sharded_weights
from vanilla_transformer.training.training_record import of_one_training, recorded_processes

logger = logging.get_logger(__name__)


class AverageCheckpoints(TrainerCallback):
    """Sets the weights of the model, at the end of the training, to the mean of checkpoints.

    The average is what is evaluated and saved afterwards, also if `load_best_model_at_end` loads
    another model. Checkpoints of another training in the same directory do not count. Vaswani et
    al. §6.1 average the last 5 checkpoints of a base model and the last 20 of a big one.

    Args:
        count: Number of checkpoints. If the run has fewer, all of them are averaged.
        best: Whether to average the best checkpoints by `metric_for_best_model` (or the loss)
            instead of the last ones.

    Raises:
        ValueError: If `count` is below 1. When the training begins: if it will not keep the
            checkpoints (`save_strategy`, `save_total_limit`), the checkpoints hold only adapters
            (peft), or the weights are sharded over processes.
    """

    def __init__(self, count: int, best: bool = False) -> None:
        if count < 1:
            raise ValueError(f"`count` is {count}: average at least 1 checkpoint.")
        self.count, self.best = count, best
        self._steps = set[int]()  # steps at which this training saved a checkpoint

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Checks that the training will keep checkpoints to average; called by Trainer."""
        refuse_sharded_weights(
            "AverageCheckpoints", "run `vanilla-transformer average` after the training"
        )
        if hasattr(model, "peft_config"):
            raise ValueError(
                "AverageCheckpoints averages whole models, but the checkpoints of this model hold "
                "only its adapters: train without AverageCheckpoints, or merge the adapters first."
            )
        if args.save_strategy == SaveStrategy.NO:
            raise ValueError(
                "`save_strategy` is 'no', so there will be no checkpoints to average: set it to "
                "steps or epoch."
            )
        if self.best and args.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "`eval_strategy` is 'no', but the best checkpoints need scores: set "
                "`eval_strategy` to the same value as `save_strategy`."
            )
        self._check_save_limit(args)
        found = of_one_training(checkpoints(str(args.output_dir)), recorded_processes(state))
        steps = map(checkpoint_step, found)
        self._steps = {number for number in steps if number <= state.global_step}

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Records that a checkpoint belongs to this training; called by Trainer."""
        self._steps.add(state.global_step)

    def _check_save_limit(self, args: TrainingArguments) -> None:
        """Refuses a limit with which Trainer would delete checkpoints before they are averaged."""
        limit = args.save_total_limit
        if limit is None:
            return
        if self.best:
            raise ValueError(
                f"`save_total_limit` is {limit}: Trainer then keeps the last checkpoints and the "
                f"best one, not the {self.count} best ones that are to be averaged; leave it out."
            )
        # Trainer keeps the best one in place of the oldest, even without load_best_model_at_end.
        needed = self.count + (args.metric_for_best_model is not None)
        if limit < needed:
            raise ValueError(
                f"`save_total_limit` is {limit}, but {self.count} checkpoints are to be averaged: "
                f"set it to at least {needed}, or leave it out."
            )

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Loads the average into the model; called by Trainer."""
        AcceleratorState().wait_for_everyone()  # the main process may still write a checkpoint
        chosen = self._choose_checkpoints(args, state)
        if model is None or not chosen:
            logger.warning("There is no checkpoint to average: the model stays as it is.")
            return
        if len(chosen) < self.count:
            logger.warning(f"The run has only {len(chosen)} of {self.count} checkpoints.")
        names = ", ".join(path.name for path in chosen)
        logger.info(f"The weights of the model become the mean of {names}.")
        weights = average_weights(chosen)
        with torch.no_grad():
            for name, value in model.state_dict(keep_vars=True).items():
                if name in weights:  # only one of several tied weights is saved
                    value.copy_(weights[name])

    def _choose_checkpoints(self, args: TrainingArguments, state: TrainerState) -> list[Path]:
        found = checkpoints(str(args.output_dir))
        found = [path for path in found if checkpoint_step(path) in self._steps]
        if self.best:
            metric = args.metric_for_best_model
            greater = args.greater_is_better if metric else None
            found = sort_by_score(found, state.log_history, metric or "loss", greater)
        return found[-self.count :]
