"""Prints the log-probability of each target line given its source line."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vanilla_transformer.commands.options import ModelOptions, OutputFile, PairFiles
from vanilla_transformer.commands.pairs import check as check
from vanilla_transformer.commands.pairs import compute_pairs
from vanilla_transformer.options import EngineOptions, LanguageOptions, option

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Score

EXAMPLES = """
vanilla-transformer score runs/multi30k --source test.en --target test.de > scores.txt
vanilla-transformer score runs/multi30k --source test.en --target test.de --json
"""


@dataclass(frozen=True, kw_only=True)
class Files(OutputFile, PairFiles):
    """What is read and written."""

    _argument_group_name = "files"

    json: bool = option(
        "write a JSON object per line: log-probability, perplexity, tokens, token scores", False
    )


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """The options of the subcommand."""

    files: Files
    languages: LanguageOptions
    computation: EngineOptions


def run(options: Options) -> None:
    """Scores the pairs in their order; prints the perplexity of all on standard error."""
    files = options.files
    from vanilla_transformer.files.file_contents import without_infinities
    from vanilla_transformer.inference.results import perplexity_of

    num_pairs, num_tokens, total = 0, 0, 0.0

    def describe(score: "Score") -> str:
        nonlocal num_pairs, num_tokens, total
        num_pairs, num_tokens = num_pairs + 1, num_tokens + len(score.tokens)
        total += score.log_probability
        if not files.json:
            return f"{score.log_probability:.4f}"
        fields = {
            "log_probability": round(score.log_probability, 4),
            "perplexity": round(score.perplexity, 4),
            "tokens": score.tokens,
            "token_scores": [round(value, 4) for value in score.token_scores],
        }
        return json.dumps(without_infinities(fields), ensure_ascii=False)

    compute_pairs(options, options.computation.engine, "score", describe)
    perplexity = perplexity_of(total, num_tokens)
    summary = f"{num_pairs:,} pairs, {num_tokens:,} tokens, perplexity {perplexity:.4f}"
    print(summary, file=sys.stderr)
