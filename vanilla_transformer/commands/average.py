"""Averages the weights of saved models."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.training.averaging import (
    average_checkpoints,
    best_checkpoints,
    last_checkpoints,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Averages saved models: the program of `scripts/average.py`.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        ValueError: As `average_checkpoints` and the functions that choose checkpoints.
    """
    options = _parse(argv)
    chosen = [Path(model) for model in options.models]
    if options.last is not None or options.best is not None:
        if len(chosen) != 1:
            raise ValueError(f"--last and --best take the directory of one run, not {len(chosen)}.")
        if options.last is not None:
            chosen = last_checkpoints(chosen[0], options.last)
        else:
            chosen = best_checkpoints(
                chosen[0], options.best, options.metric, options.greater_is_better
            )
    average_checkpoints(chosen, options.output, options.overwrite)
    print(f"{options.output}: the mean of {', '.join(map(str, chosen))}")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Average the weights of saved models.")
    parser.add_argument("models", nargs="+", help="saved models; with --last or --best: one run")
    parser.add_argument("--output", required=True, help="directory to write")
    parser.add_argument("--overwrite", action="store_true", help="replace what --output holds")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--last", type=int, metavar="N", help="the newest N checkpoints of the run")
    choice.add_argument("--best", type=int, metavar="N", help="its N best ones by --metric")
    parser.add_argument("--metric", default="loss", help="validation score: loss, bleu, wer, ...")
    parser.add_argument(
        "--greater_is_better",
        action=argparse.BooleanOptionalAction,
        help="direction of a --metric that is not this package's",
    )
    return parser.parse_args(argv)
