"""`vanilla-transformer verify`: whether a saved model computes what it did."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.commands.options import CommandParser
from vanilla_transformer.data.model_directory import check_model_directory

SUMMARY = "Checks that a saved model still computes what its probe holds."
EXAMPLES = """
vanilla-transformer verify runs/converted
vanilla-transformer verify runs/older-model --store
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
        path = store_probe(load_for_probe(Path(options.model)), options.model)
        print(f"{path}: the probe is stored.")
        return
    found = verify_model(options.model)
    if found.problems:
        listed = "".join(f"\n- {problem}" for problem in found.problems)
        raise ValueError(
            f"{options.model!r} differs from its probe, which {found.source} computed.{listed}"
        )
    print(
        f"{options.model}: the files are unchanged, and the outputs are those that {found.source} "
        f"computed (largest difference: {found.difference:.2g})."
    )
