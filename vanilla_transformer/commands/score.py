"""`vanilla-transformer score`: how probable given targets are."""

import argparse
import json
import sys
from collections.abc import Sequence
from math import exp, inf
from typing import TYPE_CHECKING

from vanilla_transformer.commands.files import (
    check_output,
    named_lines,
    open_output,
    read_pair_chunks,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    add_engine_options,
    add_model_argument,
    add_output_options,
    add_pair_options,
)
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.extras import check_extra

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Score

SUMMARY = "Prints the log-probability of each target line given its source line."
EXAMPLES = """
vanilla-transformer score runs/multi30k --source test.en --target test.de > scores.txt
vanilla-transformer score runs/multi30k --source test.en --target test.de --json
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("score", SUMMARY, EXAMPLES)
    add_model_argument(parser)
    files = parser.add_argument_group("files")
    add_pair_options(files)
    add_output_options(files)
    files.add_argument(
        "--json",
        action="store_true",
        help="write a JSON object per line: log-probability, perplexity, tokens, token scores",
    )
    add_engine_options(parser.add_argument_group("computation"))
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the model's path and the files."""
    check_model_directory(options.model)
    read_from = {"--source": options.source, "--target": options.target}
    for path in read_from.values():
        existing_file(path)
    check_output(options, read_from)
    if options.engine == "ctranslate2":
        check_extra("ctranslate2")


def run(options: argparse.Namespace) -> None:
    """Scores the pairs in their order; prints the perplexity of all on standard error."""
    check(options)
    from vanilla_transformer.inference.translator import Translator

    translator = Translator.from_pretrained(options.model, options.engine, options.device)
    num_pairs, num_tokens, total = 0, 0, 0.0
    with open_output(options.output) as stream:
        chunks = read_pair_chunks(options.source, options.target, progress=not stream.isatty())
        for first, sources, targets in chunks:
            with named_lines(options.source, first):
                scores = translator.score(sources, targets, batch_tokens=options.batch_tokens)
            for score in scores:
                num_pairs, num_tokens = num_pairs + 1, num_tokens + len(score.tokens)
                total += score.log_probability
                print(_format_score(score, options.json), file=stream)
    mean = -total / max(num_tokens, 1)
    perplexity = exp(mean) if mean < 700 else inf
    summary = f"{num_pairs:,} pairs, {num_tokens:,} tokens, perplexity {perplexity:.4f}"
    print(summary, file=sys.stderr)


def _format_score(score: "Score", as_json: bool) -> str:
    if not as_json:
        return f"{score.log_probability:.4f}"
    from vanilla_transformer.inference.results import finite_or_none

    fields = {
        "log_probability": finite_or_none(round(score.log_probability, 4)),
        "perplexity": finite_or_none(round(score.perplexity, 4)),
        "tokens": score.tokens,
        "token_scores": [finite_or_none(round(value, 4)) for value in score.token_scores],
    }
    return json.dumps(fields, ensure_ascii=False)
