"""Learning rate schedules: the paper's, as a scheduler of torch, and options of others."""

import math
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType

from vanilla_transformer.names import MUON, SCHEDULES_OF_A_SCORE


def noam_rate(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Computes the learning rate of one step (Vaswani et al. §5.3, equation 3).

    The rate is factor · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5): it grows linearly
    for `warmup_steps` steps (4000 in the paper), then falls with the inverse square root of the
    step, which counts from 1.
    """
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


class NoamSchedule(LRScheduler):
    """Sets the learning rate of every parameter group to `noam_rate`.

    A group that Muon updates has its own rate at the end of the warm-up, and in proportion to it at
    all other steps.

    The learning rate of the optimizer is ignored. With the stock `Trainer`:
    `Trainer(..., optimizers=(optimizer, NoamSchedule(optimizer, d_model=512, warmup_steps=4000)))`.
    """

    def __init__(
        self, optimizer: Optimizer, d_model: int, warmup_steps: int, factor: float = 1.0
    ) -> None:
        self.d_model, self.warmup_steps, self.factor = d_model, warmup_steps, factor
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        """Returns the learning rate of the next update, once per parameter group."""
        options = (self.d_model, self.warmup_steps, self.factor)
        rate = noam_rate(self.last_epoch + 1, *options)
        peak = noam_rate(self.warmup_steps, *options)
        return [
            group["initial_lr"] * rate / peak if group.get("algorithm") == MUON else rate
            for group in self.optimizer.param_groups
        ]


def schedule_options(args: TrainingArguments, num_training_steps: int) -> dict[str, Any]:
    """Returns `lr_scheduler_kwargs` with defaults that transformers lacks.

    The decay of "warmup_stable_decay" is the last tenth of the training. Schedules that follow a
    score know whether a greater one is better.
    """
    options: dict[str, Any] = dict(args.lr_scheduler_kwargs or {})  # type: ignore[arg-type]
    if args.lr_scheduler_type == SchedulerType.WARMUP_STABLE_DECAY:
        after_warmup = num_training_steps - args.get_warmup_steps(num_training_steps)
        default = min(math.ceil(num_training_steps / 10), max(after_warmup, 1))
        options = {"num_decay_steps": default, **options}
    if args.lr_scheduler_type in SCHEDULES_OF_A_SCORE:
        options = {"mode": "max" if args.greater_is_better else "min", **options}
    return options
