"""A training that ends in time, on a machine that may become slower."""

from bisect import bisect_right
from math import inf
from time import monotonic
from typing import Any, cast

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import IntervalStrategy

from vanilla_transformer.names import SCHEDULES_OF_A_SCORE

_PLANS = 50
"""How often a training plans the steps that are left."""
_SHARE_OF_THE_LAST = 0.3
"""Share of the steps since the last plan in the mean time of a step; those before have the rest.

Both numbers are chosen, not measured: a change of speed is half seen after 4% of a training.
"""


def evaluations_of(steps: int, every: float) -> int:
    """Returns how many evaluations a training has: none comes shortly before the last one."""
    return max(0, int(steps / every - 0.5)) + 1


class Deadline(TrainerCallback, ExportableState):
    """Gives a training as many of its steps as end in time.

    The steps pass over the schedule of the learning rate, which has `args.max_steps` steps: where
    fewer fit, some pass over several steps of it, so that the training ends with the same rate.
    Trainer's `state.max_steps` is the number of steps that fit at present. Where `eval_steps`,
    `save_steps` and `logging_steps` are shares of a training, they are shares of the schedule. A
    checkpoint has the plan of its moment, so that a training that is resumed from there ends with
    it.

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
        self.length = self.passed = self.max_steps = 0  # steps: of the schedule, of it so far, all
        self._seconds, self._steps = 0.0, 0  # since the last plan
        self._step_ended = self._ready = 0.0  # moments; ready: after an evaluation, too

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps; called by Trainer."""
        return {"args": {}, "attributes": {"passed": self.passed, "max_steps": self.max_steps}}

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Begins a plan, or goes on with that of the checkpoint; called by Trainer."""
        self.length, self.passed = state.max_steps, state.global_step
        counts, name = cast(dict[str, Any], state.stateful_callbacks), type(self).__name__
        if state.global_step and isinstance(saved := counts.get(name), dict):
            self.passed = saved["attributes"]["passed"]
            state.max_steps = saved["attributes"]["max_steps"]
        self.max_steps = state.max_steps
        self._step_ended = self._ready = monotonic()
        self._plan(args, state)
        counts[name] = self.state()

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **given: Any) -> None:
        """Plans the steps that are left, and moves the schedule on; called by Trainer."""
        now = monotonic()
        self._seconds, self._steps = self._seconds + now - self._ready, self._steps + 1
        self._step_ended = self._ready = now
        before, self.passed = self.passed, self.passed + 1
        if state.global_step >= state.max_steps:
            return
        if self._steps >= self.length / _PLANS:
            seconds = self._seconds / self._steps
            self.seconds_per_step += _SHARE_OF_THE_LAST * (seconds - self.seconds_per_step)
            self._plan(args, state)
        left = state.max_steps - state.global_step
        for _step in range(round((self.length - self.passed) / left) - 1):
            self.passed += 1
            if args.lr_scheduler_type not in SCHEDULES_OF_A_SCORE:  # they step when they see one
                given["lr_scheduler"].step()
        if control.should_training_stop:  # at a signal, whose checkpoint stays
            return
        self._count_shares(args, state, control, before)
        is_near = left < self._steps_between_evaluations(args, state) / 2
        if control.should_evaluate and is_near:
            control.should_evaluate = control.should_save = False  # with the last one instead

    def _count_shares(self, args: Any, state: TrainerState, control: Any, before: int) -> None:
        """Decides what comes after a step, where shares of a training tell it."""

        def is_due(strategy: str, share: float | None) -> bool | None:
            if strategy != IntervalStrategy.STEPS or share is None or share >= 1:
                return None  # Trainer has decided it
            every = share * self.length
            return before // every < self.passed // every

        if (is_logged := is_due(args.logging_strategy, args.logging_steps)) is not None:
            control.should_log |= is_logged
        if (is_scored := is_due(args.eval_strategy, args.eval_steps)) is not None:
            control.should_evaluate = is_scored and args.eval_delay <= state.global_step
        if (is_saved := is_due(args.save_strategy, args.save_steps)) is not None:
            control.should_save = is_saved

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Times an evaluation; called by Trainer."""
        self._ready = monotonic()
        self.per_evaluation = self._ready - self._step_ended

    on_save = on_evaluate  # it comes after the evaluation

    def _plan(self, args: Any, state: TrainerState) -> None:
        """Plans as many steps as end in time, of those that the schedule has left."""
        self._seconds, self._steps = 0.0, 0
        done, every = state.global_step, self._steps_between_evaluations(args, state)
        if self.until == inf or done >= state.max_steps:
            return

        def seconds_of(steps: int) -> float:
            evaluations = max(1, evaluations_of(done + steps, every) - done // every)
            return steps * self.seconds_per_step + evaluations * self.per_evaluation

        possible, seconds = range(1, self.length - self.passed + 1), self.until - monotonic()
        fitting = bisect_right(possible, seconds, key=seconds_of)
        fitting = gather_object([fitting])[0]  # that of the main process
        self.max_steps = state.max_steps = done + max(1, fitting)

    def _steps_between_evaluations(self, args: Any, state: TrainerState) -> float:
        """Returns how many steps lie between two evaluations."""
        if args.eval_strategy == IntervalStrategy.STEPS:
            is_share = args.eval_steps < 1
            return float(args.eval_steps * state.max_steps if is_share else state.eval_steps)
        steps_of_an_epoch = self.length / state.num_train_epochs
        return steps_of_an_epoch if args.eval_strategy == IntervalStrategy.EPOCH else inf
