"""The scores of recorded trainings, as an idea of the result before a run begins."""

from math import log
from typing import NamedTuple

from vanilla_transformer.language_tags import closest_tag, language_name


class Reached(NamedTuple):
    """The scores of one training, on held-out texts of other programs."""

    target_language: str
    pairs: int
    minutes: int
    d_model: int
    epochs: float
    chrf: float
    bleu: float
    copied_chrf: float  # of the unchanged sources


REACHED = (
    Reached("de", 3_000, 10, 128, 25.0, 24.3, 10.8, 27.3),
    Reached("de", 10_000, 10, 128, 9.4, 32.0, 16.4, 27.3),
    Reached("de", 56_000, 10, 128, 1.5, 36.1, 19.3, 27.3),
    Reached("de", 56_000, 30, 192, 4.2, 42.9, 24.1, 27.3),
    Reached("tr", 3_000, 10, 128, 30.0, 22.5, 5.4, 14.5),
    Reached("tr", 10_000, 10, 128, 11.7, 31.0, 16.0, 14.8),
    Reached("tr", 56_000, 10, 128, 1.8, 36.8, 20.3, 14.8),
    Reached("tr", 56_000, 30, 192, 3.7, 44.5, 24.5, 14.8),
    Reached("ja", 3_000, 10, 128, 25.4, 13.5, 8.1, 8.6),
    Reached("ja", 10_000, 10, 128, 9.9, 20.7, 12.9, 8.6),
    Reached("ja", 56_000, 10, 128, 1.5, 24.0, 15.0, 8.6),
    Reached("ja", 56_000, 30, 192, 4.4, 32.0, 22.7, 8.6),
    Reached("zh", 3_000, 10, 128, 21.7, 10.0, 8.4, 10.8),
    Reached("zh", 10_000, 10, 128, 10.7, 16.2, 14.8, 10.8),
    Reached("zh", 56_000, 10, 128, 1.6, 25.3, 22.7, 10.8),
    Reached("zh", 56_000, 30, 192, 4.4, 29.4, 28.2, 10.8),
)
"""Trainings of program texts from English, on one core; docs/sizing.md shows them as a table."""

_EPOCHS_APART = 1.5
_PAIRS_APART = 2.5
_WIDTHS_APART = 1.25
"""Largest factors between the epochs, pairs and width of a run and those of the quoted training.

Chosen, not measured: most runs between two rows of the table, up to 5.6 times apart, are near one.
"""


def describe_expectation(
    pairs: int, epochs: float, d_model: int, target_language: str | None
) -> str:
    """Returns a sentence on the scores of the recorded training that is most similar to a run.

    Trainings of its target language go first. "": none has similar pairs, epochs and width.
    """
    recorded = {row.target_language for row in REACHED}
    spelt = target_language and closest_tag(target_language, recorded)
    of_language = [row for row in REACHED if row.target_language == spelt]

    def distance(row: Reached) -> float:
        return sum(abs(log(ratio)) for ratio in (pairs / row.pairs, epochs / row.epochs))

    near = [
        row
        for row in of_language or REACHED
        if 1 / _EPOCHS_APART <= epochs / row.epochs <= _EPOCHS_APART
        and 1 / _PAIRS_APART <= pairs / row.pairs <= _PAIRS_APART
        and 1 / _WIDTHS_APART <= d_model / row.d_model <= _WIDTHS_APART
    ]
    if not near:
        return ""
    row = min(near, key=distance)
    return (
        f"As an idea of the result: {row.pairs:,} pairs of program texts from English to "
        f"{language_name(row.target_language)} reached chrF {row.chrf} and BLEU {row.bleu} in "
        f"{row.epochs} epochs, {row.minutes} minutes of one core; unchanged sources have chrF "
        f"{row.copied_chrf}."
    )
