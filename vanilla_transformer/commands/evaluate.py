"""`vanilla-transformer evaluate`: scores of saved models on a data set."""

import argparse
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from typing import Any

from vanilla_transformer.commands.files import check_output, open_output
from vanilla_transformer.commands.options import (
    CommandParser,
    add_engine_options,
    add_fields,
    add_search_options,
    check_usage,
    option_of,
    search_options,
    usage_errors,
)
from vanilla_transformer.data.arguments import SPLITS, DataArguments
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.names import METRIC_NAMES, SCORE_TOKENIZERS

SUMMARY = "Scores the outputs of a saved model, or compares several."
EXAMPLES = """
vanilla-transformer evaluate runs/multi30k --test-source test.en --test-target test.de
vanilla-transformer evaluate runs/multi30k --dataset-name bentrevett/multi30k \\
    --source-column en --target-column de --metrics bleu chrf ter --output report.json
vanilla-transformer evaluate runs/old runs/new --compare --html comparison.html \\
    --test-source test.en --test-target test.de
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("evaluate", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="directory of a saved model, or its name on the Hub; several with --compare",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="test the differences of several models by the paired bootstrap, for all texts and by "
        "corpus",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="page for --compare with all outputs side by side"
    )
    parser.add_argument("--split", default="test", choices=SPLITS, help="split to score")
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=["bleu", "chrf"],
        choices=METRIC_NAMES,
        metavar="METRIC",
        help=f"scores to compute: {', '.join(METRIC_NAMES)}",
    )
    parser.add_argument(
        "--bleu-tokenize",
        choices=SCORE_TOKENIZERS,
        help="words that BLEU, TER and WER compare (default: by the target's language, or by the "
        "script that most references are in)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="JSON file for the scores, signatures, sources and outputs"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing --output or --html"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the scores as JSON, with all that belongs to them",
    )
    add_search_options(parser.add_argument_group("search (default: as saved with the model)"))
    add_engine_options(parser.add_argument_group("computation"))
    of_training = ("max_target_length", "case_augment")  # an output has `--max-new-tokens`
    add_fields(parser.add_argument_group("data"), DataArguments, without=of_training)
    return parser.parse_words(words)


def run(options: argparse.Namespace) -> None:
    """Generates, scores, and prints the scores."""
    check_usage(
        (
            len(options.models) > 1 and not options.compare,
            "several models need --compare, and files --test-source and --test-target",
        ),
        (len(options.models) < 2 and options.compare, "--compare needs two models or more"),
        (options.html and options.html == options.output, "--html and --output are one file"),
    )
    for model in options.models:
        check_model_directory(model)  # not only after the evaluation of the models before it
    names = [f"{split}_{part}" for split in SPLITS for part in ("file", "source", "target")]
    read_from = {option_of(name): getattr(options, name) for name in names}
    check_output(options, read_from)
    page = argparse.Namespace(output=options.html, overwrite=options.overwrite)
    check_output(page, read_from, "--html")
    from datasets import disable_progress_bars

    from vanilla_transformer.inference.results import without_infinities
    from vanilla_transformer.run.comparison import describe_comparison, describe_scores
    from vanilla_transformer.run.comparison_page import comparison_page
    from vanilla_transformer.run.evaluation import compare_models, evaluate_model
    from vanilla_transformer.search import SearchError

    names = [field.name for field in fields(DataArguments) if field.name in options]
    with usage_errors():
        data = DataArguments(**{name: getattr(options, name) for name in names})
    disable_progress_bars()  # they call each split "train"
    with ExitStack() as files:  # what cannot be written is told before the work
        report_file, page_file = (
            files.enter_context(open_output(path)) if path else None
            for path in (options.output, options.html if options.compare else None)
        )
        with usage_errors(SearchError):
            evaluated: Any = (compare_models if options.compare else evaluate_model)(
                options.models if options.compare else options.models[0],
                data,
                split=options.split,
                metrics=options.metrics,
                bleu_tokenize=options.bleu_tokenize,
                engine=options.engine,
                device=options.device,
                batch_tokens=options.batch_tokens,
                progress=True,
                **search_options(options),
            )
        report = without_infinities(asdict(evaluated))
        if options.json:
            print(json.dumps(report["scores"], indent=2, allow_nan=False), flush=True)
        else:
            describe = describe_comparison if options.compare else describe_scores
            print(*describe(report["scores"]), sep="\n", flush=True)
        if report_file:
            json.dump(report, report_file, indent=1, ensure_ascii=False, allow_nan=False)
        if page_file:
            page_file.write(comparison_page(evaluated))
