"""Cuts a data set into batches of a fixed budget of tokens.

Sentences differ in length. Batches of a fixed number of sentences are therefore mostly padding, and
differ in cost. A token-budget batch holds as many sentences of similar length as fit into
`max_tokens`, padding included.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from numpy.typing import NDArray
from torch.utils.data import Sampler

from vanilla_transformer.data import mixing
from vanilla_transformer.data.large_order import LargeOrder, cut_greedily, halve_largest_batches
from vanilla_transformer.data.mixing import Mixture
from vanilla_transformer.data.shards import SIDES, Shards

Ints = NDArray[np.int64]

_JITTER = 0.1  # each length counts as up to 10% longer, at random, when an epoch is sorted
_BAND = 1.12  # ratio of the longest to the shortest target of a band
_SLACK = 1.005  # factor on the number of batches of the first draw; later draws may need more
_SLACK_OF_MIXTURES = 4  # standard deviations of a sum of lengths that vary as much as their mean
_DRAWS = 8  # draws per epoch before the batches of the first draw are used again


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields batches of indices whose padded size is at most `max_tokens`.

    A batch of n examples costs n x (longest source + longest target) tokens. In each epoch every
    example appears exactly once. Examples are sorted into narrow bands of target length. Within a
    band they are sorted by source length, in ascending and descending order in turn, so that
    neighbours are similar in both lengths. The sorted order is cut greedily, and the batches are
    shuffled. Random jitter on the lengths before sorting makes an example meet other examples in
    each epoch.

    More than a million examples are not sorted: `LargeOrder` draws their batches.

    The batches depend only on the lengths, the seed and the epoch. All epochs have the same number
    of batches, a multiple of `num_processes`; where a draw yields fewer, its largest batches are
    halved. No example is repeated or dropped.

    Args:
        source_lengths: Number of tokens of each source.
        target_lengths: Number of tokens of each target.
        max_tokens: Budget of a batch, in tokens of source and target, padding included.
        shuffle: Whether epochs differ. If False, every epoch has the same batches, in sorted order.
        seed: Seed of the order, not negative.
        process_index: Process, from 0, whose batches (every `num_processes`-th) are yielded. None:
            all batches, to be shared by `Accelerator.prepare`, whose loader passes `set_epoch` on.
        mixture: Chooses the examples of each epoch. None: every example appears exactly once.

    Raises:
        ValueError: If a single example exceeds `max_tokens`, or the processes cannot have equally
            many batches.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | Ints,
        target_lengths: Sequence[int] | Ints,
        max_tokens: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        num_processes: int = 1,
        process_index: int | None = None,
        mixture: Mixture | None = None,
    ) -> None:
        self.source_lengths = np.asarray(source_lengths)
        self.target_lengths = np.asarray(target_lengths)
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.num_processes = num_processes
        self.process_index = process_index
        self.mixture = mixture
        self.epoch = 0
        assert mixture is None or len(mixture) == len(self.source_lengths)
        check_longest(self.source_lengths, self.target_lengths, max_tokens, "Example {}".format)
        self._step_between_batches = 1 if process_index is None else num_processes
        self._large: LargeOrder | None = None
        if shuffle and len(self.source_lengths) > mixing.PAIRS_OF_A_BLOCK:
            self._large = LargeOrder(
                self.source_lengths,
                self.target_lengths,
                max_tokens,
                mixture or Mixture({"": len(self.source_lengths)}, {"": 1.0}, seed),
                num_processes,
            )
            self.num_batches = self._large.num_batches
            return
        order, cuts = self._draw_batches(np.random.default_rng(seed))
        self._first_draw = order.astype(np.uint32), cuts
        self.num_batches = self._choose_num_batches(len(cuts) - 1)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0, whose batches the next iteration yields."""
        self.epoch = epoch

    @property
    def sampler(self) -> "TokenBudgetBatchSampler":
        """This sampler: a loader of Accelerate calls `set_epoch` on its batch sampler's sampler."""
        return self

    def __len__(self) -> int:
        return self.num_batches // self._step_between_batches

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self.epoch))
        first, step = self.process_index or 0, self._step_between_batches
        if self._large is not None:
            for batch in islice(self._large.epoch(rng, self.epoch), first, None, step):
                yield batch.tolist()
            return
        order, cuts = self._draw_epoch(rng)
        cuts = halve_largest_batches(cuts, self.num_batches)
        batches = np.arange(self.num_batches)
        if self.shuffle:
            rng.shuffle(batches)
        for number in batches[first::step]:
            yield order[cuts[number] : cuts[number + 1]].tolist()

    def _draw_epoch(self, rng: np.random.Generator) -> tuple[NDArray[Any], Ints]:
        """Draws until there are at most `num_batches` batches; else returns the first draw."""
        for _ in range(_DRAWS if self.shuffle else 0):
            order, cuts = self._draw_batches(rng)
            if len(cuts) - 1 <= self.num_batches:
                return order, cuts
        return self._first_draw

    def _draw_batches(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Returns a sorted order of the examples and the positions that cut it into batches."""
        count = len(self.source_lengths)
        rows = np.arange(count) if self.mixture is None else self.mixture(self.epoch)
        lengths = [
            side[rows].astype(np.int64) for side in (self.source_lengths, self.target_lengths)
        ]
        jitter = _JITTER if self.shuffle else 0.0
        source, target = ((side + 1) * (1 + jitter * rng.random(count)) for side in lengths)
        band = np.floor(np.log(target) / np.log(_BAND))
        order = np.lexsort((np.where(band % 2, -source, source), band))
        cuts = cut_greedily(lengths[0][order], lengths[1][order], self.max_tokens)
        return rows[order], cuts

    def _choose_num_batches(self, drawn: int) -> int:
        """Returns the number of batches of every epoch, given that of the first draw."""
        examples, processes = len(self.source_lengths), self.num_processes
        # The examples of a mixture differ from epoch to epoch, and so does their length.
        slack = _SLACK + (0 if self.mixture is None else _SLACK_OF_MIXTURES / examples**0.5)
        wanted = int(np.ceil(drawn * slack)) if self.shuffle else drawn
        number = min(-(-wanted // processes), examples // processes) * processes
        if number < drawn:
            raise ValueError(
                f"`max_tokens` of {self.max_tokens} makes {drawn} batches of {examples} examples, "
                f"which {processes} processes cannot share equally: raise `max_tokens`, or use "
                "fewer processes."
            )
        return number


def check_longest(source: Ints, target: Ints, max_tokens: int, name: Callable[[int], str]) -> None:
    """Refuses examples that do not fit into a batch.

    Args:
        name: Returns what an error calls the example with an index.

    Raises:
        ValueError: If an example exceeds the budget; the error names the longest.
    """
    longest, tokens = 0, -1
    for start in range(0, len(source), mixing.PAIRS_OF_A_BLOCK):
        rows = slice(start, start + mixing.PAIRS_OF_A_BLOCK)
        sums = np.add(source[rows], target[rows], dtype=np.int64)
        if sums.max() > tokens:
            longest, tokens = start + int(sums.argmax()), int(sums.max())
    if tokens > max_tokens:
        raise ValueError(
            f"{name(longest)} has {source[longest]} source and {target[longest]} target tokens, "
            f"{tokens} together, more than `max_tokens` of {max_tokens}: raise `max_tokens` or "
            "truncate the example (`max_source_length`, `max_target_length`)."
        )


def token_lengths(
    dataset: datasets.Dataset | Iterable[Mapping[str, Sequence[int]]], column: str
) -> Ints:
    """Returns the number of tokens of every example.

    Args:
        dataset: A `datasets.Dataset`, or any iterable of mappings. If it has an attribute
            `unsampled` (a data set whose tokens change in each epoch), the lengths are those of
            that attribute.
        column: Column of token ids, such as "input_ids" or "labels".
    """
    rows: Any = getattr(dataset, "unsampled", dataset)
    if not isinstance(rows, datasets.Dataset):
        return np.fromiter((len(example[column]) for example in rows), dtype=np.int64)
    if column in SIDES and (shards := Shards.of(rows)) is not None:
        return shards.lengths()[:, SIDES.index(column)]
    tables = rows.select_columns([column]).with_format("arrow").iter(batch_size=10_000)
    lengths = [pc.list_value_length(table[column]).to_numpy() for table in tables]
    return np.concatenate([np.zeros(0, np.int64), *lengths]).astype(np.int64)
