"""`vanilla-transformer vocabulary`: a model with fewer or more tokens, as your texts need them."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    nonnegative_integer,
)
from vanilla_transformer.data.model_directory import check_model_directory

SUMMARY = "Trims the vocabulary of a saved model to your texts, or adds tokens."
EXAMPLES = """
vanilla-transformer vocabulary runs/en-de runs/small --keep-for train.en train.de
vanilla-transformer vocabulary runs/nllb runs/en-de --keep-for train.en \\
    --keep-for-target train.de --keep-frequent 2000
vanilla-transformer vocabulary runs/en-de runs/larger --add-tokens "<2fr>"
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("vocabulary", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument("model", metavar="MODEL", help="directory of a saved model, or its name")
    parser.add_argument("output_dir", metavar="OUT", help="directory of the new model")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in OUT")
    trim = parser.add_argument_group("fewer tokens")
    trim.add_argument(
        "--keep-for",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts of both sides, one sentence a line, plain or .gz",
    )
    trim.add_argument(
        "--keep-for-target",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts of the target; --keep-for then holds those of the source",
    )
    trim.add_argument(
        "--keep-frequent",
        type=nonnegative_integer,
        default=0,
        metavar="N",
        help="also keep the N other tokens with the lowest ids, which are the most frequent ones",
    )
    parser.add_argument_group("more tokens").add_argument(
        "--add-tokens",
        nargs="+",
        default=[],
        metavar="TOKEN",
        help="tags or languages, which stay whole in texts",
    )
    options = parser.parse_words(words)
    if not (options.keep_for or options.add_tokens):
        raise UsageError("give --keep-for to trim the vocabulary, or --add-tokens to add to it")
    return options


def run(options: argparse.Namespace) -> None:
    """Trims the vocabulary, and prints what that saves; adds tokens to it, or to what is left."""
    check_model_directory(options.model)
    if not options.add_tokens:
        trim(options, options.output_dir)
    elif not options.keep_for:
        grow(options, options.model)
    else:
        with TemporaryDirectory() as folder:
            trimmed = str(Path(folder, Path(options.model).resolve().name))
            trim(options, trimmed)
            grow(options, trimmed)
    print(f"{options.output_dir}: saved.")


def trim(options: argparse.Namespace, output_dir: str) -> None:
    """Trims the vocabulary of the model, and prints what that saves."""
    from vanilla_transformer.interop.trimmed_vocabulary import trim_vocabulary

    done = trim_vocabulary(
        options.model,
        output_dir,
        options.keep_for,
        options.keep_for_target,
        options.keep_frequent,
        options.overwrite,
    )
    rows = (
        ("source tokens", "{0.tokens[0]:,}"),
        ("target tokens", "{0.tokens[1]:,}"),
        ("parameters", "{0.parameters:,}"),
        ("weights, bytes", "{0.memory_bytes:,}"),
    )
    print(f"{'':<26}{'before':>16}{'after':>16}")
    for name, form in rows:
        print(f"{name:<26}{form.format(done.before):>16}{form.format(done.after):>16}")
    print(done.describe())


def grow(options: argparse.Namespace, model: str) -> None:
    """Adds tokens to a model."""
    from vanilla_transformer.interop.grown_vocabulary import grow_vocabulary

    grow_vocabulary(model, options.output_dir, options.add_tokens, options.overwrite)
    print(f"New tokens: {' '.join(options.add_tokens)}")
    print("Train it: new tokens are the means of their pieces.")
