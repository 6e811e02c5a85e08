"""Learns the quality of a model's outputs from outputs with references."""

from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset

from vanilla_transformer.columns import languages_of_rows, references_of
from vanilla_transformer.inference.quality import FEWEST, Calibration, Outcome, rank_correlation
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.training.metrics import make_metric, score_tokenizer

_CHECKED = 0.3
_WORST = 0.1
"""Share of the outputs that a person checks first, and share of bad ones; chosen, not measured."""


def calibrate(folder: str | Path, outputs: Sequence[Translation], rows: Dataset) -> str:
    """Writes the calibration of a model into its folder; returns a sentence on it, for people.

    The outputs have scores, and the model was not trained on their rows.
    """
    folder = Path(folder)
    first, second, num_different = _outcomes_in_halves(outputs, rows)
    outcomes = [*first, *second]
    counted = f"{len(outcomes):,} outputs"
    if left_out := len(outputs) - len(outcomes):
        counted += f" ({left_out:,} not read)"
    expected = [*_expected(first, learnt_from=second), *_expected(second, learnt_from=first)]
    values = [outcome.chrf for outcome in outcomes]
    correlation = rank_correlation(expected, values)
    fitted = Calibration.fit(outcomes)
    # Without any relation, two standard errors are rarely exceeded.
    if fitted is not None and correlation >= 2 / max(num_different, 1) ** 0.5:
        fitted.save(folder)
        share = share_of_worst(expected, values)
        return (
            f"Quality: calibrated on {counted}. Its rank correlation with chrF is "
            f"{correlation:.2f}, and the lowest {_CHECKED:.0%} hold {share:.0%} of the worst tenth "
            "(each half told by the other)."
        )
    reason = f"its rank correlation with chrF would be {correlation:.2f}"
    if fitted is None:
        reason = f"it takes {FEWEST} outputs of the validation data that differ"
    quality = "have none" if Calibration.load(folder) is None else "keep the former quality"
    return f"Quality: not calibrated on {counted}, so outputs {quality}: {reason}."


def _outcomes_in_halves(
    outputs: Sequence[Translation], rows: Dataset
) -> tuple[list[Outcome], list[Outcome], int]:
    """Returns the outputs with features in two halves, and the number of different ones.

    Equal outputs are in the same half.
    """
    halves: tuple[list[Outcome], list[Outcome]] = ([], [])
    number_of: dict[str, int] = {}
    metric = make_metric("chrf", score_tokenizer(None))
    references, languages = references_of(rows), languages_of_rows(rows)
    for output, texts, (_, target) in zip(outputs, references, languages, strict=True):
        if output.features:
            chrf = metric.sentence_score(output.text, texts).score
            number = number_of.setdefault(output.text, len(number_of))
            halves[number % 2].append(Outcome(output.features, chrf, known_tag(target)))
    return *halves, len(number_of)


def _expected(outcomes: Sequence[Outcome], learnt_from: Sequence[Outcome]) -> list[float]:
    """Returns the quality of outputs by a calibration of other outputs; 0 if there is none."""
    other = Calibration.fit(learnt_from, FEWEST // 2)
    return [other.expected(each.features, each.language) if other else 0.0 for each in outcomes]


def share_of_worst(expected: Sequence[float], values: Sequence[float]) -> float:
    """Returns the share of the worst values that are among those to check, by the expectations."""
    indices = range(len(values))
    first = sorted(indices, key=expected.__getitem__)[: round(_CHECKED * len(values))]
    worst = sorted(indices, key=values.__getitem__)[: round(_WORST * len(values)) or 1]
    return len({*first} & {*worst}) / len(worst)
