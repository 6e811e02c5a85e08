"""What a training would be: its first steps are timed, in a directory that is deleted."""

from contextlib import suppress
from statistics import fmean
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback, TrainerState

from vanilla_transformer.progress import print_message
from vanilla_transformer.run import training_run
from vanilla_transformer.run.parsing import RunArguments

_STEPS = 10


class _EnoughStepsError(Exception):
    """Ends a dry run."""


class _StepClock(TrainerCallback):
    """Times the first steps of a training, of at most one epoch, and ends it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.max_steps = 0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Starts the clock; called by Trainer."""
        self._begun = monotonic()

    def on_step_end(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Reads the clock; called by Trainer."""
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        self.seconds.append(monotonic() - self._begun)
        self.max_steps = state.max_steps
        if state.global_step in (_STEPS, state.max_steps) or (state.epoch or 0) >= 1:
            raise _EnoughStepsError


def dry_run(arguments: RunArguments) -> None:
    """Says what would be trained, how large it is and how long it takes; keeps nothing."""
    clock, alone = _StepClock(), {"push_to_hub": False, "report_to": "none", "disable_tqdm": True}
    with TemporaryDirectory() as folder, suppress(_EnoughStepsError):
        kept_nowhere = {**alone, "output_dir": folder, "resume_from_checkpoint": None}
        training_run.run(arguments.with_options(**kept_nowhere), callbacks=[clock])
    if clock.seconds and arguments.training.process_index == 0:
        seconds = fmean(clock.seconds[1:] or clock.seconds)  # the first one makes ready
        time = tqdm.format_interval(seconds * clock.max_steps)
        print_message(
            f"{clock.max_steps:,} steps of {seconds:.3g} seconds take {time}; evaluations come on "
            "top. Nothing is kept of this dry run."
        )
