"""How fast a run is on this machine, and what of its training fits into some minutes."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from logging import INFO, WARNING, Logger
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, cast

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
import torch
from accelerate.utils import gather_object
from datasets import Dataset, DatasetDict
from tqdm import tqdm
from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging

from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler
from vanilla_transformer.columns import distinct_directions
from vanilla_transformer.data.parallel_data import ParallelData
from vanilla_transformer.progress import without_messages
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.assembly import SCORED_WITHIN_MINUTES, Assembly
from vanilla_transformer.run.defaults import Sizes, choose_defaults, describe_choice
from vanilla_transformer.run.expectations import describe_expectation
from vanilla_transformer.run.loaded_data import LoadedData, load_data
from vanilla_transformer.run.plan import PREFIXES, RunPlan, make_plan
from vanilla_transformer.training.deadline import Deadline, evaluations_of
from vanilla_transformer.training.store import OutputDirectory

logger = logging.get_logger(__name__)

_STEPS, _STEPS_ON_A_GPU = 6, 200
"""The least steps that are timed; a GPU records the first step of each size of a batch."""
_SECONDS = 10.0
"""The least time of these steps.

These, `TIMED_PAIRS` and `_SCORED` are chosen so that a timing takes about a minute, not measured.
"""
TIMED_PAIRS = 10_000
"""Training pairs that the timed steps are drawn from."""
_SCORED = 64
"""Texts whose scoring is timed, within a training whose outputs are still as long as allowed."""
_CHARACTERS_OF_A_TOKEN = 3
"""As in subwords of European texts, roughly: it only compares two estimates of the same kind."""
_FINAL_SEARCH = 2
"""The last scores take this many times as long a text: five beams, and outputs half as long.

Measured on a model of Multi30k after 160 steps: 2.8 times as long as its own greedy search.
"""
_MOST_OF_SCORES = 0.1
"""Share of a given time that is left for the last scores at most.

Then a sample is scored (see `training_run`). It is chosen, not measured.
"""
_HEADROOM = 4
"""A training may have this many times the steps that fit, where the machine becomes faster.

