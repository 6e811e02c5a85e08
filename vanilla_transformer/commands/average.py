"""`vanilla-transformer average`: the mean of saved models."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.commands.options import CommandParser, UsageError, positive_integer
from vanilla_transformer.data.atomic_files import check_output_directory
from vanilla_transformer.data.model_directory import check_model_directory

SUMMARY = "Averages the weights of saved models or of the checkpoints of a run."
EXAMPLES = """
vanilla-transformer average runs/multi30k --best 5 --metric bleu --output runs/multi30k-mean
vanilla-transformer average runs/a/checkpoint-900 runs/a/checkpoint-1000 --output runs/mean
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("average", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "models",
        metavar="RUN_OR_MODEL",
        nargs="+",
        help="saved models; with --last or --best the directory of one run",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="directory of the new model")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in --output")
    choice = parser.add_argument_group("checkpoints of a run")
    either = choice.add_mutually_exclusive_group()
    either.add_argument(
        "--last", type=positive_integer, metavar="N", help="average the newest N checkpoints"
    )
    either.add_argument(
        "--best", type=positive_integer, metavar="N", help="average the N best by --metric"
    )
    choice.add_argument(
        "--metric", help="validation score for --best: loss (the default), bleu, wer, ..."
    )
    choice.add_argument(
        "--greater-is-better",
        action=argparse.BooleanOptionalAction,
        help="direction of --metric, for scores that this package does not compute",
    )
    return parser.parse_words(words)


def run(options: argparse.Namespace) -> None:
    """Chooses the models and writes their mean."""
    if not options.best and (options.metric or options.greater_is_better is not None):
        raise UsageError("--metric and --greater-is-better have no effect without --best")
    if options.last or options.best:
        if len(options.models) != 1:
            raise UsageError(
                f"--last and --best take the directory of one run, not {len(options.models)}"
            )
        if not Path(options.models[0]).is_dir():
            raise FileNotFoundError(f"The run {options.models[0]!r} does not exist.")
    else:
        for model in options.models:
            check_model_directory(model)
    check_output_directory(options.output, options.overwrite, options.models)
    from vanilla_transformer.interop.probe import load_for_probe, store_probe
    from vanilla_transformer.training.averaging import average_checkpoints, select_checkpoints

    chosen = [Path(model) for model in options.models]
    if options.last:
        chosen = select_checkpoints(chosen[0], options.last)
    elif options.best:
        chosen = select_checkpoints(
            chosen[0], options.best, options.metric or "loss", options.greater_is_better
        )
    average_checkpoints(chosen, options.output, options.overwrite)
    store_probe(load_for_probe(Path(options.output)), options.output)
    print(f"{options.output}: the mean of {', '.join(map(str, chosen))}")
