"""How many training steps fit into some minutes on this machine, and with how many threads."""

import os
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import DatasetDict
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.run.training_run import run

STEPS = 10
"""Steps that are made with each number of threads."""

UNTIMED_STEPS = 3
"""The first of them, which are slower: memory is allocated and threads start."""

_EXAMPLES = 20_000
_ALONE = (
    *("--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "False"),
    *("--do_eval", "False", "--do_predict", "False", "--report_to", "none"),
    *("--disable_tqdm", "True", "--resume_from_checkpoint", "False", "--overwrite", "True"),
)


@dataclass(frozen=True)
class Pace:
    """The speed of a training on this machine.

    Attributes:
        threads: The number of threads with which a step takes least time.
        examples: Examples of a step.
    """

    seconds: float
    threads: int
    examples: float

    def steps_in(self, minutes: float) -> int:
        """Returns how many steps fit into some minutes, at least 1."""
        return max(1, int(60 * minutes / self.seconds))


class StepClock(TrainerCallback):
    """Times `STEPS` steps with each of some numbers of threads.

    Attributes:
        seconds: Seconds of a step, by the number of threads.
        epoch: The part of the examples that all steps have seen.
    """

    def __init__(self, threads: Sequence[int]) -> None:
        self.threads = threads
        self.seconds = dict[int, float]()
        self.epoch = 0.0
        self._begin = 0.0

    @property
    def steps(self) -> int:
        """The number of all steps."""
        return STEPS * len(self.threads)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Sets the number of threads, and starts the clock; called by Trainer."""
        number, step = divmod(state.global_step, STEPS)
        if step == 0:
            torch.set_num_threads(self.threads[number])
        if step == UNTIMED_STEPS:
            self._begin = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Reads the clock after the last step of a number of threads; called by Trainer."""
        number, step = divmod(state.global_step, STEPS)
        if step == 0:
            seconds = time.perf_counter() - self._begin
            self.seconds[self.threads[number - 1]] = seconds / (STEPS - UNTIMED_STEPS)
        self.epoch = state.epoch or 0.0


def measure_pace(words: Sequence[str], data: DatasetDict) -> Pace:
    """Makes the first steps of a training, in a directory that is deleted, and times them.

    Args:
        data: Its data, of which some training examples are used.
    """
    count = min(_EXAMPLES, len(data["train"]))
    some = DatasetDict(train=data["train"].shuffle(seed=0).select(range(count)))
    clock, threads = StepClock(thread_counts()), torch.get_num_threads()
    silence = StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(silence), redirect_stderr(silence):
        length = ["--output_dir", folder, "--max_steps", str(clock.steps)]
        try:
            run(parse_arguments([*words, *_ALONE, *length]), some, [clock])
        finally:
            torch.set_num_threads(threads)
    fastest = min(clock.seconds, key=lambda number: clock.seconds[number])
    return Pace(clock.seconds[fastest], fastest, clock.epoch * count / clock.steps)


def thread_counts() -> list[int]:
    """Returns the numbers of threads to try: powers of 2 up to the physical cores, and these.

    With a GPU, or if the environment sets OMP_NUM_THREADS, there is no choice.
    """
    most = torch.get_num_threads()
    if torch.cuda.is_available() or "OMP_NUM_THREADS" in os.environ:
        return [most]
    return sorted({most, *(2**power for power in range(most.bit_length()))})
