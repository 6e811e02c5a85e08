"""A training that ends in time, on a machine that may become slower."""

from bisect import bisect_right
from math import ceil, inf
from time import monotonic
from typing import Any, cast

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging

from vanilla_transformer.names import SCHEDULES_OF_A_SCORE

logger = logging.get_logger(__name__)

_PLANS = 50
"""How often a training plans the steps that are left."""
_SHARE_OF_THE_LAST = 0.3
"""Share of the steps since the last plan in the mean time of a step; those before have the rest.

Both numbers are chosen, not measured: a change of speed is half seen after 4% of a training.
"""
_NOTABLE = 0.95  # share of the steps below which a training says that it was shorter


class Deadline(TrainerCallback, ExportableState):
    """Shortens a training that would end too late.

    The steps that are left then pass over the rest of the learning rate's schedule, each over more
    than one step of it, so that a shortened training ends with the same rate. Trainer's
    `state.max_steps` is the number of steps that fit at present, never more than at the beginning.
    A checkpoint has the plan of its moment, so that a training that is resumed from there ends
    with it.

    Args:
        until: The moment at which the training ends, as `time.monotonic()`. inf: no moment.
        seconds_per_step: How long a step takes, as timed before.
        per_evaluation: How long an evaluation and a checkpoint take together, as timed before, in
            seconds.
    """

    def __init__(
        self, until: float = inf, seconds_per_step: float = 0.0, per_evaluation: float = 0.0
    ) -> None:
        self.until = until
        self.seconds_per_step, self.per_evaluation = seconds_per_step, per_evaluation
        self.passed = self.max_steps = 0

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps; called by Trainer."""
        return {"args": {}, "attributes": {"passed": self.passed, "max_steps": self.max_steps}}

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Begins a plan, or goes on with that of the checkpoint; called by Trainer."""
        self.length, self.passed = state.max_steps, state.global_step  # of the schedule
        counts, name = cast(dict[str, Any], state.stateful_callbacks), type(self).__name__
        if state.global_step and isinstance(saved := counts.get(name), dict):
            self.passed = saved["attributes"]["passed"]
            state.max_steps = saved["attributes"]["max_steps"]
        self.max_steps = state.max_steps
        counts[name] = self.state()
        self._step_ended = self._ready = monotonic()
        self._seconds, self._steps = 0.0, 0  # since the last plan

    def on_step_end(self, args: Any, state: TrainerState, *_: Any, **given: Any) -> None:
        """Plans the steps that are left, and moves the schedule on; called by Trainer."""
        now = monotonic()
        self._seconds, self._steps = self._seconds + now - self._ready, self._steps + 1
        self._step_ended = self._ready = now
        self.passed += 1
        if state.global_step >= state.max_steps:
            return
        if self._steps >= self.length / _PLANS and self.until < inf:
            seconds, self._seconds, self._steps = self._seconds / self._steps, 0.0, 0
            self.seconds_per_step += _SHARE_OF_THE_LAST * (seconds - self.seconds_per_step)
            fitting = gather_object([self._steps_until(now, args, state)])[0]  # of the main process
            self.max_steps = state.max_steps = state.global_step + max(1, fitting)
        share = (self.length - self.passed) / (state.max_steps - state.global_step)
        for _step in range(round(share) - 1):
            self.passed += 1
            if args.lr_scheduler_type not in SCHEDULES_OF_A_SCORE:  # they step when they see one
                given["lr_scheduler"].step()

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Times an evaluation; called by Trainer."""
        self._ready = monotonic()
        self.per_evaluation = self._ready - self._step_ended

    on_save = on_evaluate  # it comes after the evaluation

    def on_train_end(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Says how much shorter the training was; called by Trainer."""
        if state.global_step == state.max_steps < _NOTABLE * self.length:
            logger.info(
                f"The steps took longer than those that were timed: the training ends after "
                f"{state.global_step:,} of {self.length:,}."
            )

    def _steps_until(self, now: float, args: Any, state: TrainerState) -> int:
        """Returns how many of the steps that the schedule has left end in time."""
        done, every = state.global_step, inf
        if args.eval_strategy == IntervalStrategy.STEPS:
            every = state.eval_steps
        elif args.eval_strategy == IntervalStrategy.EPOCH:
            every = done / (state.epoch or inf)

        def seconds_of(steps: int) -> float:
            evaluations = ceil((done + steps) / every) - done // every
            return steps * self.seconds_per_step + evaluations * self.per_evaluation

        left = range(1, self.length - self.passed + 1)
        return bisect_right(left, self.until - now, key=seconds_of)
