"""Measures the speed of a run: the seconds of its steps, its evaluations and its last scores."""

from bisect import bisect_right
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from logging import Logger
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
import torch
from accelerate.utils import gather_object
from datasets import Dataset, DatasetDict
from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import IntervalStrategy

from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler
from vanilla_transformer.progress import without_messages
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.assembly import SCORED_WITHIN_MINUTES, Assembly
from vanilla_transformer.run.defaults import Sizes, choose_defaults
from vanilla_transformer.run.loaded_data import LoadedData
from vanilla_transformer.run.plan import PREFIXES, RunPlan, make_plan
from vanilla_transformer.run.tokenizer_and_config import tokenizer_sample
from vanilla_transformer.training.deadline import evaluations_of
from vanilla_transformer.training.store import OutputDirectory

_STEPS = 6
_STEPS_ON_A_GPU = 200
"""Smallest numbers of timed steps; a GPU has more, since it records a graph for each batch size."""
_SECONDS = 10.0
"""Smallest time of these steps, in seconds: with such numbers, a timing takes about a minute."""
TIMED_PAIRS = 10_000
"""Largest number of training pairs in the sample that the timed steps train on."""
_SCORED = 64
"""Largest number of texts whose scoring is timed, with outputs that are as long as allowed."""
_CHARACTERS_OF_A_TOKEN = 3
"""Rough number of characters in a subword, for two estimates of which only the ratio counts."""
_FINAL_SEARCH = 2
"""How much longer a text takes in the last scores than within the training.

Five beams took 2.8 times as long (Multi30k, after 160 steps), but outputs are half as long.
"""
_MOST_OF_SCORES = 0.1
"""Largest share of a time for the last scores, or for those of a sample; chosen, not measured."""

_TIMING_OPTIONS = {
    "minutes": None,
    "prepared": None,
    "resume_from_checkpoint": None,
    "push_to_hub": False,
    "report_to": "none",
    "disable_tqdm": True,
}
"""Options of the timed run, in place of the given ones."""


class _EnoughStepsError(Exception):
    """Ends a training when its steps are timed: Trainer's own stop might first score and save."""


