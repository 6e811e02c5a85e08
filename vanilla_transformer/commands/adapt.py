"""`vanilla-transformer adapt`: from a saved model and a file of pairs to a model that fits them."""

import argparse
from collections.abc import Sequence
from dataclasses import fields

from vanilla_transformer.commands.options import (
    PROGRAM,
    CommandParser,
    add_fields,
    add_model_argument,
    usage_errors,
)
from vanilla_transformer.commands.train import set_environment

SUMMARY = "Adapts a saved model to your pairs, and tells whether it has become better."
EXAMPLES = """
vanilla-transformer adapt runs/en-de app.tsv --output-dir runs/adapted
vanilla-transformer adapt opus-mt-en-de memory.tmx --source-language en --target-language de \\
    --general train.en train.de --output-dir runs/adapted
vanilla-transformer adapt runs/en-de corpora.yaml --output-dir runs/adapted
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    from vanilla_transformer.run.adaptation_data import AdaptArguments  # imports torch

    parser = CommandParser("adapt", SUMMARY, EXAMPLES, intermixed=True)
    add_model_argument(parser)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a .tsv or .tmx of pairs, two text files, or a recipe (.yaml) that names the data",
    )
    parser.add_argument(
        "--output-dir", required=True, metavar="DIR", help="directory of all that is made"
    )
    group = parser.add_argument_group("adaptation")
    add_fields(group, AdaptArguments, without=("model", "files", "output_dir"))
    options = parser.parse_words(words)
    options.words = list(words)
    return options


def run(options: argparse.Namespace) -> None:
    """Adapts the model, and prints the comparison."""
    set_environment()
    from vanilla_transformer.run.adaptation import adapt, describe_adaptation
    from vanilla_transformer.run.adaptation_data import AdaptArguments

    names = [field.name for field in fields(AdaptArguments)]
    with usage_errors():
        arguments = AdaptArguments(**{name: getattr(options, name) for name in names})
    if (done := adapt(arguments, (PROGRAM, "adapt", *options.words))) is not None:
        print(*describe_adaptation(done), sep="\n")
