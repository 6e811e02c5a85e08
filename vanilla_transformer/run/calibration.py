"""How good the outputs of a model are, learnt from outputs with references."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sacrebleu import CHRF

from vanilla_transformer.inference.quality import FEWEST, Calibration, rank_correlation
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.text.languages import known_tag

_FIRST_READ, _WORST = 0.3, 0.1  # shares of the outputs, to say what reading the first ones finds


def calibrate(
    folder: str | Path,
    outputs: Sequence[Translation],
    references: Sequence[str | Sequence[str]],
    targets: Iterable[str | None],
) -> str:
    """Writes the calibration of a model beside it; returns what was written, for people.

    Args:
        outputs: With scores, of texts that the model was not trained on.
        references: The reference of each output, or several.
        targets: The language of each output, in any spelling.
    """
    languages = list(map(known_tag, targets))
    metric = CHRF()
    values = [
        metric.sentence_score(
            output.text, [reference] if isinstance(reference, str) else list(reference)
        ).score
        for output, reference in zip(outputs, references, strict=True)
    ]
    described = [output.described for output in outputs]
    fitted = Calibration.fit(described, values, languages)
    if fitted is None:
        return (
            f"Quality: not calibrated, so outputs will have none: it takes {FEWEST} outputs of the "
            "validation data that differ."
        )
    fitted.save(Path(folder))
    halves: list[Any] = [slice(0, None, 2), slice(1, None, 2)]
    expected = [0.0] * len(values)
    for learnt, told in (halves, halves[::-1]):
        half = Calibration.fit(described[learnt], values[learnt], languages[learnt]) or fitted
        rows = zip(described[told], languages[told], strict=True)
        expected[told] = [half.expected(*row) for row in rows]
    found = share_of_worst(expected, values)
    return (
        f"Quality: calibrated on {len(outputs):,} outputs. Its rank correlation with chrF is "
        f"{rank_correlation(expected, values):.2f}, and the lowest 30% hold {found:.0%} of the "
        "worst tenth (each half told by the other)."
    )


def share_of_worst(expected: Sequence[float], values: Sequence[float]) -> float:
    """Returns the share of the worst tenth, by values, in the 30% that are expected to be worst."""
    numbers = range(len(values))
    first = sorted(numbers, key=expected.__getitem__)[: round(_FIRST_READ * len(numbers))]
    worst = sorted(numbers, key=values.__getitem__)[: round(_WORST * len(numbers)) or 1]
    return len({*first} & {*worst}) / len(worst)
