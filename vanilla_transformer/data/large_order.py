"""Token-budget batches of a corpus that is too large to be sorted in each epoch.

Only the lengths are looked at, block by block, so that the memory does not grow with the corpus.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanilla_transformer.data import mixing
from vanilla_transformer.data.mixing import Mixture

Ints = NDArray[np.int64]

_DEVIATIONS = 4  # of the number of batches of a mixture, for which each epoch has room
_RATIO_OF_A_BUCKET = 1.06  # of the longest to the shortest text of a bucket, on each side


def cut_greedily(source: Ints, target: Ints, max_tokens: int) -> Ints:
    """Returns the positions that cut sorted lengths into the fewest batches in this order."""
    cuts = [0]
    while (start := cuts[-1]) < len(source):
        # A batch only gets wider as it grows: its first example bounds its number of examples.
        most = max_tokens // max(1, int(source[start] + target[start]))
        stop = start + most
        width = np.maximum.accumulate(source[start:stop])
        width += np.maximum.accumulate(target[start:stop])
        cost = width * np.arange(1, len(width) + 1)
        cuts.append(start + int(np.searchsorted(cost, max_tokens, side="right")))
    return np.asarray(cuts, dtype=np.int64)


def halve_largest_batches(cuts: Ints, wanted: int) -> Ints:
    """Halves the batches with the most examples until there are `wanted` batches."""
    while (missing := wanted - (len(cuts) - 1)) > 0:
        sizes = np.diff(cuts)
        largest = np.argsort(-sizes, kind="stable")[:missing]
        largest = largest[sizes[largest] > 1]
        cuts = np.sort(np.concatenate([cuts, cuts[largest] + sizes[largest] // 2]))
    return cuts


class LargeOrder:
    """Draws the batches of each epoch from blocks of pairs.

    Pairs of similar lengths on both sides share a bucket; each bucket has its number of pairs per
    batch. A block is drawn from all over the corpora, in runs of neighbours. The pairs that fill no
    batch of their bucket go on to the next block, and those of the last block are batched across
    buckets, in as many batches as give every epoch the same number.

    Args:
        source: Number of tokens of each source, in memory or on the disk.
        target: The same of each target.
        num_processes: The number of batches is a multiple of it.

    Raises:
        ValueError: If the processes cannot have equally many batches.
    """

    def __init__(
        self,
        source: NDArray[Any],
        target: NDArray[Any],
        max_tokens: int,
        mixture: Mixture,
        num_processes: int,
    ) -> None:
        self.source, self.target, self.mixture = source, target, mixture
        self.max_tokens = max_tokens
        # Lengths fall into bands that grow by a constant ratio; a bucket is a band of each side.
        longest = max(int(source.max()), int(target.max()))
        exact = np.log(np.arange(longest + 1) + 1) / np.log(_RATIO_OF_A_BUCKET)
        band = np.floor(exact).astype(np.int64)  # by length
        bands = int(band[-1]) + 1
        widest = np.zeros(bands, np.int64)  # the longest length of each band
        np.maximum.at(widest, band, np.arange(longest + 1))
        # Neighbours in this order are similar on both sides: sources go up and down in turn, as in
        # a sorted corpus.
        of_target, of_source = np.divmod(np.arange(bands**2), bands)
        of_source = np.where(of_target % 2, bands - 1 - of_source, of_source)
        self._widths = widest[of_source], widest[of_target]
        is_odd = band % 2 == 1
        self._first_bucket = band * bands + np.where(is_odd, bands - 1, 0)  # by length of target
        self._direction, self._band = np.where(is_odd, -1, 1), band
        sizes = np.maximum(1, max_tokens // np.maximum(1, sum(self._widths)))
        self._pairs_of_batch = sizes = np.minimum(sizes, len(source))
        self._counts = self._count_buckets(0)
        # The end of an epoch has enough pairs for as many batches as the processes need, and as
        # epochs of longer pairs have.
        slack, full = _DEVIATIONS * self._share_deviation(), self._counts // sizes
        spare = 2 * slack * float(full.sum()) / max(1, int((full * (sizes - 1)).sum()))
        self._kept_share = min(1.0, spare)
        self._kept = num_processes // max(1, int(sizes[self._counts.argmax()]) - 1) + 2
        full, cuts = self._plan_buckets(self._counts)
        drawn = int(full.sum()) + len(cuts) - 1
        self.num_batches = -(-int(drawn * (1 + slack)) // num_processes) * num_processes
        if not self._has_room(full, cuts, self._counts):
            raise ValueError(
                f"`max_tokens` of {max_tokens} makes {drawn} batches, which {num_processes} "
                "processes cannot share equally: raise `max_tokens`."
            )

    def _share_deviation(self) -> float:
        """Returns the standard deviation of the tokens of an epoch, as a share of their mean."""
        variance, size = 0.0, mixing.PAIRS_OF_A_BLOCK
        for rows, length, draws in self.mixture.varying_runs():
            sums = []
            for start in range(rows.start, rows.stop, size):
                part = slice(start, min(start + size, rows.stop))
                tokens = np.add(self.source[part], self.target[part], dtype=np.int64)
                sums.append(np.add.reduceat(tokens, np.arange(0, len(tokens), length)))
            variance += draws * float(np.concatenate(sums).var())
        return math.sqrt(variance) / max(1, int((self._counts * sum(self._widths)).sum()))

    def _count_buckets(self, epoch: int) -> Ints:
        """Returns how many pairs of an epoch each bucket has."""
        counts = np.zeros(len(self._pairs_of_batch), np.int64)
        for rows in self.mixture.parts(epoch):
            buckets = self._buckets_of(self.source[rows], self.target[rows])
            counts += np.bincount(buckets, minlength=len(counts))
        return counts

    def _plan_buckets(self, counts: Ints) -> tuple[Ints, Ints]:
        """Returns the full batches of each bucket, and the positions that cut the other pairs."""
        full = counts // self._pairs_of_batch
        full -= (full * self._kept_share).astype(np.int64)
        common = int(counts.argmax())
        full[common] = max(0, full[common] - self._kept)
        rest = np.repeat(np.arange(len(counts)), counts - full * self._pairs_of_batch)
        source, target = (widths[rest] for widths in self._widths)
        return full, cut_greedily(source, target, self.max_tokens)

    def _has_room(self, full: Ints, cuts: Ints, counts: Ints) -> bool:
        """Returns whether the pairs that fill no batch can be cut into as many as are missing."""
        wanted = self.num_batches - int(full.sum())
        return len(cuts) - 1 <= wanted <= int((counts - full * self._pairs_of_batch).sum())

    def _buckets_of(self, source: NDArray[Any], target: NDArray[Any]) -> Ints:
        """Returns the bucket of each pair."""
        buckets: Ints = self._direction[target] * self._band[source]
        buckets += self._first_bucket[target]
        return buckets

    def epoch(self, rng: np.random.Generator, number: int) -> Iterator[Ints]:
        """Yields the batches of an epoch, counted from 0."""
        counts = self._count_buckets(number) if number else self._counts
        left, cuts = self._plan_buckets(counts)  # full batches of each bucket that are to come
        if not self._has_room(left, cuts, counts):  # its pairs are too long, or too short
            number = 0
            left, cuts = self._plan_buckets(self._counts)
        cuts = halve_largest_batches(cuts, self.num_batches - int(left.sum()))
        rest = np.zeros(0, np.int64)
        for drawn in self.mixture.blocks(number):
            block = np.concatenate([rest, rng.permutation(drawn)])  # what was left comes first
            buckets = self._buckets_of(self.source[block], self.target[block])
            order = np.argsort(buckets, kind="stable")
            block, counts_in_block = block[order], np.bincount(buckets, minlength=len(left))
            batches = np.minimum(counts_in_block // self._pairs_of_batch, left)
            left -= batches
            firsts = np.cumsum(counts_in_block) - counts_in_block
            of_bucket = np.repeat(np.arange(len(left)), batches)
            # The number of each batch among those of its bucket.
            place = np.arange(len(of_bucket)) - np.repeat(np.cumsum(batches) - batches, batches)
            starts = firsts[of_bucket] + place * self._pairs_of_batch[of_bucket]
            ends = starts + self._pairs_of_batch[of_bucket]
            for batch in rng.permutation(len(starts)):
                yield block[starts[batch] : ends[batch]]
            # The number of each pair in its bucket tells whether a batch has taken it.
            place = np.arange(len(block)) - np.repeat(firsts, counts_in_block)
            rest = block[place >= np.repeat(batches * self._pairs_of_batch, counts_in_block)]
        for batch in rng.permutation(len(cuts) - 1):
            yield rest[cuts[batch] : cuts[batch + 1]]