It is chosen, not measured: it suffices where five other processes end.
"""
_MINUTES = (10, 30, 120)
"""The times for which a dry run says what would be trained."""


_TIMING_OPTIONS = {
    **dict.fromkeys(("minutes", "prepared", "resume_from_checkpoint")),
    **{"push_to_hub": False, "report_to": "none", "disable_tqdm": True},
}
"""Options of a run whose first steps are timed, in place of the given ones."""


class _EnoughStepsError(Exception):
    """Ends a training of which enough steps are timed."""


class _StepClock(TrainerCallback):
    """Times the first steps of a training, and ends it."""

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


@dataclass(frozen=True)
class Pace:
    """How long the parts of a run take; the times are in seconds."""

    plan: RunPlan  # of the timed trial run, which reads a sample of the pairs
    num_pairs: int
    num_steps: int  # of all epochs
    pairs_per_step: float
    seconds_per_step: float
    until_ready: float  # until all texts are token ids
    per_evaluation: float  # of one within the training
    last_scores: float

    def seconds_of(self, steps: int) -> float:
        """Returns how long a run takes that trains so many steps, without its last scores."""
        training, count = self.plan.training, 0
        if training.eval_strategy == IntervalStrategy.EPOCH:
            count = evaluations_of(steps, self.num_pairs / self.pairs_per_step)
        elif training.eval_strategy == IntervalStrategy.STEPS:
            every = cast(float, training.eval_steps)
            count = evaluations_of(steps, every if every >= 1 else every * steps)
        return self.until_ready + steps * self.seconds_per_step + count * self.per_evaluation

    def epochs_of(self, steps: int) -> float:
        """Returns how often so many steps see the pairs."""
        return steps * self.pairs_per_step / self.num_pairs

    def without_last_scores(self, seconds: float) -> float:
        """Returns what of a time is not for the last scores."""
        return seconds - min(self.last_scores, _MOST_OF_SCORES * seconds)

    def steps_within(self, seconds: float) -> int:
        """Returns how many steps fit into a time."""
        seconds = self.without_last_scores(seconds)
        return bisect_right(range(1, self.num_steps + 1), seconds, key=self.seconds_of)

    def describe(self, steps: int) -> str:
        """Says how long a training of so many steps is, and of which model."""
        config, epochs = self.plan.texts.config, self.epochs_of(steps)
        return (
            f"{steps:,} step{'s' * (steps != 1)} of {self.seconds_per_step:.3g} seconds "
            f"({epochs:.3g} epochs), "
            f"{config.encoder_layers}+{config.decoder_layers} layers of width {config.d_model}"
        )


def measure_pace(arguments: RunArguments, loaded: LoadedData, sizes: Sizes) -> Pace:
    """Plans a run on some of its pairs, and times the parts of this plan.

    A new model has the sizes where none are given.
    """
    splits, num_pairs = loaded.data.splits, len(loaded.data.splits["train"])
    count = min(TIMED_PAIRS, num_pairs)
    some = {"train": splits["train"].shuffle(seed=0).select(range(count))}
    scored = {name: len(splits[name]) for name in PREFIXES if name in splits}
    some |= {name: splits[name].select(range(min(_SCORED, scored[name]))) for name in scored}
    clock, began = _StepClock(), monotonic()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(without_messages())
        stack.callback(
            cast(Any, Logger).warning_once.cache_clear
        )  # the run itself tells what is told once
        arguments = arguments.changed(
            choose_defaults(arguments.given, replace(loaded.facts, sizes=sizes, has_time=True)),
            output_dir=folder,
            **_TIMING_OPTIONS,
        )
        data, directory = ParallelData(DatasetDict(some)), OutputDirectory(Path(folder))
        sample = replace(loaded, data=data, directory=directory)
        made = Assembly.of(make_plan(arguments, sample))
        ready = monotonic() - began
        made.trainer.add_callback(clock)
        with suppress(_EnoughStepsError):
            made.trainer.train()
        scoring = 0.0  # of a text, as within a training, since this one has not ended
        if scored:
            scoring = made.seconds_per_text(next(iter(scored)), _SCORED, with_intervals=False)
    growth = 1.0  # of a batch: of more pairs, more are of one length
    if (max_tokens := made.plan.training.max_tokens) is not None:
        of_some, of_all = (
            _pairs_of_a_batch(rows, max_tokens) for rows in (some["train"], splits["train"])
        )
        growth = of_all / of_some
    share = num_pairs / count / growth if made.plan.training.max_steps <= 0 else 1
    seconds = growth * median(clock.seconds[1:] or clock.seconds)  # the first step makes ready
    # All processes go on with the times of the main one.
    seconds, ready, scoring = gather_object([(seconds, ready, scoring)])[0]
    return Pace(
        plan=made.plan,
        num_pairs=num_pairs,
        num_steps=round(clock.max_steps * share),
        pairs_per_step=growth * count * clock.epoch / len(clock.seconds),
        seconds_per_step=seconds,
        until_ready=ready * num_pairs / count,
        per_evaluation=scoring * min(SCORED_WITHIN_MINUTES, scored.get("validation", 0)),
        last_scores=_FINAL_SEARCH * scoring * sum(scored.values()),
    )


def _pairs_of_a_batch(rows: Dataset, max_tokens: int) -> float:
    """Estimates how many pairs fill a batch: the more there are, the more are of one length."""
    batches = rows.select_columns(["source", "target"]).with_format("arrow").iter(100_000)
    lengths = [[pc.utf8_length(column) for column in batch.columns] for batch in batches]
    most = _CHARACTERS_OF_A_TOKEN * max_tokens
    source, target = (  # of a longer text, a run reads only as much
        np.minimum(np.concatenate(side), most // 2) for side in zip(*lengths, strict=True)
    )
    return len(rows) / len(TokenBudgetBatchSampler(source, target, most))


@dataclass(frozen=True)
class Fit:
    """The sizes and steps of a training that fit into a time."""

    sizes: Sizes
    pace: Pace
    steps: int

    def suffices(self, sizes: Sizes) -> bool:
        """Whether these steps are all that the training has, or see enough pairs for some sizes."""
        pace = self.pace
        is_enough = self.steps * pace.pairs_per_step >= sizes.least_pairs
        return is_enough or self.steps == pace.num_steps

    def advice(self, loaded: LoadedData, spent: float) -> Iterator[tuple[int, str]]:
        """Yields sentences for a new model, each with its level.

        They tell the scores of a similar training, and whether the time is too short.
        """
        if loaded.init_from is not None:
            return
        pace, rows = self.pace, loaded.data.splits["train"]
        (_, target, _), *_ = distinct_directions(rows)
        epochs, width = pace.epochs_of(self.steps), pace.plan.texts.config.d_model
        reached = describe_expectation(len(rows), epochs, width, target)
        if reached and "chrf" in pace.plan.arguments.model.metrics:
            yield INFO, reached
        if not self.suffices(self.sizes):
            steps = min(pace.num_steps, ceil(self.sizes.least_pairs / pace.pairs_per_step))
            needed = spent + pace.seconds_of(steps)
            yield (
                WARNING,
                "This is too short for a new model to learn much, at the present speed of the "
                f"machine: that takes about {ceil(needed / 60):,} minutes.",
            )


def fit_into(
    minutes: float,
    spent: Callable[[], float],
    candidates: Sequence[Sizes],
    measure: Callable[[Sizes], Pace],
) -> Fit:
    """Chooses the widest model that a time suffices for; the narrowest one if it does for no other.

    Args:
        spent: Returns the seconds of this time that have gone.
        candidates: The sizes that the model may have, the narrowest first.
    """

    def fit(sizes: Sizes) -> Fit:
        pace = measure(sizes)
        return Fit(sizes, pace, pace.steps_within(60 * minutes - spent()))

    narrowest, *others = candidates
    found: Fit | None = None
    for sizes in others:
        # A wider model is slower still.
        if (found and not found.suffices(sizes)) or not (tried := fit(sizes)).suffices(sizes):
            break
        found = tried
    return found or fit(narrowest)


def candidate_sizes(arguments: RunArguments, loaded: LoadedData) -> list[Sizes]:
    """Lists the sizes that a run may have; where the width of the model is given, there is one."""
    rows = loaded.facts.rows_by_width()
    if "d_model" in arguments.defaults:
        return rows
    return [rows[-1]._replace(d_model=arguments.given.get("d_model", rows[-1].d_model))]


def fit_minutes(
    arguments: RunArguments, loaded: LoadedData, began: float
) -> tuple[RunArguments, Deadline]:
    """Chooses the options by which a run ends in `minutes`, counted from its beginning.

    The deadline keeps the training to its time where the machine becomes slower or faster.
    """
    minutes = cast(float, arguments.model.minutes)
    logger.info(f"Timing the first steps, for a run of {minutes:g} minutes.")

    def spent() -> float:
        return float(gather_object([monotonic() - began])[0])

    measure = partial(measure_pace, arguments, loaded)
    fit = fit_into(minutes, spent, candidate_sizes(arguments, loaded), measure)
    pace, steps = fit.pace, fit.steps
    if steps == 0:
        least = (spent() + pace.seconds_of(1)) / 60
        raise ValueError(
            f"`minutes` {minutes:g} is too short: reading and timing alone take about "
            f"{ceil(least)}."
        )
    logger.info(f"{minutes:g} minutes: {pace.describe(steps)}.")
    for level, sentence in fit.advice(loaded, spent()):
        logger.log(level, sentence)
    most = min(pace.num_steps, ceil(_HEADROOM * steps))
    chosen = {"max_steps": most} if most < pace.num_steps else {}
    epochs = pace.epochs_of(steps)
    facts = replace(loaded.facts, sizes=fit.sizes, has_time=True, epochs=epochs)
    until = monotonic() + pace.without_last_scores(60 * minutes - spent())
    deadline = Deadline(until, pace.seconds_per_step, pace.per_evaluation)
    chosen = choose_defaults({**arguments.given, **chosen}, facts) | chosen
    return arguments.changed(chosen), deadline


def dry_run(arguments: RunArguments) -> None:
    """Says what would be trained in some times and in all epochs, by timing first steps."""
    began, folder = monotonic(), Path(str(arguments.training.output_dir))
    arguments, loaded = load_data(arguments, directory=OutputDirectory(folder))
    loading, sizes = monotonic() - began, candidate_sizes(arguments, loaded)
    logger.info(f"Timing the first steps{f' of up to {len(sizes)} models' * (len(sizes) > 1)}.")
    measure = cache(partial(measure_pace, arguments, loaded))
    full = measure(sizes[-1])
    if arguments.defaults:
        logger.info(describe_choice(arguments.defaults, loaded.facts))
    told = set[str]()
    for minutes in sorted({*_MINUTES, arguments.model.minutes or _MINUTES[0]}):
        fit = fit_into(minutes, lambda: loading, sizes, measure)
        fitting = fit.pace.describe(fit.steps)
        fitting = fitting if fit.steps else "too short, for the scores at the end"
        logger.info(f"--minutes {minutes:g}: {fitting}.")
        for level, sentence in fit.advice(loaded, loading):
            if sentence not in told:
                logger.log(level, sentence)
                told.add(sentence)
    seconds = loading + full.seconds_of(full.num_steps) + full.last_scores
    time = tqdm.format_interval(seconds)
    logger.info(f"All: {full.describe(full.num_steps)}; {time}. Nothing is kept of this dry run.")
