"""Adapts a saved model to your pairs, and tells whether it has become better."""

from collections.abc import Sequence

from vanilla_transformer.adapt.options import AdaptArguments, check_paths
from vanilla_transformer.command_line import PROGRAM, parse_options
from vanilla_transformer.commands.files import check_languages
from vanilla_transformer.commands.train import set_environment

EXAMPLES = """
vanilla-transformer adapt runs/en-de app.tsv --output-dir runs/adapted
vanilla-transformer adapt opus-mt-en-de memory.tmx --source-language en --target-language de \\
    --general train.en train.de --output-dir runs/adapted
vanilla-transformer adapt runs/en-de corpora.yaml --output-dir runs/adapted
"""


def parse(words: Sequence[str]) -> tuple[AdaptArguments, Sequence[str]]:
    """Reads the options of the subcommand; the model card shows the words."""
    return parse_options("adapt", __doc__, EXAMPLES, AdaptArguments, words), words


def check(options: tuple[AdaptArguments, Sequence[str]]) -> None:
    """Checks paths and languages."""
    arguments, _ = options
    check_paths(arguments)
    check_languages(arguments.model, arguments.source_language, arguments.target_language)


def run(options: tuple[AdaptArguments, Sequence[str]]) -> None:
    """Adapts the model, and prints the comparison."""
    set_environment()
    from vanilla_transformer.adapt.adaptation import adapt, describe_adaptation

    arguments, words = options
    if (done := adapt(arguments, (PROGRAM, "adapt", *words))) is not None:
        print(*describe_adaptation(done), sep="\n")
