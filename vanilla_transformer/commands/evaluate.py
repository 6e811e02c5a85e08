"""`vanilla-transformer evaluate`: scores of a saved model on a data set."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from vanilla_transformer.commands.files import (
    check_data_files,
    check_output,
    data_files,
    open_output,
)
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_engine_options,
    add_fields,
    add_model_argument,
    add_search_options,
    given_search_options,
    usage_of_search,
)
from vanilla_transformer.data.arguments import SPLITS, DataArguments
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.extras import check_extra
from vanilla_transformer.names import METRIC_NAMES

SUMMARY = "Scores the outputs of a saved model on a data set, and prints the scores as JSON."
EXAMPLES = """
vanilla-transformer evaluate runs/multi30k --test-source test.en --test-target test.de
vanilla-transformer evaluate runs/multi30k --dataset-name bentrevett/multi30k \\
    --source-column en --target-column de --metrics bleu chrf ter --output report.json
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("evaluate", SUMMARY, EXAMPLES, intermixed=True)
    add_model_argument(parser)
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
        "--output", metavar="FILE", help="JSON file for the scores, signatures, sources and outputs"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    add_search_options(parser.add_argument_group("search (default: as saved with the model)"))
    add_engine_options(parser.add_argument_group("computation"))
    # The length of an output is `--max-new-tokens` here.
    add_fields(parser.add_argument_group("data"), DataArguments, without=("max_target_length",))
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the data options, the paths and the output file."""
    _data_arguments(options)
    check_model_directory(options.model)
    check_data_files(vars(options))
    files = data_files(vars(options)).items()
    check_output(options, {f"--{name.replace('_', '-')}": path for name, path in files})
    given_search_options(options)
    check_extra("train")
    if options.engine == "ctranslate2":
        check_extra("ctranslate2")


def run(options: argparse.Namespace) -> None:
    """Generates, scores, and prints the scores."""
    from vanilla_transformer.inference.results import finite_or_none
    from vanilla_transformer.run.evaluation import evaluate_model

    with usage_of_search():
        evaluation = evaluate_model(
            options.model,
            _data_arguments(options),
            split=options.split,
            metrics=options.metrics,
            engine=options.engine,
            device=options.device,
            batch_tokens=options.batch_tokens,
            progress=True,
            **given_search_options(options),
        )
    report = asdict(evaluation)
    for scores in report["scores"].values():
        for name, value in scores.items():
            scores[name] = finite_or_none(value) if isinstance(value, float) else value
    print(json.dumps(report["scores"], indent=2, allow_nan=False), flush=True)
    if options.output:
        with open_output(options.output) as stream:
            json.dump(report, stream, indent=1, ensure_ascii=False, allow_nan=False)


def _data_arguments(options: argparse.Namespace) -> DataArguments:
    names = [field.name for field in fields(DataArguments) if field.name in options]
    try:
        return DataArguments(**{name: getattr(options, name) for name in names})
    except ValueError as error:
        raise UsageError(str(error)) from error
