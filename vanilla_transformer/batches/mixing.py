"""The pairs of each epoch, in blocks where they are too many to be sorted at once.

Corpora may have other shares of an epoch than their sizes give them.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

PAIRS_OF_A_BLOCK = 2**20
PAIRS_OF_A_RUN = 2**10
"""Neighbours on the disk that stay together, of a corpus that is larger than a block."""


class Mixture:
    """Chooses the pairs of each epoch, as many as there are, from corpora in given shares.

    A corpus gives its pairs in a new random order again and again, and each epoch takes the next
    ones: all of its pairs are used equally often, and none is left out for good. The choice depends
    only on the seed and the epoch, so that a resumed run, and any number of workers and processes,
    choose the same pairs.

    Args:
        sizes: Number of pairs of each corpus by its name, in the order in which they follow each
            other.
        shares: The share of each corpus by its name, above 0; they sum to 1.

    Attributes:
        counts: Number of pairs of each corpus in an epoch, by its name.
    """

    def __init__(self, sizes: Mapping[str, int], shares: Mapping[str, float], seed: int) -> None:
        self.seed, total = seed, sum(sizes.values())
        ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
        self._rows = [range(ends[name] - sizes[name], ends[name]) for name in sorted(sizes)]
        exact = np.array([shares[name] for name in sorted(sizes)]) * total
        counts = np.floor(exact).clip(min=1).astype(np.int64)  # each corpus is used
        missing = total - int(counts.sum())
        counts[np.argsort(counts - exact, kind="stable")[: max(missing, 0)]] += 1
        counts[counts.argmax()] += min(missing, 0)
        self.counts: dict[str, int] = dict(zip(sorted(sizes), counts.tolist(), strict=True))

    def __len__(self) -> int:
        return sum(self.counts.values())

    def blocks(self, epoch: int) -> Iterator[Ints]:
        """Yields the indices of the pairs of an epoch, counted from 0.

        Each block has about `PAIRS_OF_A_BLOCK` pairs, in the shares of the epoch.
        """
        parts = -(-len(self) // PAIRS_OF_A_BLOCK)  # rounded up
        for part in range(parts):
            yield np.concatenate(
                [
                    self._take_rows(number, epoch * count + first, last - first)
                    for number, count in enumerate(self.counts.values())
                    for first, last in [(part * count // parts, (part + 1) * count // parts)]
                ]
            )

    def _take_rows(self, number: int, start: int, count: int) -> Ints:
        """Returns rows of the endless order of a corpus, from a position on."""
        rows, parts = self._rows[number], [np.zeros(0, np.int64)]
        length = PAIRS_OF_A_RUN if len(rows) > PAIRS_OF_A_BLOCK else 1
        while count:
            turn, skipped = divmod(start, len(rows))
            rng = np.random.default_rng((self.seed, number, turn))
            runs = rng.permutation(-(-len(rows) // length))
            stop = min(skipped + count, len(rows))
            positions, missing = np.arange(skipped, stop), len(runs) * length - len(rows)
            # The last run of the corpus, which may be anywhere here, is shorter than the others.
            positions[positions >= (runs.argmax() + 1) * length - missing] += missing
            run = positions // length
            parts.append(rows.start + positions + (runs[run] - run) * length)
            start, count = start + stop - skipped, count - (stop - skipped)
        return np.concatenate(parts)
