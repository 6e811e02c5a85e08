"""Token-budget batches of a corpus that is too large to be sorted in each epoch.

Only the lengths are looked at, block by block, so that the memory does not grow with the corpus.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

PAIRS_OF_A_BLOCK = 2**20
_PAIRS_OF_A_RUN = 2**10  # neighbours on the disk that stay together
_RATIO_OF_A_BUCKET = 1.06  # of the longest to the shortest text of a bucket, on each side


class LargeOrder:
    """Draws the batches of each epoch from blocks of pairs.

    Pairs of similar lengths on both sides share a bucket; each bucket has its number of pairs per
    batch. A block is drawn from all over the corpus, in runs of neighbours. The pairs that fill no
    batch of their bucket go on to the next block, and those of the last block are batched across
    buckets. So every epoch has the same number of batches, and every pair once.

    Args:
        source: Number of tokens of each source, in memory or on the disk.
        target: The same of each target.
        max_tokens: Budget of a batch.
        most: Largest number of pairs of a batch; None: no limit.
        num_processes: The number of batches is a multiple of it.
        cut: Cuts sorted lengths into batches: returns the positions.
        halve: Halves the largest batches until there are so many.

    Attributes:
        num_batches: Number of batches of every epoch.

    Raises:
        ValueError: If the processes cannot have equally many batches.
    """

    def __init__(
        self,
        source: NDArray[Any],
        target: NDArray[Any],
        max_tokens: int,
        most: int | None,
        num_processes: int,
        cut: Callable[[Ints, Ints], Ints],
        halve: Callable[[Ints, int], Ints],
    ) -> None:
        self.source, self.target = source, target
        longest = max(int(source.max()), int(target.max()))
        self._band_of_length = np.floor(
            np.log(np.arange(longest + 1) + 1) / np.log(_RATIO_OF_A_BUCKET)
        ).astype(np.int64)
        bands = int(self._band_of_length[-1]) + 1
        widest = np.zeros(bands, np.int64)
        np.maximum.at(widest, self._band_of_length, np.arange(longest + 1))
        # Buckets in the order in which those of a corpus that is sorted follow each other.
        of_target, of_source = np.divmod(np.arange(bands**2), bands)
        of_source = np.where(of_target % 2, bands - 1 - of_source, of_source)
        self._number_of_bands = bands
        sizes = np.maximum(1, max_tokens // np.maximum(1, widest[of_target] + widest[of_source]))
        self._pairs_of_batch = np.minimum(sizes, most or len(source))
        counts = np.zeros(bands**2, np.int64)
        for start in range(0, len(source), PAIRS_OF_A_BLOCK):
            rows = slice(start, start + PAIRS_OF_A_BLOCK)
            counts += np.bincount(self._buckets_of(source[rows], target[rows]), minlength=bands**2)
        self._full_batches = counts // self._pairs_of_batch
        # The end of an epoch has enough pairs for as many batches as the processes need.
        common = int(counts.argmax())
        kept = num_processes // max(1, int(self._pairs_of_batch[common]) - 1) + 2
        self._full_batches[common] = max(0, self._full_batches[common] - kept)
        rest = np.repeat(np.arange(bands**2), counts - self._full_batches * self._pairs_of_batch)
        cuts = cut(widest[of_source[rest]], widest[of_target[rest]])
        drawn = int(self._full_batches.sum()) + len(cuts) - 1
        self.num_batches = -(-drawn // num_processes) * num_processes
        wanted = len(cuts) - 1 + self.num_batches - drawn
        if wanted > len(rest):
            raise ValueError(
                f"`max_tokens` of {max_tokens} makes {drawn} batches, which {num_processes} "
                "processes cannot share equally: raise `max_tokens`."
            )
        self._last_cuts = halve(cuts, wanted)

    def _buckets_of(self, source: NDArray[Any], target: NDArray[Any]) -> Ints:
        """Returns the bucket of each pair."""
        band, other = self._band_of_length[target], self._band_of_length[source]
        buckets: Ints = band * self._number_of_bands
        buckets += np.where(band % 2, self._number_of_bands - 1 - other, other)
        return buckets

    def epoch(self, rng: np.random.Generator) -> Iterator[Ints]:
        """Yields the batches of an epoch."""
        count, length = len(self.source), _PAIRS_OF_A_RUN
        runs = rng.permutation(-(-count // length))
        left, rest = self._full_batches.copy(), np.zeros(0, np.int64)
        for start in range(0, len(runs), PAIRS_OF_A_BLOCK // length):
            own = runs[start : start + PAIRS_OF_A_BLOCK // length, None] * length
            block = (own + np.arange(length)).ravel()
            block = np.concatenate([rest, rng.permutation(block[block < count])])
            buckets = self._buckets_of(self.source[block], self.target[block])
            order = np.argsort(buckets, kind="stable")
            block, found = block[order], np.bincount(buckets, minlength=len(left))
            batches = np.minimum(found // self._pairs_of_batch, left)
            left -= batches
            firsts = np.cumsum(found) - found
            of_bucket = np.repeat(np.arange(len(left)), batches)
            number = np.arange(len(of_bucket)) - np.repeat(np.cumsum(batches) - batches, batches)
            starts = firsts[of_bucket] + number * self._pairs_of_batch[of_bucket]
            for one in rng.permutation(len(starts)):
                yield block[starts[one] : starts[one] + self._pairs_of_batch[of_bucket[one]]]
            place = np.arange(len(block)) - np.repeat(firsts, found)
            rest = block[place >= np.repeat(batches * self._pairs_of_batch, found)]
        cuts = self._last_cuts
        for one in rng.permutation(len(cuts) - 1):
            yield rest[cuts[one] : cuts[one + 1]]
