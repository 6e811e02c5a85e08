"""Minimum Bayes risk: the output that is most similar to the others (Kumar and Byrne 2004)."""

from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module

from vanilla_transformer.extras import optional_packages

Metric = Callable[[str, str], float]
"""Returns the similarity of an output and a reference, higher for better."""

METRICS = ("chrf", "bleu")


def metric_by_name(metric: str | Metric) -> Metric:
    """Returns a metric of sacreBLEU for single sentences, or the given function.

    Args:
        metric: One of `METRICS`, or a function.

    Raises:
        ValueError: If the name is unknown.
        ModuleNotFoundError: If sacreBLEU is not installed. The message tells how to install it.
    """
    if callable(metric):
        return metric
    if metric not in METRICS:
        raise ValueError(f"Unknown metric {metric!r}: use one of {METRICS}, or a function.")
    with optional_packages():
        sacrebleu = import_module("sacrebleu")
    scorer = sacrebleu.CHRF() if metric == "chrf" else sacrebleu.BLEU(effective_order=True)
    return lambda output, reference: float(scorer.sentence_score(output, [reference]).score)


def least_risk(outputs: Sequence[str], metric: Metric) -> int:
    """Chooses the output with the highest mean similarity to all outputs.

    Args:
        outputs: Candidates, which are also the references. One that occurs twice counts twice.
        metric: The similarity.

    Returns:
        The index of the chosen output; of equal ones, the first.
    """
    counts = Counter(outputs)
    gains = {
        output: sum(count * metric(output, other) for other, count in counts.items())
        for output in counts
    }
    return max(range(len(outputs)), key=lambda index: (gains[outputs[index]], -index))