class _StepClock(TrainerCallback):
    """Times the first steps of a training, in seconds, and then ends the training."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.max_steps, self.epoch = 0, 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Starts the clock; called by Trainer."""
        self._begun = self._read = monotonic()

    def on_step_end(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Reads the clock: a step begins with the end of the one before; called by Trainer."""
        on_cpu = args.device.type == "cpu"
        if not on_cpu:
            torch.accelerator.synchronize()
        now = monotonic()
        self.seconds.append(now - self._read)
        self._read = now
        self.max_steps, self.epoch = state.max_steps, state.epoch or 0.0
        is_enough = state.global_step >= (_STEPS if on_cpu else _STEPS_ON_A_GPU)
        is_enough = is_enough and now - self._begun >= _SECONDS
        # All processes end at the same step.
        if any(gather_object([is_enough])) or state.global_step == state.max_steps:
            raise _EnoughStepsError


class Timing(NamedTuple):
    """The times of a run on a sample, in seconds, and numbers of its training."""

    sample_ready: float  # until all texts of the sample are token ids
    steps: list[float]  # of each timed step
    epochs: float  # number in the timed steps
    max_steps: int  # number in the whole training of the sample
    per_text: float  # of a text that is scored within the training; 0: there is none


@dataclass(frozen=True)
class Pace:
    """The times of the parts of a run, in seconds, and its numbers of pairs and steps."""

    plan: RunPlan  # of the timed run on a sample
    num_pairs: int
    num_steps: int  # of all epochs
    pairs_per_step: float
    seconds_per_step: float
    until_ready: float  # until all texts are token ids
    per_evaluation: float  # of one within the training
    last_scores: float

    @classmethod
    def of(cls, plan: RunPlan, whole: DatasetDict, some: DatasetDict, timing: Timing) -> Self:
        """Estimates the times of a run on the whole data from the timing of a sample.

        A batch of all pairs holds more of them than one of the sample, since more pairs are of one
        length, and takes longer in proportion. The first step includes preparations.
        """
        ratio = len(whole["train"]) / len(some["train"])
        growth = 1.0
        if (max_tokens := plan.training.max_tokens) is not None:
            growth = _pairs_of_a_batch(whole["train"], max_tokens)
            growth /= _pairs_of_a_batch(some["train"], max_tokens)
        texts = {name: len(whole[name]) for name in PREFIXES if name in whole}
        num_steps: float = timing.max_steps  # as given
        if plan.training.max_steps <= 0:  # or by the epochs: more pairs, in fewer batches each
            num_steps *= ratio / growth
        return cls(
            plan=plan,
            num_pairs=len(whole["train"]),
            num_steps=round(num_steps),
            pairs_per_step=growth * len(some["train"]) * timing.epochs / len(timing.steps),
            seconds_per_step=growth * median(timing.steps[1:] or timing.steps),
            until_ready=timing.sample_ready * ratio,
            per_evaluation=timing.per_text * min(SCORED_WITHIN_MINUTES, texts.get("validation", 0)),
            last_scores=_FINAL_SEARCH * timing.per_text * sum(texts.values()),
        )

    def seconds_of(self, steps: int) -> float:
        """Returns the seconds that a run of `steps` steps takes, without its last scores."""
        training, count = self.plan.training, 0
        if training.eval_strategy == IntervalStrategy.EPOCH:
            count = evaluations_of(steps, self.num_pairs / self.pairs_per_step)
        elif training.eval_strategy == IntervalStrategy.STEPS:
            every = cast(float, training.eval_steps)
            count = evaluations_of(steps, every if every >= 1 else every * steps)
        return self.until_ready + steps * self.seconds_per_step + count * self.per_evaluation

    def epochs_of(self, steps: int) -> float:
        """Returns the number of epochs in `steps` steps."""
        return steps * self.pairs_per_step / self.num_pairs

    def without_last_scores(self, seconds: float) -> float:
        """Returns the part of a time, in seconds, that is not left for the last scores."""
        return seconds - min(self.last_scores, _MOST_OF_SCORES * seconds)

    def steps_within(self, seconds: float) -> int:
        """Returns the largest number of steps that fits into a time; 0: not even one does."""
        seconds = self.without_last_scores(seconds)
        return bisect_right(range(1, self.num_steps + 1), seconds, key=self.seconds_of)

    def describe(self, steps: int) -> str:
        """Describes the length of a training of `steps` steps, and the sizes of its model."""
        config, epochs = self.plan.texts.config, self.epochs_of(steps)
        return (
            f"{steps:,} {'step' if steps == 1 else 'steps'} of {self.seconds_per_step:.3g} seconds "
            f"({epochs:.3g} epochs), "
            f"{config.encoder_layers}+{config.decoder_layers} layers of width {config.d_model}"
        )


def measure_pace(arguments: RunArguments, loaded: LoadedData, sizes: Sizes) -> Pace:
    """Times a run on a sample of its pairs, and estimates the times of the whole run.

    A new model has the given sizes, unless options give others.
    """
    facts, some = replace(loaded.facts, sizes=sizes, has_time=True), _draw_sample(loaded.splits)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(without_messages())
        # The run itself shows the messages that are shown once.
        stack.callback(cast(Any, Logger).warning_once.cache_clear)
        chosen = choose_defaults(arguments.given, facts)
        arguments = arguments.changed(chosen, output_dir=folder, **_TIMING_OPTIONS)
        directory = OutputDirectory(Path(folder))
        texts = tokenizer_sample(some["train"], arguments.preparation.tokenizer_sample)
        timed = replace(loaded, directory=directory, splits=some, sample=texts)
        plan, timing = _time_sample(arguments, replace(timed, reports=(), shares=None))
    return Pace.of(plan, loaded.splits, some, timing)


def _draw_sample(splits: DatasetDict) -> DatasetDict:
    """Returns some pairs of each split: random ones of the training, the first of the others."""
    some = DatasetDict({**splits, "train": splits["train"].shuffle(seed=0)})
    for name, rows in some.items():
        most = TIMED_PAIRS if name == "train" else _SCORED
        some[name] = rows.select(range(min(most, len(rows))))
    return some


def _time_sample(arguments: RunArguments, loaded: LoadedData) -> tuple[RunPlan, Timing]:
    """Makes the plan of a run, trains its first steps, scores some texts, and times all three."""
    clock, began = _StepClock(), monotonic()
    assembly = Assembly.of(make_plan(arguments, loaded))
    ready = monotonic() - began
    assembly.trainer.add_callback(clock)
    with suppress(_EnoughStepsError):
        assembly.trainer.train()
    scored = [name for name in PREFIXES if name in loaded.splits]
    per_text = 0.0
    if scored:
        per_text = assembly.seconds_per_text(scored[0], _SCORED, with_intervals=False)
    timing = Timing(ready, clock.seconds, clock.epoch, clock.max_steps, per_text)
    return assembly.plan, gather_object([timing])[0]  # all processes use the times of the main one


def _pairs_of_a_batch(rows: Dataset, max_tokens: int) -> float:
    """Estimates the mean number of pairs in a batch."""
    batches = rows.select_columns(["source", "target"]).with_format("arrow").iter(100_000)
    lengths = [[pc.utf8_length(column) for column in batch.columns] for batch in batches]
    most = _CHARACTERS_OF_A_TOKEN * max_tokens
    source, target = (  # a run cuts off what is longer
        np.minimum(np.concatenate(side), most // 2) for side in zip(*lengths, strict=True)
    )
    return len(rows) / len(TokenBudgetBatchSampler(source, target, most))
