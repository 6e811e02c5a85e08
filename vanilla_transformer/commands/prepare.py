"""Makes the tokenizer and the token ids of training data once, for any number of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vanilla_transformer.command_line import parse_options
from vanilla_transformer.commands import train
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.options import argument, option
from vanilla_transformer.run.options import PreparationArguments, TokenizerArguments

EXAMPLES = """
vanilla-transformer prepare recipe.yaml --num-proc 16 --output-dir data/en-de
vanilla-transformer train recipe.yaml --prepared data/en-de --output-dir runs/first
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the help shows: the options of a training that decide the data."""

    recipe: str = argument("recipe of the later training", "RECIPE", nargs="?")
    output_dir: str = option("directory of the prepared data", metavar="DIR")
    data: DataArguments
    tokenizer: TokenizerArguments
    preparation: PreparationArguments = field(metadata={"without": ("prepared",)})


def parse(words: Sequence[str]) -> Sequence[str]:
    """Shows the help if it is asked for; `run` reads the words as `train` does."""
    if train.HELP & set(words):
        parse_options("prepare", __doc__, EXAMPLES, Options, ["--help"])
    train.check_data(train.parse(words))
    return words


def run(words: Sequence[str]) -> None:
    """Prepares the data, with messages on standard error."""
    from vanilla_transformer.run.encoded_data import prepare_directory

    prepare_directory(train.read_arguments(words))
