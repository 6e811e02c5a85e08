"""`vanilla-transformer vocabulary`: a model with the tokens that some texts need."""

import argparse
from collections.abc import Sequence

from vanilla_transformer.commands.options import CommandParser, UsageError, nonnegative_integer
from vanilla_transformer.data.atomic_files import check_output_directory
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.text_files import existing_file

SUMMARY = "Trims the vocabulary of a saved model to what your texts need."
EXAMPLES = """
vanilla-transformer vocabulary runs/en-de runs/small --keep-for train.en train.de
vanilla-transformer vocabulary runs/nllb runs/en-de --keep-for train.en \\
    --keep-for-target train.de --keep-frequent 2000
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("vocabulary", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument("model", metavar="MODEL", help="directory of a saved model, or its name")
    parser.add_argument("output_dir", nargs="?", metavar="OUT", help="directory of the new model")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in OUT")
    parser.add_argument(
        "--keep-for",
        nargs="+",
        required=True,
        metavar="FILE",
        help="texts of both sides, one sentence a line, plain or .gz",
    )
    parser.add_argument(
        "--keep-for-target",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts of the target; --keep-for then holds those of the source",
    )
    parser.add_argument(
        "--keep-frequent",
        type=nonnegative_integer,
        default=0,
        metavar="N",
        help="also keep the N other tokens with the lowest ids, which are the most frequent ones",
    )
    options = parser.parse_words(words)
    if options.output_dir is None:  # `--keep-for FILE OUT`: the option has taken the output
        lists = (options.keep_for, options.keep_for_target)
        taken = next((one for one in lists if one[1:] and one[-1] == words[-1]), None)
        if taken is None:
            raise UsageError("OUT is missing: give the directory of the new model")
        options.output_dir = taken.pop()
    return options


def check(options: argparse.Namespace) -> None:
    """Checks the files and the output directory."""
    check_model_directory(options.model)
    files = [*options.keep_for, *options.keep_for_target]
    for file in files:
        existing_file(file)
    check_output_directory(options.output_dir, options.overwrite, [options.model, *files])


def run(options: argparse.Namespace) -> None:
    """Trims the vocabulary, and prints what that saves."""
    from vanilla_transformer.interop.vocabulary import trim_vocabulary

    done = trim_vocabulary(
        options.model,
        options.output_dir,
        options.keep_for,
        options.keep_for_target,
        options.keep_frequent,
        options.overwrite,
    )
    rows = (
        ("source tokens", "{0.tokens[0]:,}"),
        ("target tokens", "{0.tokens[1]:,}"),
        ("parameters", "{0.parameters:,}"),
        ("weights on disk, bytes", "{0.file_bytes:,}"),
        ("weights in memory, bytes", "{0.memory_bytes:,}"),
        ("greedy tokens per second", "{0.tokens_per_second:,.0f}"),
    )
    print(f"{'':<26}{'before':>16}{'after':>16}")
    for name, form in rows:
        print(f"{name:<26}{form.format(done.before):>16}{form.format(done.after):>16}")
    print(done.describe())
    print(f"{options.output_dir}: saved.")
