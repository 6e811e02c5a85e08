"""Which units of pairs of texts translate each other, learnt from the pairs alone.

A unit is a word or a token, as a number. Source: IBM model 1 (Brown et al. 1993, "The Mathematics
of Statistical Machine Translation"), with the preference for the diagonal of Dyer et al. 2013 ("A
Simple, Fast, and Effective Reparameterization of IBM Model 2"), learnt in both directions; a link
counts as much as both agree (Liang et al. 2006, "Alignment by Agreement").
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 5  # as in fast_align
_TENSION = 4.0  # of the diagonal, as fast_align begins with
_LEAST = 1e-100  # no share is divided by zero

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pair = tuple[Sequence[int] | Ints, Sequence[int] | Ints]
"""The numbers of the units of a source and of its target; -1 for an unknown unit."""


class _UnitPairs(NamedTuple):
    """Each unit of each source beside each unit of its target.

    Attributes:
        keys: Number of the pair of units; -1 with an unknown one.
        sources: Number of the source unit among the source units of all texts.
        targets: Number of the target unit among the target units of all texts.
        weights: The preference for the diagonal.
    """

    keys: Ints
    sources: Ints
    targets: Ints
    weights: Floats


class Lexicon:
    """The probabilities that units of some pairs of texts translate each other.

    Args:
        pairs: The pairs to learn from.
        num_targets: Largest number of a target unit, plus 1.
    """

    def __init__(self, pairs: Sequence[Pair], num_targets: int) -> None:
        self.num_targets = num_targets
        cells = self._unit_pairs(pairs)
        known = cells.keys >= 0
        cells = _UnitPairs(
            cells.keys[known], cells.sources[known], cells.targets[known], cells.weights[known]
        )
        keys, pair = np.unique(cells.keys, return_inverse=True)
        # p(target unit | source unit), the other way round, and 0 for other pairs
        self.tables = [np.ones(len(keys) + 1), np.ones(len(keys) + 1)]
        for _ in range(_ROUNDS):
            for side, condition in enumerate((keys // num_targets, keys % num_targets)):
                counts = np.bincount(pair, self._shares(cells, pair, side), len(keys))
                probabilities = counts / np.bincount(condition, counts)[condition]
                self.tables[side] = np.append(probabilities, 0)
        self.keys = np.append(keys, np.iinfo(np.int64).max)  # above all others, for other pairs

    def agreements(self, pairs: Sequence[Pair]) -> list[Floats]:
        """Returns how much each unit of a source belongs to each of its target.

        Returns:
            Numbers from 0 to 1 for each pair, of shape (source units, target units).
        """
        cells = self._unit_pairs(pairs)
        keys, pair = np.unique(cells.keys, return_inverse=True)  # in order, it is 3 times as fast
        index = np.searchsorted(self.keys, keys)
        index = np.where(self.keys[index] == keys, index, -1)[pair]  # the last one is 0
        forth, back = (self._shares(cells, index, side) for side in (0, 1))
        sizes = [(len(source), len(target)) for source, target in pairs]
        ends = np.cumsum([source * target for source, target in sizes])[:-1]
        parts = np.split(forth * back, ends)
        return [part.reshape(size) for part, size in zip(parts, sizes, strict=True)]

    def _shares(self, cells: _UnitPairs, pair: Ints, side: int) -> Floats:
        """Returns the share of each source unit in its target unit (0), or the other way round."""
        shares = self.tables[side][pair] * cells.weights + _LEAST
        owners = cells.sources if side else cells.targets
        return shares / np.bincount(owners, shares)[owners]

    def _unit_pairs(self, pairs: Sequence[Pair]) -> _UnitPairs:
        sources, targets = zip(*pairs, strict=True)
        lengths = np.array([[len(text) for text in side] for side in (sources, targets)])
        counts = lengths[0] * lengths[1]
        row = np.repeat(np.arange(len(pairs)), counts)
        within = np.arange(len(row)) - (counts.cumsum() - counts)[row]
        first, second = np.divmod(within, lengths[1, row])
        distance = np.abs((first + 0.5) / lengths[0, row] - (second + 0.5) / lengths[1, row])
        starts = (lengths.cumsum(1) - lengths)[:, row]
        first, second = first + starts[0], second + starts[1]
        s, t = (np.concatenate(side).astype(np.int64) for side in (sources, targets))
        source, target = s[first], t[second]
        keys = np.where((source >= 0) & (target >= 0), source * self.num_targets + target, -1)
        return _UnitPairs(keys, first, second, np.exp(-_TENSION * distance))
