"""`vanilla-transformer generate`: one output per line of text."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from vanilla_transformer.commands.checks import check_model_path, check_output_file
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    nonnegative_integer,
    positive_integer,
    positive_number,
    probability,
)
from vanilla_transformer.commands.outputs import open_output
from vanilla_transformer.data.text_files import decode_lines, existing_file, read_lines

SUMMARY = "Generates an output for each line of text with a saved model."
EXAMPLES = """
vanilla-transformer generate runs/multi30k "two dogs play in the snow ."
vanilla-transformer generate runs/multi30k --input test.en --output test.de --num-beams 5
"""

SEARCH_OPTIONS = (
    "num_beams",
    "num_return_sequences",
    "max_new_tokens",
    "length_penalty",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
)
"""Options that `generate()` of the model takes under the same names."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("generate", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "model", metavar="MODEL", help="directory of a saved model, or its name on the Hub"
    )
    parser.add_argument(
        "lines",
        metavar="LINE",
        nargs="*",
        default=[],
        help="source texts; without them, lines come from --input or from standard input",
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input", metavar="FILE", help="source texts, one per line; UTF-8, plain or .gz"
    )
    files.add_argument(
        "--output", metavar="FILE", help="file to write, packed if it ends in .gz (default: print)"
    )
    files.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    _add_search_options(parser.add_argument_group("search (default: as saved with the model)"))
    work = parser.add_argument_group("computation")
    work.add_argument(
        "--batch-size", type=positive_integer, default=32, metavar="N", help="lines per batch"
    )
    work.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    work.add_argument("--seed", type=int, default=0, help="seed of the random numbers for sampling")
    return parser.parse_words(words)


def _add_search_options(group: argparse._ArgumentGroup) -> None:
    integer: dict[str, Any] = {"type": positive_integer, "metavar": "N"}
    group.add_argument("--num-beams", **integer, help="beam width; 1 is greedy search")
    group.add_argument("--num-return-sequences", **integer, help="outputs per line")
    group.add_argument("--max-new-tokens", **integer, help="longest output, in tokens")
    group.add_argument(
        "--length-penalty", type=float, metavar="X", help="above 0 favours long outputs of a beam"
    )
    group.add_argument("--do-sample", action="store_true", default=None, help="sample tokens")
    group.add_argument(
        "--temperature",
        type=positive_number,
        metavar="X",
        help="below 1 samples likely tokens more",
    )
    group.add_argument(
        "--top-k", type=nonnegative_integer, metavar="N", help="sample from the N likeliest tokens"
    )
    group.add_argument(
        "--top-p",
        type=probability,
        metavar="X",
        help="sample from the likeliest tokens whose probabilities add up to X",
    )


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
        check_output_file(options.output, options.overwrite, read_from=options.input)


def run(options: argparse.Namespace) -> None:
    """Generates the outputs in the order of the lines."""
    from transformers import set_seed
    from transformers.utils import logging

    from vanilla_transformer.inference.generation import generate_lines
    from vanilla_transformer.inference.loading import load_model

    logging.disable_progress_bar()
    model, tokenizer = load_model(options.model, options.device)
    set_seed(options.seed)
    search = {
        name: value for name in SEARCH_OPTIONS if (value := getattr(options, name)) is not None
    }
    outputs = generate_lines(
        model,
        tokenizer,
        _source_lines(options),
        batch_size=options.batch_size,
        progress=sys.stderr is not None and sys.stderr.isatty(),
        **search,
    )
    with open_output(options.output) as stream:
        for texts in outputs:
            for text in texts:
                # A byte-level model can generate a line break; outputs stay aligned with lines.
                print(text.replace("\r", " ").replace("\n", " "), file=stream)
            stream.flush()


def _source_lines(options: argparse.Namespace) -> Iterable[str]:
    if options.lines:
        return list(options.lines)
    if options.input:
        return read_lines(options.input)
    if sys.stdin is None:
        raise ValueError("Standard input is closed: give lines as arguments, or --input.")
    return decode_lines(sys.stdin.buffer, "standard input")
