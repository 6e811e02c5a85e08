"""`vanilla-transformer score`: how probable given targets are."""

import argparse
import json
import sys
from collections.abc import Sequence

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
    add_language_options,
    add_model_argument,
    add_output_options,
    add_pair_options,
    languages_of,
    usage_errors,
)
from vanilla_transformer.data.text_files import read_line_pairs

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
    add_language_options(parser.add_argument_group("languages"))
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
    from vanilla_transformer.inference.results import perplexity_of, without_infinities
    from vanilla_transformer.inference.translator import Translator
    from vanilla_transformer.progress import Progress

    translator = Translator.from_pretrained(options.model, options.engine, options.device)
    languages = languages_of(options)
    with usage_errors():
        translator.directions(1, **languages)
    num_pairs, num_tokens, total = 0, 0, 0.0
    pairs, count = read_line_pairs(options.source, options.target), len(FileLines(options.source))
    with (
        open_output(options.output) as stream,
        Progress(count, "pairs", shown=not stream.isatty()) as progress,
    ):
        for first, chunk in in_chunks(pairs):
            sources, targets = zip(*chunk, strict=True)
            with named_lines(options.source, first + 1):
                scores = translator.score(
                    sources, targets, batch_tokens=options.batch_tokens, **languages
                )
            for score in scores:
                num_pairs, num_tokens = num_pairs + 1, num_tokens + len(score.tokens)
                total += score.log_probability
                line = f"{score.log_probability:.4f}"
                if options.json:
                    fields = {
                        "log_probability": round(score.log_probability, 4),
                        "perplexity": round(score.perplexity, 4),
                        "tokens": score.tokens,
                        "token_scores": [round(value, 4) for value in score.token_scores],
                    }
                    line = json.dumps(without_infinities(fields), ensure_ascii=False)
                print(line, file=stream)
            progress.reach(num_pairs)
    perplexity = perplexity_of(total, num_tokens)
    summary = f"{num_pairs:,} pairs, {num_tokens:,} tokens, perplexity {perplexity:.4f}"
    print(summary, file=sys.stderr)
