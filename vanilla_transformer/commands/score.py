"""`vanilla-transformer score`: how probable given targets are."""

import json
import sys
from dataclasses import dataclass
from functools import partial

from vanilla_transformer.commands.files import (
    FileLines,
    check_output,
    in_chunks,
    named_lines,
    open_output,
)
from vanilla_transformer.commands.options import (
    LanguageOptions,
    ModelOptions,
    OutputFile,
    PairFiles,
    parse_options,
    usage_errors,
)
from vanilla_transformer.data.text_files import read_line_pairs
from vanilla_transformer.options import EngineOptions, option

SUMMARY = "Prints the log-probability of each target line given its source line."
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


parse = partial(parse_options, "score", SUMMARY, EXAMPLES, Options)


def run(options: Options) -> None:
    """Scores the pairs in their order; prints the perplexity of all on standard error."""
    files, computation = options.files, options.computation
    check_output(files, {"--source": files.source, "--target": files.target})
    from vanilla_transformer.inference.results import perplexity_of, without_infinities
    from vanilla_transformer.inference.translator import Translator
    from vanilla_transformer.progress import Progress

    translator = Translator.from_pretrained(options.model, computation.engine, computation.device)
    languages = options.languages.named()
    with usage_errors():
        translator.directions(1, **languages)
    num_pairs, num_tokens, total = 0, 0, 0.0
    pairs, count = read_line_pairs(files.source, files.target), len(FileLines(files.source))
    with (
        open_output(files.output) as stream,
        Progress(count, "pairs", shown=not stream.isatty()) as progress,
    ):
        for first, chunk in in_chunks(pairs):
            sources, targets = zip(*chunk, strict=True)
            with named_lines(files.source, first + 1):
                scores = translator.score(
                    sources, targets, batch_tokens=computation.batch_tokens, **languages
                )
            for score in scores:
                num_pairs, num_tokens = num_pairs + 1, num_tokens + len(score.tokens)
                total += score.log_probability
                line = f"{score.log_probability:.4f}"
                if files.json:
                    fields = {
                        "log_probability": round(score.log_probability, 4),
                        "perplexity": round(score.perplexity, 4),
                        "tokens": score.tokens,
                        "token_scores": [round(value, 4) for value in score.token_scores],
                    }
                    line = json.dumps(without_infinities(fields), ensure_ascii=False)
                print(line, file=stream)
            progress.update(num_pairs)
    perplexity = perplexity_of(total, num_tokens)
    summary = f"{num_pairs:,} pairs, {num_tokens:,} tokens, perplexity {perplexity:.4f}"
    print(summary, file=sys.stderr)
