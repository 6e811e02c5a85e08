"""What trainings of some minutes have reached: what to expect of one like them."""

from collections.abc import Collection
from math import log
from typing import NamedTuple


class Result(NamedTuple):
    """The scores of one training with `train --minutes`, from English."""

    language: str  # of the targets
    pairs: int
    minutes: float | None  # None: all epochs
    chrf: float
    bleu: float
    copied: float  # chrF of the unchanged sources


RESULTS: tuple[Result, ...] = ()
"""Results on held-out programs; docs/sizing.md has them as a table."""


def nearest_result(
    languages: Collection[str | None], pairs: int, minutes: float | None
) -> str | None:
    """Says what the training has reached that is most like one; None: none was measured.

    Args:
        languages: Tags of the targets. One of them counts more than the number of pairs.
    """

    def distance(row: Result) -> tuple[bool, float]:
        ratios = pairs / row.pairs, (row.minutes or 1_000) / (minutes or 1_000)
        return row.language not in languages, sum(abs(log(ratio)) for ratio in ratios)

    if not RESULTS:
        return None
    row = min(RESULTS, key=distance)
    time = "in all epochs" if row.minutes is None else f"in {row.minutes:g} minutes"
    return (
        f"What to expect: {row.pairs:,} pairs from en to {row.language} reached chrF "
        f"{row.chrf:.1f} and BLEU {row.bleu:.1f} {time}; copying the sources has chrF "
        f"{row.copied:.1f}."
    )
