"""What a training would be in some minutes, and in all its epochs; nothing is kept."""

from functools import cache
from pathlib import Path
from time import monotonic

from tqdm import tqdm
from transformers.utils import logging

from vanilla_transformer.run.defaults import Sizes, describe_choice
from vanilla_transformer.run.pace import Pace, candidate_rows, fit_into, measure_pace
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.run.preparation import load_data
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.training.store import OutputDirectory

logger = logging.get_logger(__name__)

_MINUTES = (10, 30, 120)


def dry_run(arguments: RunArguments) -> None:
    """Says what would be trained in some times and in all epochs, by timing first steps."""
    began, training = monotonic(), arguments.training
    directory = OutputDirectory(Path(str(training.output_dir)))
    loaded = compute_on_main_process(training, load_data, arguments, None, directory)
    loading, rows = monotonic() - began, candidate_rows(loaded)
    logger.info(f"Timing the first steps of up to {len(rows)} models.")

    @cache
    def measure(row: Sizes) -> Pace:
        return measure_pace(arguments, loaded, row)

    full = measure(rows[-1][0])
    if loaded.defaults:
        logger.info(describe_choice(loaded.defaults, loaded.facts))
    for minutes in sorted({*_MINUTES, arguments.model.minutes or _MINUTES[0]}):
        _, pace, steps = fit_into(minutes, lambda: loading, rows, measure)
        fitting = pace.describe(steps) if steps else "too short, for the scores at the end"
        logger.info(f"--minutes {minutes:g}: {fitting}.")
    time = tqdm.format_interval(full.seconds_of(full.steps) + loading)
    logger.info(f"All: {full.describe(full.steps)}; {time}. Nothing is kept of this dry run.")
