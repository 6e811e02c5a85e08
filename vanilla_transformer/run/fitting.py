"""Chooses the model and the number of steps that fit into given minutes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from logging import INFO, WARNING
from math import ceil, inf
from pathlib import Path
from time import monotonic
from typing import cast

from accelerate.utils import gather_object
from tqdm import tqdm
from transformers.utils import logging

from vanilla_transformer.columns import distinct_directions
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.defaults import Sizes, choose_defaults, describe_choice
from vanilla_transformer.run.expectations import describe_expectation
from vanilla_transformer.run.loaded_data import LoadedData, load_data
from vanilla_transformer.run.pace import Pace, measure_pace
from vanilla_transformer.training.deadline import Deadline
from vanilla_transformer.training.store import OutputDirectory

logger = logging.get_logger(__name__)

_HEADROOM = 4
"""Largest number of steps, as a multiple of those that fit: other processes may end."""
_MINUTES = (10, 30, 120)
"""The times, in minutes, for which a dry run tells the training that fits."""


@dataclass(frozen=True)
class Fit:
    """The sizes and the number of steps of a training that fits into a time."""

    sizes: Sizes
    pace: Pace
    steps: int

    def suffices(self, sizes: Sizes) -> bool:
        """Returns whether the steps see enough pairs for some sizes, or are those of all epochs."""
        is_enough = self.steps * self.pace.pairs_per_step >= sizes.least_pairs
        return is_enough or self.steps == self.pace.num_steps

    def advice(
        self, loaded: LoadedData, spent: float, most: float = inf
    ) -> Iterator[tuple[int, str]]:
        """Yields sentences on the training of a new model, each with its level of logging.

        They tell the scores of a similar training, and warn of a time that is too short.

        Args:
            spent: Seconds of the time that have passed.
            most: Seconds of a run of all epochs: no longer time is advised.
        """
        if loaded.init_from is not None:
            return
        pace, rows = self.pace, loaded.splits["train"]
        (_, target, _), *_ = distinct_directions(rows)
        epochs, width = pace.epochs_of(self.steps), pace.plan.texts.config.d_model
        reached = describe_expectation(len(rows), epochs, width, target)
        if reached and "chrf" in pace.plan.metrics:
            yield INFO, reached
        if not self.suffices(self.sizes):
            steps = min(pace.num_steps, ceil(self.sizes.least_pairs / pace.pairs_per_step))
            needed = min(most, spent + pace.seconds_of(steps))
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
    """Chooses the widest model that has enough steps within a time, or else the narrowest one.

    `spent` returns the seconds of the time that have passed; the narrowest candidate comes first.
    """

    def fit_of(sizes: Sizes) -> Fit:
        pace = measure(sizes)
        return Fit(sizes, pace, pace.steps_within(60 * minutes - spent()))

    narrowest, *others = candidates
    widest: Fit | None = None
    for sizes in others:
        # A wider model is slower: if the steps of this one are too few for it, its own are too.
        if widest is not None and not widest.suffices(sizes):
            break
        fit = fit_of(sizes)
        if not fit.suffices(sizes):
            break
        widest = fit
    return widest or fit_of(narrowest)


def candidate_sizes(arguments: RunArguments, loaded: LoadedData) -> list[Sizes]:
    """Returns the sizes that a run may have, the narrowest first; one, if the width is given."""
    rows = loaded.facts.rows_by_width()
    if "d_model" in arguments.defaults:
        return rows
    return [rows[-1]._replace(d_model=arguments.given.get("d_model", rows[-1].d_model))]


def fit_minutes(
    arguments: RunArguments, loaded: LoadedData, began: float
) -> tuple[RunArguments, Deadline]:
    """Returns the options of a run that ends `minutes` after `began`, and its deadline.

    The deadline is kept where the machine becomes slower or faster.
    """
    minutes = cast(float, arguments.model.minutes)
    logger.info(f"Timing the first steps, for a run of {minutes:g} minutes.")

    def spent() -> float:
        return float(gather_object([monotonic() - began])[0])

    measure = partial(measure_pace, arguments, loaded)
    fit = fit_into(minutes, spent, candidate_sizes(arguments, loaded), measure)
    pace, steps = fit.pace, fit.steps
    if steps == 0:
        least = ceil((spent() + pace.seconds_of(1)) / 60)
        raise ValueError(
            f"`minutes` {minutes:g} is too short: reading and timing alone take about {least}."
        )
    logger.info(f"{minutes:g} minutes: {pace.describe(steps)}.")
    for level, sentence in fit.advice(loaded, spent()):
        logger.log(level, sentence)
    most = min(pace.num_steps, _HEADROOM * steps)
    limit = {"max_steps": most} if most < pace.num_steps else {}
    epochs = pace.epochs_of(steps)
    facts = replace(loaded.facts, sizes=fit.sizes, has_time=True, epochs=epochs)
    until = monotonic() + pace.without_last_scores(60 * minutes - spent())
    deadline = Deadline(until, pace.seconds_per_step, pace.per_evaluation)
    chosen = choose_defaults({**arguments.given, **limit}, facts)
    return arguments.changed(chosen | limit), deadline


def dry_run(arguments: RunArguments) -> None:
    """Times the first steps; tells the trainings that fit into some times, and the whole one."""
    began, folder = monotonic(), Path(str(arguments.training.output_dir))
    arguments, loaded = load_data(arguments, directory=OutputDirectory(folder))
    loading = monotonic() - began
    sizes = candidate_sizes(arguments, loaded)
    models = f" of up to {len(sizes)} models" if len(sizes) > 1 else ""
    logger.info(f"Timing the first steps{models}.")
    measure = cache(partial(measure_pace, arguments, loaded))
    full = measure(sizes[-1])
    if arguments.defaults:
        logger.info(describe_choice(arguments.defaults, loaded.facts))
    seconds = loading + full.seconds_of(full.num_steps) + full.last_scores
    told = set[str]()
    for minutes in sorted({*_MINUTES, arguments.model.minutes or _MINUTES[0]}):
        fit = fit_into(minutes, lambda: loading, sizes, measure)
        too_short = "too short, for the scores at the end"
        fitting = fit.pace.describe(fit.steps) if fit.steps else too_short
        logger.info(f"--minutes {minutes:g}: {fitting}.")
        for level, sentence in fit.advice(loaded, loading, seconds):
            if sentence not in told:
                logger.log(level, sentence)
                told.add(sentence)
    time = tqdm.format_interval(seconds)
    logger.info(f"All: {full.describe(full.num_steps)}; {time}. Nothing is kept of this dry run.")
