"""Which pairs an epoch holds, where corpora have shares that are not those of their sizes."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Mixture:
    """Chooses the pairs of each epoch, as many as there are, from corpora in given shares.

    A corpus gives its pairs in a new random order again and again, and each epoch takes the next
    ones: all of its pairs are used equally often, and none is left out for good. The choice depends
    only on the seed and the epoch, so that a resumed run, and any number of workers and processes,
    choose the same pairs.

    Args:
        names: Name of the corpus of each pair.
        shares: The share of each corpus by its name, above 0; they sum to 1.
    """

    def __init__(self, names: Sequence[str], shares: Mapping[str, float], seed: int) -> None:
        self.seed = seed
        corpora, inverse = np.unique(np.asarray(names), return_inverse=True)
        self._rows = [np.flatnonzero(inverse == number) for number in range(len(corpora))]
        exact = np.array([shares[str(name)] for name in corpora]) * len(inverse)
        counts = np.floor(exact).astype(np.int64)
        most = np.argsort(counts - exact, kind="stable")[: len(inverse) - int(counts.sum())]
        counts[most] += 1
        self.counts: dict[str, int] = dict(zip(map(str, corpora), counts.tolist(), strict=True))

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __call__(self, epoch: int) -> Ints:
        """Returns the indices of the pairs of an epoch, counted from 0."""
        chosen = [
            self._take_rows(number, epoch * count, count)
            for number, count in enumerate(self.counts.values())
        ]
        return np.concatenate(chosen)

    def _take_rows(self, number: int, start: int, count: int) -> Ints:
        """Returns rows of the endless order of a corpus, from a position on."""
        rows = self._rows[number]
        first, last = start // len(rows), -(-(start + count) // len(rows))
        rounds = [
            np.random.default_rng((self.seed, number, turn)).permutation(rows)
            for turn in range(first, last)
        ]
        found = np.concatenate([np.zeros(0, np.int64), *rounds])
        return found[start - first * len(rows) :][:count]
