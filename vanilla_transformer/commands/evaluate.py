"""Scoring a saved model on a data set."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformers import HfArgumentParser

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.inference.generation import generate_lines
from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.training.metrics import METRICS


@dataclasses.dataclass
class EvaluationArguments:
    """What is scored, and how."""

    model: str = dataclasses.field(metadata={"help": "Directory of a saved model, or Hub name."})
    split: str = dataclasses.field(
        default="test", metadata={"help": "Split to score: train, validation or test."}
    )
    metrics: list[str] = dataclasses.field(
        default_factory=lambda: ["bleu", "chrf"],
        metadata={"help": f"Of {', '.join(METRICS)}."},
    )
    num_beams: int | None = dataclasses.field(
        default=None, metadata={"help": "Beam width; None: as saved with the model."}
    )
    max_new_tokens: int | None = dataclasses.field(
        default=None, metadata={"help": "Longest output, in tokens; None: as saved."}
    )
    batch_size: int = dataclasses.field(default=64, metadata={"help": "Examples per batch."})
    output: str | None = dataclasses.field(
        default=None, metadata={"help": "JSON file for scores, signatures, sources and outputs."}
    )
    overwrite: bool = dataclasses.field(
        default=False, metadata={"help": "Replace an existing output file."}
    )


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Generates for one split of a data set and prints its scores: `scripts/evaluate.py`.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        For each metric everything that it computes.

    Raises:
        ValueError: If the split or a metric does not exist, if the output file does, or if the
            model cannot be loaded.
    """
    parser = HfArgumentParser(
        cast(Any, (EvaluationArguments, DataArguments)),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    options, data_arguments = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    _check(options)
    if data_arguments.max_target_length is not None:
        raise ValueError("`max_target_length` has no effect here: set `max_new_tokens`.")
    data = load_parallel_data(data_arguments)
    if options.split not in data:
        raise ValueError(f"There is no split {options.split!r}: the data have {sorted(data)}.")
    rows = data[options.split]
    model, tokenizer = load_model(options.model)
    if data_arguments.max_source_length is not None:
        limits = (data_arguments.max_source_length, tokenizer.model_max_length)
        tokenizer.model_max_length = min(limits)
    search = {name: getattr(options, name) for name in ("num_beams", "max_new_tokens")}
    outputs = generate_lines(
        model,
        tokenizer,
        rows["source"],
        batch_size=options.batch_size,
        progress=sys.stderr.isatty(),
        **{name: value for name, value in search.items() if value is not None},
    )
    predictions = [texts[0] for texts in outputs]
    named = "references" if "references" in rows.column_names else "target"
    scores = {
        name: METRICS[name]().compute(predictions=predictions, references=list(rows[named]))
        for name in options.metrics
    }
    _report(
        {"scores": scores, "sources": list(rows["source"]), "predictions": predictions}, options
    )
    return scores


def _check(options: EvaluationArguments) -> None:
    unknown = [name for name in options.metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"`metrics` {unknown} are unknown: choose of {sorted(METRICS)}.")
    if options.output and Path(options.output).exists() and not options.overwrite:
        raise ValueError(
            f"`output` {options.output!r} exists: add `--overwrite True` or choose another."
        )
    if options.output and not Path(options.output).parent.is_dir():
        raise FileNotFoundError(
            f"`output` {options.output!r} lies in no existing directory: make it first."
        )
    if options.batch_size < 1:
        raise ValueError(f"`batch_size` is {options.batch_size}: it must be at least 1.")


def _report(report: dict[str, Any], options: EvaluationArguments) -> None:
    print(json.dumps(report["scores"], indent=2))
    if output := options.output:
        Path(output).write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
