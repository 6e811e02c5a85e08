"""The command itself: finds the subcommand and runs it."""

import sys
from collections.abc import Sequence
from importlib import import_module

SUBCOMMANDS = {
    "train": "vanilla_transformer.run.training_run",
    "generate": "vanilla_transformer.commands.generate",
    "evaluate": "vanilla_transformer.commands.evaluate",
    "average": "vanilla_transformer.commands.average",
    "convert": "vanilla_transformer.commands.convert",
    "inspect": "vanilla_transformer.commands.inspect",
}
"""The module of each subcommand, whose `main` takes the arguments after its name."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a subcommand.

    Args:
        argv: Arguments; None: those of the process.
    """
    name, *rest = sys.argv[1:] if argv is None else argv
    import_module(SUBCOMMANDS[name]).main(rest)
