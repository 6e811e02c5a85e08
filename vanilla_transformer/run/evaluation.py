"""Scores a saved model on one split of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.inference.generation import generate_lines
from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.training.metrics import score_texts
from vanilla_transformer.training.option_checks import check_length_penalty


@dataclass(frozen=True)
class Evaluation:
    """The outputs of a model for a split, and their scores.

    Attributes:
        scores: For each metric all values that it computes, such as score and signature.
        sources: Source texts of the split.
        predictions: The model's output for each source.
    """

    scores: dict[str, dict[str, Any]]
    sources: list[str]
    predictions: list[str]


def evaluate_model(
    model_name_or_path: str,
    data_arguments: DataArguments,
    *,
    split: str = "test",
    metrics: Sequence[str] = ("bleu", "chrf"),
    batch_size: int = 64,
    progress: bool = False,
    **search: Any,
) -> Evaluation:
    """Generates an output for each source of a split and scores the outputs.

    Args:
        model_name_or_path: Directory of a saved model, or its name on the Hub.
        data_arguments: Where the data come from. `max_source_length` truncates the sources.
        split: "train", "validation" or "test".
        metrics: Of `names.METRIC_NAMES`.
        batch_size: Examples per batch.
        progress: Whether to show a progress bar on standard error.
        **search: Passed to `model.generate`, e.g. `num_beams`.

    Returns:
        Scores, sources and outputs.

    Raises:
        ValueError: If the data have no such split, the model cannot be loaded, or a length penalty
            is given without a beam search.
    """
    data = load_parallel_data(data_arguments)
    if split not in data:
        raise ValueError(f"`split` {split!r} is not in the data: choose from {sorted(data)}.")
    examples = data[split]
    model, tokenizer = load_model(model_name_or_path)
    if (limit := data_arguments.max_source_length) is not None:
        tokenizer.model_max_length = min(limit, tokenizer.model_max_length)
    if (penalty := search.get("length_penalty")) is not None:
        check_length_penalty(penalty, search.get("num_beams") or model.generation_config.num_beams)
    outputs = generate_lines(
        model, tokenizer, examples["source"], batch_size=batch_size, progress=progress, **search
    )
    predictions = [texts[0] for texts in outputs]
    column = "references" if "references" in examples.column_names else "target"
    references = list(examples[column])
    scores = {name: score_texts(name, predictions, references) for name in metrics}
    return Evaluation(scores, list(examples["source"]), predictions)
