"""Cuts a data set into batches of a fixed budget of tokens.

Sentences differ in length. Batches of a fixed number of sentences are therefore mostly padding, and
differ in cost. A token-budget batch holds as many sentences of similar length as fit into
`max_tokens`, padding included.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from numpy.typing import NDArray
from torch.utils.data import Sampler

from vanilla_transformer.batches import mixing
from vanilla_transformer.batches.mixing import Mixture
from vanilla_transformer.batches.shards import SIDES, Shards

Ints = NDArray[np.int64]

_JITTER = 0.1  # each length counts as up to 10% longer, at random, when examples are sorted
_BAND = 1.12  # ratio of the longest to the shortest target of a band
_SLACK = 1.005  # factor on the number of batches of the first draw; later draws may need more
_DRAWS = 8  # draws per epoch before the batches of the first draw are used again
_SAMPLED_EPOCHS = 8  # of a mixture, which tell how much its epochs differ in length
_DEVIATIONS = 4  # of the length of its epochs, for which each epoch has room


@dataclass(eq=False, repr=False)
class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields batches of indices whose padded size is at most `max_tokens`.

    A batch of n examples costs n x (longest source + longest target) tokens. In each epoch every
    example appears exactly once. Examples are sorted into narrow bands of target length. Within a
    band they are sorted by source length, in ascending and descending order in turn, so that
    neighbours are similar in both lengths. The sorted order is cut greedily, and the batches are
    shuffled. Random jitter on the lengths before sorting makes an example meet other examples in
    each epoch.

    More than a million examples are sorted block by block, so that no list of them is kept. Each
    block is drawn from all over the data, others in each epoch, so that it needs no jitter.

    The batches depend only on the lengths, the seed and the epoch. All epochs have the same number
    of batches, a multiple of `num_processes`; where a draw yields fewer, its largest batches are
    halved. No example is repeated or dropped.

    Args:
        source_lengths: Number of tokens of each source, in memory or on the disk.
        target_lengths: The same of each target.
        max_tokens: Budget of a batch, in tokens of source and target, padding included.
        shuffle: Whether epochs differ. If False, every epoch has the same batches, in sorted order.
        seed: Seed of the order, not negative.
        process_index: Process, from 0, whose batches (every `num_processes`-th) are yielded. None:
            all batches, to be shared by `Accelerator.prepare`, whose loader passes `set_epoch` on.
        mixture: Chooses the examples of each epoch. None: every example appears exactly once.
    """

    source_lengths: Ints
    target_lengths: Ints
    max_tokens: int
    _: KW_ONLY
    shuffle: bool = True
    seed: int = 0
    num_processes: int = 1
    process_index: int | None = None
    mixture: Mixture | None = None

    def __post_init__(self) -> None:
        self.source_lengths = np.asarray(self.source_lengths)  # a list is accepted too
        self.target_lengths = np.asarray(self.target_lengths)
        self.epoch, self._examples = 0, len(self.source_lengths)
        assert self.mixture is None or len(self.mixture) == self._examples
        lengths = self.source_lengths, self.target_lengths
        check_longest(*lengths, self.max_tokens, "Example {}".format)
        self._step_between_batches = 1 if self.process_index is None else self.num_processes
        self._first_count = self._count_batches(0, np.random.default_rng(self.seed))
        self.num_batches = self._choose_num_batches()

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
        first, step = self.process_index or 0, self._step_between_batches
        for batch in islice(self._batches_of_epoch(), first, None, step):
            yield batch.tolist()

    def _batches_of_epoch(self) -> Iterator[Ints]:
        """Yields the batches of the epoch, or of the first draw if all draws need too many."""
        epoch, rng = self.epoch, np.random.default_rng((self.seed, self.epoch))
        for _ in range(_DRAWS):
            start = rng.bit_generator.state
            count = self._count_batches(epoch, rng)
            if count <= self.num_batches:
                rng.bit_generator.state = start
                blocks = self._draw_blocks(epoch, rng)
                break
        else:
            count = self._first_count
            blocks = self._draw_blocks(0, np.random.default_rng(self.seed))
        missing, examples, drawn, yielded = self.num_batches - count, 0, 0, 0
        for order, cuts in blocks:
            examples, drawn = examples + len(order), drawn + len(cuts) - 1
            # The missing batches are spread over the blocks, by their examples.
            wanted = drawn + missing * examples // self._examples - yielded
            cuts = _halve_largest_batches(cuts, min(wanted, len(order)))
            batches = np.arange(len(cuts) - 1)
            if self.shuffle:
                rng.shuffle(batches)
            for number in batches:
                yield order[cuts[number] : cuts[number + 1]]
            yielded += len(batches)

    def _count_batches(self, epoch: int, rng: np.random.Generator) -> int:
        return sum(len(cuts) - 1 for _, cuts in self._draw_blocks(epoch, rng))

    def _draw_blocks(self, epoch: int, rng: np.random.Generator) -> Iterator[tuple[Ints, Ints]]:
        """Yields a sorted order of each block, and the positions that cut it into batches."""
        is_one_block = not self.shuffle or self._examples <= mixing.PAIRS_OF_A_BLOCK
        if self.mixture is None and is_one_block:
            blocks: Iterable[Ints] = [np.arange(self._examples)]
        else:
            whole = Mixture({"": self._examples}, {"": 1.0}, self.seed)
            blocks = (self.mixture or whole).blocks(epoch)
        for rows in blocks:
            source, target = (
                side[rows].astype(np.int64) for side in (self.source_lengths, self.target_lengths)
            )
            jitter = _JITTER if self.shuffle and is_one_block else 0.0
            source_key, target_key = (
                (side + 1) * (1 + jitter * rng.random(len(rows))) for side in (source, target)
            )
            band = np.floor(np.log(target_key) / np.log(_BAND))
            order = np.lexsort((np.where(band % 2, -source_key, source_key), band))
            yield rows[order], _cut_greedily(source[order], target[order], self.max_tokens)

    def _choose_num_batches(self) -> int:
        """Returns the number of batches of every epoch: a bit more than the first draw has."""
        drawn, processes, slack = self._first_count, self.num_processes, 1.0
        if self.shuffle:
            slack = _SLACK + _DEVIATIONS * self._deviation_of_epochs()
        wanted = int(np.ceil(drawn * slack))
        number = min(-(-wanted // processes), self._examples // processes) * processes
        if number < drawn:
            raise ValueError(
                f"`max_tokens` of {self.max_tokens} makes {drawn} batches of {self._examples} "
                f"examples, which {processes} processes cannot share equally: raise `max_tokens`, "
                "or use fewer processes."
            )
        return number

    def _deviation_of_epochs(self) -> float:
        """Returns the standard deviation of the tokens of an epoch, as a share of their mean."""
        if self.mixture is None:
            return 0.0
        tokens = [
            sum(
                int(side[rows].sum(dtype=np.int64))
                for rows in self.mixture.blocks(epoch)
                for side in (self.source_lengths, self.target_lengths)
            )
            for epoch in range(_SAMPLED_EPOCHS)
        ]
        return float(np.std(tokens) / np.mean(tokens))


def _cut_greedily(source: Ints, target: Ints, max_tokens: int) -> Ints:
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


def _halve_largest_batches(cuts: Ints, wanted: int) -> Ints:
    """Halves the batches with the most examples until there are `wanted` batches."""
    while (missing := wanted - (len(cuts) - 1)) > 0:
        sizes = np.diff(cuts)
        largest = np.argsort(-sizes, kind="stable")[:missing]
        largest = largest[sizes[largest] > 1]  # one example is no two batches
        cuts = np.sort(np.concatenate([cuts, cuts[largest] + sizes[largest] // 2]))
    return cuts


def check_longest(source: Ints, target: Ints, max_tokens: int, name: Callable[[int], str]) -> None:
    """Refuses examples that do not fit into a batch.

    Args:
        name: Returns the name of the example with an index, for an error.
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
            `unsampled`, since its tokens change in each epoch, the lengths of that data set count.
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
