"""Scores the outputs of a saved model, or compares several."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from vanilla_transformer.command_line import option_of, usage_errors
from vanilla_transformer.commands.files import check_languages, check_output, open_output
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.corpus_entries import SPLITS
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import check_files
from vanilla_transformer.names import METRIC_NAMES, SCORE_TOKENIZERS
from vanilla_transformer.options import GenerationOptions, TypedEngineOptions, argument, option
from vanilla_transformer.rules import refuse

EXAMPLES = """
vanilla-transformer evaluate runs/multi30k --test-source test.en --test-target test.de
vanilla-transformer evaluate runs/multi30k --dataset-name bentrevett/multi30k \\
    --source-column en --target-column de --metrics bleu chrf ter --output report.json
vanilla-transformer evaluate runs/old runs/new --output comparison.json \\
    --test-source test.en --test-target test.de
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the subcommand."""

    models: list[str] = argument(
        "directory of a saved model, or its name on the Hub; several are compared, by the paired "
        "bootstrap",
        "MODEL",
    )
    split: str = option("split to score", "test", choices=SPLITS)
    metrics: list[str] = option(
        f"scores to compute: {', '.join(METRIC_NAMES)}",
        ["bleu", "chrf"],
        choices=METRIC_NAMES,
        metavar="METRIC",
    )
    bleu_tokenize: str | None = option(
        "words that BLEU, TER and WER compare (default: by the target's language, or by the "
        "script that most references are in)",
        choices=SCORE_TOKENIZERS,
    )
    calibrate: bool = option(
        "write beside the model what tells the quality of its outputs, learnt from these pairs, on "
        "which it was not trained",
        False,
    )
    translations: list[str] = option(
        "former translations, which help with similar texts: .tsv of source and target, .tmx, .po, "
        ".xliff (docs/better.md)",
        [],
        flag="--memory",
        metavar="FILE",
    )
    output: str | None = option(
        "JSON file for the scores, signatures, sources and outputs", metavar="FILE"
    )
    overwrite: bool = option("replace an existing --output", False)
    json: bool = option("print the scores as JSON, with all that belongs to them", False)
    search: GenerationOptions
    computation: TypedEngineOptions
    # An output has `--max-new-tokens`; the others are for a training.
    data: DataArguments = field(
        metadata={
            "without": (
                "max_target_length",
                *("case_augment", "placeholder_share", "terms", "memory"),
            )
        }
    )

    def __post_init__(self) -> None:
        refuse(
            (self.calibrate and len(self.models) > 1, "--calibrate is for one model"),
            (
                self.calibrate and not os.path.isdir(self.models[0]),
                f"--calibrate writes beside the model, and {self.models[0]!r} is no directory",
            ),
        )


def check(options: Options) -> None:
    """Checks paths and languages."""
    for model in options.models:
        check_model_directory(model)
    data = options.data
    data.check_files()
    check_files(*options.translations)
    check_languages(options.models[0], data.source_language, data.target_language)
    read_from = {option_of(n): path for n, path in vars(data).items() if n.startswith(SPLITS)}
    read_from |= {f"file {path}": path for path in (*data.files, *options.translations)}
    check_output(options.output, options.overwrite, read_from)


def run(options: Options) -> None:
    """Generates, scores, and prints the scores."""
    from datasets import disable_progress_bars

    from vanilla_transformer.documents.memory_files import read_memory
    from vanilla_transformer.files.file_contents import without_infinities
    from vanilla_transformer.run.comparison import describe_comparison, describe_scores
    from vanilla_transformer.run.evaluation import compare_models, evaluate_model
    from vanilla_transformer.search import SearchError

    disable_progress_bars()  # they call each split "train"
    several = len(options.models) > 1
    models: Any = options.models if several else options.models[0]
    evaluate = partial(evaluate_model, calibrates=options.calibrate)
    # What cannot be written is told before the work.
    with open_output(options.output) if options.output else nullcontext() as report_file:
        with usage_errors(SearchError):
            evaluated: Any = (compare_models if several else evaluate)(
                models,
                options.data,
                split=options.split,
                metrics=options.metrics,
                bleu_tokenize=options.bleu_tokenize,
                memory=partial(read_memory, options.translations) if options.translations else None,
                **asdict(options.computation),
                progress=True,
                **options.search.given(),
            )
        report = without_infinities(asdict(evaluated))
        if options.json:
            print(json.dumps(report["scores"], indent=2, allow_nan=False), flush=True)
        else:
            lines = describe_scores(report["scores"])
            if several:
                lines = describe_comparison(evaluated.scores)
            print(*lines, sep="\n", flush=True)
        if options.calibrate:
            print(evaluated.calibration, file=sys.stderr)
        if report_file:
            json.dump(report, report_file, indent=1, ensure_ascii=False, allow_nan=False)
