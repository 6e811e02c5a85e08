"""`vanilla-transformer generate`: one output per line of text."""

import argparse
import sys
from collections.abc import Sequence

from vanilla_transformer.commands.checks import check_model_path, check_output_file
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_model_argument,
    positive_integer,
)
from vanilla_transformer.commands.outputs import open_output, print_line
from vanilla_transformer.commands.search_options import (
    add_search_options,
    given_search_options,
    usage_of_search,
)
from vanilla_transformer.commands.sources import add_lines_argument, source_lines
from vanilla_transformer.data.text_files import existing_file

SUMMARY = "Generates an output for each line of text with a saved model."
EXAMPLES = """
vanilla-transformer generate runs/multi30k "two dogs play in the snow ."
vanilla-transformer generate runs/multi30k --input test.en --output test.de --num-beams 5
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("generate", SUMMARY, EXAMPLES, intermixed=True)
    add_model_argument(parser)
    add_lines_argument(parser)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input", metavar="FILE", help="source texts, one per line; UTF-8, plain or .gz"
    )
    files.add_argument(
        "--output", metavar="FILE", help="file to write, packed if it ends in .gz (default: print)"
    )
    files.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    search = parser.add_argument_group("search (default: as saved with the model)")
    add_search_options(search)
    search.add_argument(
        "--num-return-sequences", type=positive_integer, metavar="N", help="outputs per line"
    )
    work = parser.add_argument_group("computation")
    work.add_argument(
        "--batch-size", type=positive_integer, default=32, metavar="N", help="lines per batch"
    )
    work.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    work.add_argument("--seed", type=int, default=0, help="seed of the random numbers for sampling")
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the model's path and the files.

    Raises:
        UsageError: If lines are given twice.
        OSError: If a file or the model does not exist.
        ValueError: If the output file exists or is the input.
    """
    if options.lines and options.input:
        raise UsageError("give the lines as arguments or in --input, not both")
    check_model_path(options.model)
    if options.input:
        existing_file(options.input)
    if options.output:
        check_output_file(options.output, options.overwrite, {"--input": options.input})


def run(options: argparse.Namespace) -> None:
    """Generates the outputs in the order of the lines."""
    from transformers import set_seed
    from transformers.utils import logging

    from vanilla_transformer.inference.generation import generate_lines
    from vanilla_transformer.inference.loading import load_model
    from vanilla_transformer.search import Search

    logging.disable_progress_bar()
    model, tokenizer = load_model(options.model, options.device)
    set_seed(options.seed)
    search = given_search_options(options)
    if options.num_return_sequences is not None:
        search["num_return_sequences"] = options.num_return_sequences
    with usage_of_search():
        Search.resolve(model.generation_config, search)
    outputs = generate_lines(
        model,
        tokenizer,
        source_lines(options.lines, options.input),
        batch_size=options.batch_size,
        progress=sys.stderr is not None and sys.stderr.isatty(),
        **search,
    )
    with open_output(options.output) as stream:
        for texts in outputs:
            for text in texts:
                print_line(text, stream)
