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
class ModelComparison:
    """The outputs of several models for the same texts, their scores and their differences."""

    models: list[str]
    sources: list[str]
    references: list[list[str]]
    predictions: dict[str, list[str]]
    # For each metric its signature, the score of each model with the ends of its 95% interval, and
    # for each two models the p-value of the paired bootstrap.
    scores: dict[str, Any]
    text_scores: dict[str, list[float]]  # of each output by itself, in the next metric
    text_metric: str  # the first in which a model has another score than the worst possible one


def compare_outputs(
    sources: Sequence[str],
    predictions: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenizers: Sequence[str],
) -> ModelComparison:
    """Scores the outputs of several models, by name, with sacrebleu's tokenizer for each text."""
    scores = _score_systems(predictions, references, metrics, tokenizers)
    first = next(filter(lambda name: _tells_something(name, scores[name]), metrics), metrics[0])
    options = {"effective_order": True} if first == "bleu" else {}  # for a text by itself
    alone = {name: make_metric(first, name, **options) for name in set(tokenizers)}
    return ModelComparison(
        models=list(predictions),
        sources=list(sources),
        references=list(map(list, references)),
        predictions={name: list(outputs) for name, outputs in predictions.items()},
        scores=scores,
        text_scores={
            name: [
                alone[tokenizer].sentence_score(text, texts).score
                for text, texts, tokenizer in zip(outputs, references, tokenizers, strict=True)
            ]
            for name, outputs in predictions.items()
        },
        text_metric=first,
    )


def _tells_something(metric: str, scores: Mapping[str, Any]) -> bool:
    """Returns whether some model has another score than the worst possible one."""
    worst = 100 if metric in ERROR_RATES else 0
    return any(values[metric] != worst for values in scores["models"].values())


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


def describe_comparison(scores: Mapping[str, Any]) -> Iterator[str]:
    """Yields lines for people: the scores in each metric, and the results of the tests."""
    for metric, compared in scores.items():
        yield f"{metric} ({compared['better']} is better):"
        for name, values in compared["models"].items():
            yield f"  {name}: {score_with_interval(values[metric], values['interval'])}"
        for pair in compared["pairs"]:
            p = pair["p_value"]
            answer = "significant" if p < SIGNIFICANT else "no significant difference"
            yield f"  {pair['models'][0]} and {pair['models'][1]}: {answer} (p = {p:.3f})"


def score_with_interval(score: float | None, ends: Sequence[float | None]) -> str:
    """Returns a score with its interval, "41.20 (40.11 to 42.30)"."""
    texts = ["-" if number is None else f"{number:.2f}" for number in (score, *ends)]
    return "{} ({} to {})".format(*texts) if ends else texts[0]


def _score_systems(
    predictions: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenizers: Sequence[str],
) -> dict[str, Any]:
    """Scores each model, and each two models against each other."""
    streams, systems = reference_streams(references), list(predictions.items())
    resamples = number_of_resamples(len(references))
    tokenize = joint_score_tokenizer({*tokenizers})
    scores: dict[str, Any] = {}
    for metric in metrics:
        models, pairs, signature = dict[str, Any](), list[dict[str, Any]](), ""
        for index, (name, outputs) in enumerate(systems):
            made = {metric: make_metric(metric, tokenize)}
            test = PairedTest(systems[index:], made, streams, "bs", resamples)
            signatures, results = test()
            label = next(iter(signatures))
            signature = signature or str(signatures[label])
            baseline, *others = cast(list[Any], results[label])
            ends = [
                without_infinities(end) for end in interval_ends(metric, baseline.mean, baseline.ci)
            ]
            models[name] = {metric: without_infinities(baseline.score), "interval": ends}
            rest = systems[index + 1 :]
            for (other, texts), result in zip(rest, others, strict=True):
                p = _p_value(result, baseline, differing=sum(map(ne, outputs, texts)))
                difference = without_infinities(result.score - baseline.score)
                pairs.append({"models": [name, other], "difference": difference, "p_value": p})
        better = "lower" if metric in ERROR_RATES else "higher"
        found = {"models": models, "pairs": pairs, "signature": signature, "better": better}
        scores[metric] = found
    return scores


def _p_value(result: Any, baseline: Any, differing: int) -> float:
    """Returns the p-value of two models, whose outputs differ for some number of texts."""
    # For equal scores sacrebleu returns the least p-value, as if chance had no part.
    if result.score == baseline.score:
        return 1.0
    # The bootstrap of few texts hardly varies. This is the chance that one of two equal models,
    # named beforehand, is better in all texts in which they differ.
    return max(float(result.p_value), 2.0**-differing)
