"""`vanilla-transformer prepare`: tokenizer and token ids for later runs, made once."""

import argparse
from collections.abc import Sequence

from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_options,
    usage_errors,
)
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.run.options import PreparationArguments, TokenizerArguments

SUMMARY = "Makes the tokenizer and the token ids of training data once, for any number of runs."
EXAMPLES = """
vanilla-transformer prepare recipe.yaml --num-proc 16 --output-dir data/en-de
vanilla-transformer train recipe.yaml --prepared data/en-de --output-dir runs/first
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Shows the help if it is asked for; the options themselves are read by `run`."""
    if {"-h", "--help"} & set(words):
        parser = CommandParser("prepare", SUMMARY, EXAMPLES)
        parser.usage = f"{parser.prog} [RECIPE] [--option value ...]"
        parser.add_argument(
            "recipe", metavar="RECIPE", nargs="?", help="recipe of the later training"
        )
        parser.add_argument("--output-dir", metavar="DIR", help="directory of the prepared data")
        for title, topic, without in (
            ("data", DataArguments, ()),
            ("tokenizer", TokenizerArguments, ()),
            ("preparation", PreparationArguments, ("prepared",)),
        ):
            add_options(parser.add_argument_group(title), topic, without)
        parser.print_help()
        parser.exit()
    return argparse.Namespace(words=list(words))


def run(options: argparse.Namespace) -> None:
    """Prepares the data, with messages on standard error."""
    from vanilla_transformer.run.encoded_data import prepare_directory
    from vanilla_transformer.run.parsing import parse_arguments
    from vanilla_transformer.run.training_run import show_messages

    command = ("vanilla-transformer", "prepare", *options.words)
    with usage_errors():
        arguments = parse_arguments(options.words, command)
    if "output_dir" not in arguments.given:
        raise UsageError("--output-dir is missing: name the directory of the prepared data")
    show_messages(arguments)
    prepare_directory(arguments)
