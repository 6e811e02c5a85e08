"""`vanilla-transformer average`: the mean of saved models."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.commands.options import CommandParser, UsageError, positive_integer

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
    if (options.last or options.best) and len(options.models) != 1:
        raise UsageError(
            f"--last and --best take the directory of one run, not {len(options.models)}"
        )
    from vanilla_transformer.interop.probe import load_for_probe, store_probe
    from vanilla_transformer.training.averaging import average_checkpoints, select_checkpoints

    chosen = [Path(model) for model in options.models]
    if options.last:
        chosen = select_checkpoints(chosen[0], options.last)
    elif options.best:
        metric = options.metric or "loss"
        chosen = select_checkpoints(chosen[0], options.best, metric, options.greater_is_better)
    average_checkpoints(chosen, options.output, options.overwrite)
    store_probe(load_for_probe(Path(options.output)), options.output)
    print(f"{options.output}: the mean of {', '.join(map(str, chosen))}")
