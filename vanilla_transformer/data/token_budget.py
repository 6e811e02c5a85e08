"""Which examples of a data set make a batch of a fixed budget of tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from numpy.typing import NDArray
from torch.utils.data import Sampler

Ints = NDArray[np.int64]

_JITTER = 0.1  # lengths count as up to 10% longer, by chance, when an epoch is sorted
_BAND = 1.12  # ratio of the longest to the shortest target of a band
_SLACK = 1.005  # room for epochs that need more batches than the first draw
_DRAWS = 8  # draws before an epoch falls back on the composition of the first draw


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Batches of indices whose padded size, source and target together, is at most `max_tokens`.

    A batch of n examples costs n x (longest source + longest target) tokens. In each epoch every
    example appears exactly once. Examples are sorted into narrow bands of target length and by
    source length within a band, forwards and backwards in turn, so that neighbours are alike in
    both; the sorted order is cut greedily, and the batches are shuffled. Lengths are jittered
    before they are sorted, so an example meets other examples in each epoch.

    The order is a function of (seed, epoch) alone, and all epochs have the same number of batches,
    a multiple of `num_processes`: where a draw gives fewer, its largest batches are halved. No
    example is repeated or dropped.

    Args:
        source_lengths: tokens of each source.
        target_lengths: tokens of each target.
        max_tokens: the budget of a batch, in tokens of source and target, padding included.
        max_sentences: the most examples in a batch; None for no limit.
        shuffle: when False, every epoch has the same batches, in the sorted order.
        seed: a non-negative integer.
        num_processes: the processes among which batches are shared.
        process_index: the process whose batches (every `num_processes`-th) are yielded; None
            yields those of all processes, to be shared by `Accelerator.prepare`, whose loader
            passes `set_epoch` on.

    Raises:
        ValueError: when the two lengths differ in number, when an example alone exceeds
            `max_tokens`, when there are fewer examples than processes (or none), when the
            processes cannot have equally many batches, or when a number is out of range.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | Ints,
        target_lengths: Sequence[int] | Ints,
        max_tokens: int,
        *,
        max_sentences: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        num_processes: int = 1,
        process_index: int | None = None,
    ) -> None:
        self.source_lengths = np.asarray(source_lengths, dtype=np.int64)
        self.target_lengths = np.asarray(target_lengths, dtype=np.int64)
        self.max_tokens = max_tokens
        self.max_sentences = max_sentences
        self.shuffle = shuffle
        self.seed = seed
        self.num_processes = num_processes
        self.process_index = process_index
        self.epoch = 0
        self._check_numbers()
        self._check_lengths()
        self._first_draw = self._draw(np.random.default_rng(seed))
        self.num_batches = self._fixed_number(len(self._first_draw[1]) - 1)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch, counted from 0, whose batches the next iteration yields."""
        self.epoch = epoch

    @property
    def sampler(self) -> "TokenBudgetBatchSampler":
        """Itself: a loader of Accelerate looks here for what `loader.set_epoch` is to be told."""
        return self

    def __len__(self) -> int:
        return self.num_batches // self._stride

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self.epoch))
        order, cuts = self._draw_of_epoch(rng)
        cuts = _halve_largest(cuts, self.num_batches)
        batches = np.arange(self.num_batches)
        if self.shuffle:
            rng.shuffle(batches)
        for batch in batches[self.process_index or 0 :: self._stride]:
            yield order[cuts[batch] : cuts[batch + 1]].tolist()

    @property
    def _stride(self) -> int:
        return 1 if self.process_index is None else self.num_processes

    def _draw_of_epoch(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        for _ in range(_DRAWS if self.shuffle else 0):
            order, cuts = self._draw(rng)
            if len(cuts) - 1 <= self.num_batches:
                return order, cuts
        return self._first_draw

    def _draw(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return a sorted order of the examples and the positions that cut it into batches."""
        order = self._sorted(rng)
        return order, self._cut(self.source_lengths[order], self.target_lengths[order])

    def _sorted(self, rng: np.random.Generator) -> Ints:
        count, jitter = len(self.source_lengths), _JITTER if self.shuffle else 0.0
        source = (self.source_lengths + 1) * (1 + jitter * rng.random(count))
        target = (self.target_lengths + 1) * (1 + jitter * rng.random(count))
        band = np.floor(np.log(target) / np.log(_BAND))
        return np.lexsort((np.where(band % 2, -source, source), band))

    def _cut(self, source: Ints, target: Ints) -> Ints:
        cuts = [0]
        while (start := cuts[-1]) < len(source):
            # A batch only gets wider as it grows: its first example bounds how many it can hold.
            most = self.max_tokens // max(1, int(source[start] + target[start]))
            stop = start + min(most, self.max_sentences or most)
            width = np.maximum.accumulate(source[start:stop])
            width += np.maximum.accumulate(target[start:stop])
            cost = width * np.arange(1, len(width) + 1)
            cuts.append(start + int(np.searchsorted(cost, self.max_tokens, side="right")))
        return np.asarray(cuts, dtype=np.int64)

    def _fixed_number(self, drawn: int) -> int:
        examples, processes = len(self.source_lengths), self.num_processes
        wanted = int(np.ceil(drawn * _SLACK)) if self.shuffle else drawn
        number = min(-(-wanted // processes), examples // processes) * processes
        if number < drawn:
            raise ValueError(
                f"max_tokens={self.max_tokens} makes {drawn} batches of {examples} examples, which "
                f"{processes} processes cannot share equally: raise max_tokens"
            )
        return number

    def _check_numbers(self) -> None:
        numbers = {"max_tokens": self.max_tokens, "num_processes": self.num_processes}
        if self.max_sentences is not None:
            numbers["max_sentences"] = self.max_sentences
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must not be negative")
        if not 0 <= (self.process_index or 0) < self.num_processes:
            raise ValueError(
                f"process_index is {self.process_index}: with num_processes={self.num_processes} "
                f"it must be in 0..{self.num_processes - 1}"
            )

    def _check_lengths(self) -> None:
        source, target = self.source_lengths, self.target_lengths
        if len(source) != len(target):
            raise ValueError(
                f"source_lengths has {len(source)} entries and target_lengths has {len(target)}: "
                "give one of each per example"
            )
        if len(source) < self.num_processes:
            raise ValueError(
                f"{len(source)} examples are too few for {self.num_processes} process(es): "
                "add data or use fewer processes"
            )
        longest = int((source + target).argmax())
        if source[longest] + target[longest] > self.max_tokens:
            raise ValueError(
                f"example {longest} has {source[longest]} source and {target[longest]} target "
                f"tokens, {source[longest] + target[longest]} together, more than "
                f"max_tokens={self.max_tokens}: raise max_tokens or truncate the example "
                "(max_source_length, max_target_length)"
            )


def _halve_largest(cuts: Ints, wanted: int) -> Ints:
    """Halve the batches with the most examples until there are `wanted` batches."""
    while (missing := wanted - (len(cuts) - 1)) > 0:
        sizes = np.diff(cuts)
        largest = np.argsort(-sizes, kind="stable")[:missing]
        largest = largest[sizes[largest] > 1]
        cuts = np.sort(np.concatenate([cuts, cuts[largest] + sizes[largest] // 2]))
    return cuts


def token_lengths(dataset: Any, column: str) -> Ints:
    """Return the number of tokens of every example in a column of token ids.

    Args:
        dataset: a `datasets.Dataset` (read as Arrow), or any iterable of mappings. Where the tokens
            change from epoch to epoch, its attribute `unsampled` is read: such a data set.
        column: such as "input_ids" or "labels".

    Raises:
        ValueError: when a `datasets.Dataset` has no such column.
    """
    dataset = getattr(dataset, "unsampled", dataset)
    if not isinstance(dataset, datasets.Dataset):
        return np.fromiter((len(example[column]) for example in dataset), dtype=np.int64)
    if column not in dataset.column_names:
        raise ValueError(f"no column {column!r} among {dataset.column_names}: tokenize the data")
    tables = dataset.select_columns([column]).with_format("arrow").iter(batch_size=10_000)
    lengths = [pc.list_value_length(table[column]).to_numpy() for table in tables]
    return np.concatenate([np.zeros(0, np.int64), *lengths]).astype(np.int64)
