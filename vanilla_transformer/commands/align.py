"""`vanilla-transformer align`: which words of a parallel corpus belong together."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from vanilla_transformer.commands.checks import check_model_path, check_output_file
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_model_argument,
    add_pair_options,
    add_resume_option,
    positive_integer,
)
from vanilla_transformer.commands.outputs import open_output
from vanilla_transformer.commands.resumable_output import (
    check_nothing_is_replaced,
    continued_output,
    file_identity,
    is_complete,
    report_complete,
)
from vanilla_transformer.commands.sources import named_lines, read_pair_chunks
from vanilla_transformer.data.text_files import existing_file, read_lines
from vanilla_transformer.data.word_alignment import (
    Links,
    alignment_error_rate,
    format_links,
    parse_gold_links,
)

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Alignment

SUMMARY = "Aligns the words of source lines and given target lines, in Pharaoh's format."
EXAMPLES = """
vanilla-transformer align runs/multi30k --source train.en --target train.de --output train.align
vanilla-transformer align runs/multi30k --source test.en --target test.de --gold test.align
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("align", SUMMARY, EXAMPLES)
    add_model_argument(parser)
    files = parser.add_argument_group("files")
    add_pair_options(files)
    add_resume_option(files)
    files.add_argument(
        "--tokens", action="store_true", help="write the links of tokens instead of words"
    )
    files.add_argument(
        "--json",
        action="store_true",
        help="write a JSON object per line: links of words and of tokens, and the tokens",
    )
    files.add_argument(
        "--gold",
        metavar="FILE",
        help="links of words made by hand, 0-2 for a sure one and 0p2 for a possible one; prints "
        "the alignment error rate on standard error",
    )
    work = parser.add_argument_group("computation")
    work.add_argument(
        "--batch-tokens",
        type=positive_integer,
        default=4096,
        metavar="N",
        help="largest size of a batch, in tokens with padding",
    )
    work.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the model's path, the files, and options that contradict each other.

    Raises:
        UsageError: If options contradict each other.
        OSError: If a file or the model does not exist.
        ValueError: If the output file exists or is an input.
    """
    if options.tokens and options.json:
        raise UsageError("give --tokens or --json, which holds the links of tokens too")
    if options.resume and not options.output:
        raise UsageError("--resume needs --output")
    if options.resume and options.output.endswith(".gz"):
        raise UsageError("--resume cannot go on with a packed file: give another --output")
    if options.resume and options.gold:
        raise UsageError("give --resume or --gold, which needs the links of all lines")
    check_model_path(options.model)
    read_from = {"--source": options.source, "--target": options.target}
    if options.gold:
        read_from["--gold"] = options.gold
    for path in read_from.values():
        existing_file(path)
    if options.output:
        check_output_file(options.output, options.overwrite or options.resume, read_from)
    if options.resume and not options.overwrite:
        check_nothing_is_replaced(options.output)


def run(options: argparse.Namespace) -> None:
    """Aligns the pairs in their order; prints the error rate on standard error."""
    if options.resume and is_complete(options.output) and not options.overwrite:
        report_complete(options.output, options.source)
        return
    found: list[Links] = []
    with _opened_output(options) as (stream, done):
        for alignment in _read_alignments(options, done):
            print(_format_alignment(alignment, options), file=stream)
            if options.gold:
                found.append(alignment.words)
    if options.gold:
        _report_error_rate(found, options.gold)


@contextmanager
def _opened_output(options: argparse.Namespace) -> Iterator[tuple[TextIO, int]]:
    """Opens the output; the number says how many lines it holds already."""
    if not options.resume:
        with open_output(options.output) as stream:
            yield stream, 0
        return
    files = ("model", "source", "target")
    identity = {
        **{name: file_identity(getattr(options, name)) for name in files},
        "tokens": options.tokens,
        "json": options.json,
    }
    with continued_output(options.output, identity) as opened:
        yield opened


def _read_alignments(options: argparse.Namespace, skip: int) -> Iterator["Alignment"]:
    """Aligns the pairs after the first ones."""
    from transformers.utils import logging

    from vanilla_transformer.inference.translator import Translator

    logging.disable_progress_bar()
    translator = Translator.from_pretrained(options.model, "transformers", options.device)
    for first, sources, targets in read_pair_chunks(options.source, options.target, skip):
        with named_lines(options.source, first):
            yield from translator.align(sources, targets, batch_tokens=options.batch_tokens)


def _format_alignment(alignment: "Alignment", options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(asdict(alignment), ensure_ascii=False)
    return format_links(alignment.tokens if options.tokens else alignment.words)


def _report_error_rate(found: list[Links], gold: str) -> None:
    """Prints the alignment error rate on standard error."""
    sure, possible = [], []
    for number, line in enumerate(read_lines(gold), start=1):
        try:
            links = parse_gold_links(line)
        except ValueError as error:
            raise ValueError(f"{gold}, line {number}: {error}") from None
        sure.append(links[0])
        possible.append(links[1])
    if len(sure) != len(found):
        raise ValueError(f"{gold!r} has {len(sure)} lines for {len(found)} pairs: give one each.")
    rate = alignment_error_rate(found, sure, possible)
    print(f"{len(found):,} pairs, alignment error rate {rate:.4f}", file=sys.stderr)
