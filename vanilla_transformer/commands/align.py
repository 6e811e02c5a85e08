"""`vanilla-transformer align`: which words of a parallel corpus belong together."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from vanilla_transformer.commands.files import (
    FileLines,
    check_output,
    file_identity,
    is_made_already,
    named_lines,
    write_in_chunks,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    add_engine_options,
    add_language_options,
    add_model_argument,
    add_output_options,
    add_pair_options,
    add_resume_option,
    check_usage,
    languages_of,
    usage_errors,
)
from vanilla_transformer.data.text_files import read_line_pairs, read_lines
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
    add_language_options(parser.add_argument_group("languages"))
    add_output_options(files)
    add_resume_option(files)
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


def run(options: argparse.Namespace) -> None:
    """Aligns the pairs in their order; prints the error rate on standard error."""
    check_usage(
        (options.resume and not options.output, "--resume needs --output"),
        (
            options.resume and options.gold,
            "give --resume or --gold, which needs the links of all lines",
        ),
    )
    if is_made_already(options):
        return
    read_from = {"--source": options.source, "--target": options.target, "--gold": options.gold}
    check_output(options, read_from)
    gold = _read_gold_links(options.gold) if options.gold else []
    from vanilla_transformer.inference.translator import Translator

    translator = Translator.from_pretrained(options.model, "transformers", options.device)
    languages = languages_of(options)
    with usage_errors():
        translator.directions(1, **languages)
    all_links: list[Links] = []

    def write(first: int, pairs: list[tuple[str, str]], stream: TextIO) -> None:
        sources, targets = zip(*pairs, strict=True)
        with named_lines(options.source, first + 1):
            alignments = translator.align(
                sources, targets, batch_tokens=options.batch_tokens, **languages
            )
        for alignment in alignments:
            described = json.dumps(asdict(alignment), ensure_ascii=False)
            print(described if options.json else format_links(alignment.words), file=stream)
            if options.gold:
                all_links.append(alignment.words)

    identity = {
        **{name: file_identity(getattr(options, name)) for name in ("model", "source", "target")},
        **languages,
        "json": options.json,
    }
    pairs = read_line_pairs(options.source, options.target)
    write_in_chunks(options, identity, pairs, write, len(FileLines(options.source)), "pairs")
    if options.gold:
        if len(gold) != len(all_links):
            raise ValueError(
                f"{options.gold!r} has {len(gold)} lines for {len(all_links)} pairs: give one each."
            )
        rate = alignment_error_rate(all_links, *zip(*gold, strict=True))
        print(f"{len(gold):,} pairs, alignment error rate {rate:.4f}", file=sys.stderr)


def _read_gold_links(path: str) -> list[tuple[Links, Links]]:
    """Reads the sure and the possible links of each line."""
    links = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            links.append(parse_gold_links(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return links
