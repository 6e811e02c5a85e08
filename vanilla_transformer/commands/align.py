"""`vanilla-transformer align`: which words of a parallel corpus belong together."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from vanilla_transformer.commands.files import (
    check_output,
    check_resumption,
    file_identity,
    is_resumed_and_complete,
    named_lines,
    open_resumable,
    read_pair_chunks,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    add_engine_options,
    add_model_argument,
    add_output_options,
    add_pair_options,
    add_resume_option,
    check_usage,
)
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.text_files import existing_file, read_lines
from vanilla_transformer.data.word_alignment import (
    Links,
    alignment_error_rate,
    format_links,
    parse_gold_links,
)

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
    add_output_options(files)
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
    add_engine_options(parser.add_argument_group("computation"), engine=False)
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the model's path, the files, and options that contradict each other."""
    check_usage(
        (
            options.tokens and options.json,
            "give --tokens or --json, which holds the links of tokens too",
        ),
        (
            options.resume and options.gold,
            "give --resume or --gold, which needs the links of all lines",
        ),
    )
    check_resumption(options)
    check_model_directory(options.model)
    read_from = {"--source": options.source, "--target": options.target, "--gold": options.gold}
    for path in filter(None, read_from.values()):
        existing_file(path)
    check_output(options, read_from)


def run(options: argparse.Namespace) -> None:
    """Aligns the pairs in their order; prints the error rate on standard error."""
    check(options)
    from vanilla_transformer.inference.translator import Translator

    if is_resumed_and_complete(options, options.source):
        return
    found: list[Links] = []
    identity = {
        **{name: file_identity(getattr(options, name)) for name in ("model", "source", "target")},
        "tokens": options.tokens,
        "json": options.json,
    }
    with open_resumable(options, identity) as (stream, done):
        translator = Translator.from_pretrained(options.model, "transformers", options.device)
        chunks = read_pair_chunks(
            options.source, options.target, done, progress=not stream.isatty()
        )
        for first, sources, targets in chunks:
            with named_lines(options.source, first):
                pairs = translator.align(sources, targets, batch_tokens=options.batch_tokens)
            for alignment in pairs:
                links = format_links(alignment.tokens if options.tokens else alignment.words)
                described = json.dumps(asdict(alignment), ensure_ascii=False)
                print(described if options.json else links, file=stream)
                if options.gold:
                    found.append(alignment.words)
    if options.gold:
        _report_error_rate(found, options.gold)


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
