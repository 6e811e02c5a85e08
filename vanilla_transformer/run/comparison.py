"""Compares the outputs of several models for the same texts; sacrebleu does the statistics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any, cast

from sacrebleu.significance import PairedTest

from vanilla_transformer.data.near_twins import WITHOUT_TWINS
from vanilla_transformer.files.file_contents import without_infinities
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.training.metrics import (
    interval_ends,
    joint_score_tokenizer,
    make_metric,
    number_of_resamples,
    reference_streams,
)

SIGNIFICANT = 0.05
"""A p-value below it is usually called significant."""


@dataclass(frozen=True)
class PairTest:
    """The paired bootstrap test of two models in one metric."""

    models: list[str]
    difference: float | None  # second score minus first score; None: it is not finite
    p_value: float


@dataclass(frozen=True)
class MetricComparison:
    """The scores of several models in one metric, and the tests of each two of them."""

    models: dict[str, dict[str, Any]]  # the score by the name of the metric, and its 95% "interval"
    pairs: list[PairTest]
    signature: str  # sacrebleu's
    better: str  # "higher" or "lower" scores


@dataclass(frozen=True)
class ModelComparison:
    """The outputs of several models for the same texts, their scores and their differences."""

    models: list[str]
    sources: list[str]
    references: list[list[str]]
    predictions: dict[str, list[str]]
    scores: dict[str, MetricComparison]  # by the name of the metric
    text_scores: dict[str, list[float]]  # of each output by itself, in `text_metric`
    text_metric: str  # the first in which a model has another score than the worst possible one


def compare_outputs(
    sources: Sequence[str],
    predictions: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenizers: Sequence[str],
) -> ModelComparison:
    """Scores the outputs of several models, by name, with sacrebleu's tokenizer for each text."""
    systems, streams = list(predictions.items()), reference_streams(references)
    tokenize = joint_score_tokenizer({*tokenizers})
    scores = {name: _compare_in_metric(name, systems, streams, tokenize) for name in metrics}
    text_metric = next((name for name in metrics if _differs(name, scores[name])), metrics[0])
    options = {"effective_order": True} if text_metric == "bleu" else {}  # for a text by itself
    scorers = {name: make_metric(text_metric, name, **options) for name in set(tokenizers)}
    return ModelComparison(
        models=list(predictions),
        sources=list(sources),
        references=list(map(list, references)),
        predictions={name: list(outputs) for name, outputs in predictions.items()},
        scores=scores,
        text_scores={
            name: [
                scorers[tokenizer].sentence_score(text, texts).score
                for text, texts, tokenizer in zip(outputs, references, tokenizers, strict=True)
            ]
            for name, outputs in predictions.items()
        },
        text_metric=text_metric,
    )


def _differs(metric: str, compared: MetricComparison) -> bool:
    """Returns whether the score of a model differs from the worst possible one."""
    worst = 100 if metric in ERROR_RATES else 0
    return any(figures[metric] != worst for figures in compared.models.values())


def describe_scores(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields a line for people on each score of `evaluate_model`."""
    for metric, figures in scores.items():
        score = score_with_interval(figures[metric], figures.get("interval", ()))
        yield f"{metric}: {score}  {figures['signature']}"
        if without := figures.get(WITHOUT_TWINS):
            yield (
                f"  without texts that are nearly equal to training texts: {without['score']:.2f} "
                f"({without['texts']:,} texts)"
            )


def describe_comparison(scores: Mapping[str, MetricComparison]) -> Iterator[str]:
    """Yields lines for people: the scores in each metric, and the results of the tests."""
    for metric, compared in scores.items():
        yield f"{metric} ({compared.better} is better):"
        for name, figures in compared.models.items():
            yield f"  {name}: {score_with_interval(figures[metric], figures['interval'])}"
        for test in compared.pairs:
            verdict = "significant" if test.p_value < SIGNIFICANT else "no significant difference"
            yield f"  {' and '.join(test.models)}: {verdict} (p = {test.p_value:.3f})"


def score_with_interval(score: float | None, ends: Sequence[float | None]) -> str:
    """Returns a score with its interval, "41.20 (40.11 to 42.30)"."""
    texts = ["-" if number is None else f"{number:.2f}" for number in (score, *ends)]
    return "{} ({} to {})".format(*texts) if ends else texts[0]


def _compare_in_metric(
    metric: str, systems: list[tuple[str, Sequence[str]]], streams: Any, tokenize: str
) -> MetricComparison:
    """Scores each model, and tests it against each later one."""
    resamples = number_of_resamples(len(streams[0]))
    models, pairs, signature = dict[str, dict[str, Any]](), list[PairTest](), ""
    for index, (name, outputs) in enumerate(systems):
        metrics = {metric: make_metric(metric, tokenize)}
        signatures, results = PairedTest(systems[index:], metrics, streams, "bs", resamples)()
        ((label, found),) = signatures.items()
        signature = signature or str(found)
        first, *later = cast(list[Any], results[label])
        ends = map(without_infinities, interval_ends(metric, first.mean, first.ci))
        models[name] = {metric: without_infinities(first.score), "interval": [*ends]}
        for (other, other_outputs), second in zip(systems[index + 1 :], later, strict=True):
            difference = without_infinities(second.score - first.score)
            p_value = _p_value(first, second, num_different=sum(map(ne, outputs, other_outputs)))
            pairs.append(PairTest([name, other], difference, p_value))
    better = "lower" if metric in ERROR_RATES else "higher"
    return MetricComparison(models, pairs, signature, better)


def _p_value(first: Any, second: Any, num_different: int) -> float:
    """Returns the p-value of two models, by their results and the number of different outputs."""
    # For equal scores sacrebleu returns the least p-value, as if chance had no part.
    if second.score == first.score:
        return 1.0
    # The bootstrap of few texts hardly varies. This is the chance that one of two equal models,
    # named beforehand, is better in all texts in which they differ.
    return max(float(second.p_value), 2.0**-num_different)
