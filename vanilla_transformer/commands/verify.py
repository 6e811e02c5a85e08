"""`vanilla-transformer verify`: whether a saved model computes what it did."""

import argparse
from collections.abc import Sequence

from vanilla_transformer.commands.options import CommandParser
from vanilla_transformer.data.model_directory import check_model_directory

SUMMARY = "Checks that a saved model still computes what its probe holds."
EXAMPLES = """
vanilla-transformer verify runs/converted
vanilla-transformer verify runs/multi30k --store
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("verify", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument("model", metavar="DIR", help="directory of a saved model")
    parser.add_argument(
        "--store",
        action="store_true",
        help="replace the probe: take what the model computes now as right",
    )
    return parser.parse_words(words)


def run(options: argparse.Namespace) -> None:
    """Computes the probe again, or stores a new one."""
    check_model_directory(options.model)
    from vanilla_transformer.interop.probe import load_for_probe, store_probe, verify_model

    if options.store:
        path = store_probe(load_for_probe(options.model), options.model)
        print(f"{path}: the probe is stored.")
        return
    found = verify_model(options.model)
    if not found.agrees:
        raise ValueError(f"{options.model} computes something else. {found.describe()}")
    print(f"{options.model}: {found.describe()}")
