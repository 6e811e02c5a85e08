"""`vanilla-transformer score`: how probable given targets are."""

import argparse
import json
import sys
from collections.abc import Sequence
from math import exp, inf
from typing import TYPE_CHECKING

from vanilla_transformer.commands.files import (
    FileLines,
    check_output,
    in_chunks,
    named_lines,
    open_output,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    add_engine_options,
    add_model_argument,
    add_output_options,
    add_pair_options,
)
from vanilla_transformer.data.text_files import read_line_pairs

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


def run(options: argparse.Namespace) -> None:
    """Scores the pairs in their order; prints the perplexity of all on standard error."""
    check_output(options, {"--source": options.source, "--target": options.target})
    from vanilla_transformer.inference.translator import Translator
    from vanilla_transformer.progress import Progress

    translator = Translator.from_pretrained(options.model, options.engine, options.device)
    num_pairs, num_tokens, total = 0, 0, 0.0
    pairs, count = read_line_pairs(options.source, options.target), len(FileLines(options.source))
    with (
        open_output(options.output) as stream,
        Progress(count, "pairs", shown=not stream.isatty()) as progress,
    ):
        for first, chunk in in_chunks(pairs):
            sources, targets = zip(*chunk, strict=True)
            with named_lines(options.source, first + 1):
                scores = translator.score(sources, targets, batch_tokens=options.batch_tokens)
            for score in scores:
                num_pairs, num_tokens = num_pairs + 1, num_tokens + len(score.tokens)
                total += score.log_probability
                print(_format_score(score, options.json), file=stream)
            progress.reach(num_pairs)
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
