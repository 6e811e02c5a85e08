"""What trainings of a given time have reached, for an idea of the result before a run begins."""

from math import log
from typing import NamedTuple

from vanilla_transformer.languages import language_name


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
    Reached("tr", 3_000, 10, 128, 30.0, 22.5, 5.4, 14.5),
    Reached("tr", 10_000, 10, 128, 8.8, 31.4, 11.0, 14.5),
    Reached("tr", 56_000, 10, 128, 1.8, 34.8, 13.6, 14.5),
    Reached("tr", 56_000, 30, 192, 5.2, 46.3, 20.2, 14.5),
)
"""Trainings of program texts from English, on one core; docs/sizing.md shows them as a table."""


def describe_expectation(pairs: int, minutes: float, target_language: str | None) -> str:
    """Tells of the training that is most like a run: in its language, if that is among them."""

    def distance(row: Reached) -> tuple[bool, float]:
        ratios = pairs / row.pairs, minutes / row.minutes
        return row.target_language != target_language, sum(abs(log(ratio)) for ratio in ratios)

    row = min(REACHED, key=distance)
    return (
        f"As an idea of the result: {row.pairs:,} pairs of program texts from English to "
        f"{language_name(row.target_language)} reached chrF {row.chrf} and BLEU {row.bleu} in "
        f"{row.minutes} minutes of one core; unchanged sources have chrF {row.copied_chrf}."
    )
