"""Adapts a model as the subcommand does; its arguments are those of the subcommand."""

import sys

from vanilla_transformer.commands.program import run_subcommand

if __name__ == "__main__":
    run_subcommand("adapt", sys.argv[1:])
