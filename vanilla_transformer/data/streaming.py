"""Cuts a stream of examples into token-budget batches, with a buffer of bounded size."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, repeat
from typing import Any

import datasets
from datasets.distributed import split_dataset_by_node as split_by_node
from torch.utils.data import IterableDataset, get_worker_info

from vanilla_transformer.data.streamed_pairs import StreamedPairs
from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler

Example = Mapping[str, Any]
"""An encoded pair: "input_ids", "labels", and optionally "attention_mask" and further columns."""

POSITION = "stream_position"
"""Name in a batch of tensors of the position after it."""

_NEEDED_COLUMNS = ("input_ids", "labels")
_COLUMNS = (*_NEEDED_COLUMNS, "attention_mask")


class Batch(list[Example]):
    """The examples of a batch.

    Attributes:
        position: Where the stream goes on after it, as JSON; None: the examples have no state.
    """

    position: str | None = None


class TokenBudgetStream(IterableDataset[list[Example]]):
    """Yields token-budget batches, each a list of encoded examples, from a stream.

    A buffer is filled, cut into batches by `TokenBudgetBatchSampler`, and filled again. The stream
    never ends: after the last example the next epoch begins. The order depends only on the
    examples, the seed and the sizes, so a run that skips the batches it has seen continues exactly.
    Where the examples have a `state_dict`, `resume` goes on from a batch without reading those
    before it. Load the stream with `DataLoader(stream, batch_size=None, collate_fn=collator)`. In
    your own training loop, do not pass that loader to `Accelerator.prepare`, which would give every
    process the batches of the first one.

    Processes divide a `datasets.IterableDataset` by its files, if their number is a multiple of
    that of the processes, or by its rows, and each has batches and epochs of its own. Of other
    examples every process reads all and takes its share of the batches; all processes get equally
    many, and at the end of an epoch a remainder of fewer examples than processes is left out.

    Args:
        examples: Mappings with "input_ids" and "labels", such as a `datasets.IterableDataset`,
            which can be iterated more than once. If it has a method `set_epoch`, that method is
            called before each epoch; so are `state_dict` and `load_state_dict`.
        max_tokens: Budget of a batch, in tokens of source and target, padding included.
        buffer_size: Number of examples in the buffer. A larger buffer means less padding.
        further_columns: Columns that batches keep besides "input_ids", "labels" and
            "attention_mask".

    Raises:
        ValueError: If `buffer_size` is below the number of processes, or the examples can be read
            only once. While iterating: if there are fewer examples than processes, an example is
            not encoded or exceeds the budget, or a loader has more than one worker.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        max_tokens: int,
        buffer_size: int = 10_000,
        *,
        seed: int = 0,
        num_processes: int = 1,
        process_index: int = 0,
        further_columns: Sequence[str] = (),
    ) -> None:
        if buffer_size < num_processes:
            raise ValueError(
                f"`buffer_size` is {buffer_size}: it must be at least the number of processes, "
                f"{num_processes}; 10000 is usual."
            )
        if isinstance(examples, Iterator):
            raise ValueError(
                "`examples` can be read only once: give an object that can be iterated again in "
                "each epoch, such as datasets.IterableDataset.from_generator(function)."
            )
        self._processes = num_processes
        if num_processes > 1 and isinstance(examples, datasets.IterableDataset | StreamedPairs):
            share = StreamedPairs.share_of if isinstance(examples, StreamedPairs) else split_by_node
            examples = share(examples, process_index, num_processes)
            num_processes, process_index = 1, 0
        self.examples, self.max_tokens, self.buffer_size = examples, max_tokens, buffer_size
        self.seed, self.num_processes, self.process_index = seed, num_processes, process_index
        self.columns = (*_COLUMNS, *further_columns)
        self._has_state = num_processes == 1 and hasattr(examples, "load_state_dict")
        self._start: dict[str, Any] = {"epoch": 0, "buffer": 0, "batch": 0, "examples": None}
        self._skipped = 0

    def resume(self, position: str, skipped: int) -> None:
        """Begins the next iteration after the batch with a position.

        Args:
            position: The position of the last batch that is not to come again. That of a training
                with another number of processes is ignored.
            skipped: Number of empty batches that come first, for a loader that skips as many.
        """
        start = json.loads(position)
        if start.pop("processes") == self._processes:
            self._start, self._skipped = start, skipped

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError(
                f"`dataloader_num_workers` is {worker.num_workers}, but only one worker can read a "
                "stream: set dataloader_num_workers to 0 or 1."
            )
        yield from repeat(Batch(), self._skipped)
        start = self._start
        for epoch in count(start["epoch"]):
            place = None
            for place, buffer in self._read_buffers({**start, "epoch": epoch}):
                yield from self._cut_buffer(buffer, place)
            if place is None and not start["buffer"]:
                raise ValueError(
                    f"The stream holds fewer examples than processes ({self.num_processes}): add "
                    "data or use fewer processes."
                )
            start = {"buffer": 0, "batch": 0, "examples": None}

    def _read_buffers(
        self, start: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], list[Example]]]:
        """Yields the rest of an epoch in buffers that the processes can share equally.

        Each comes with its place: what `resume` needs to read it again.
        """
        examples: Any = self.examples
        if hasattr(examples, "set_epoch"):
            examples.set_epoch(start["epoch"])
        if self._has_state:
            examples.load_state_dict(start["examples"])
        rows = (_encoded_columns(row, self.columns) for row in examples)
        buffer: list[Example] = []
        while True:
            buffer += islice(rows, self.buffer_size - len(buffer))
            # The processes share a multiple of their number; the rest goes to the next buffer.
            whole = len(buffer) - len(buffer) % self.num_processes
            if not whole:
                return
            after = examples.state_dict() if self._has_state else None
            yield start, buffer[:whole]
            buffer = buffer[whole:]
            start = {**start, "buffer": start["buffer"] + 1, "batch": 0, "examples": after}

    def _cut_buffer(self, buffer: list[Example], place: dict[str, Any]) -> Iterator[Batch]:
        """Yields this process's batches of a buffer, from the one that the place names on."""
        sampler = TokenBudgetBatchSampler(
            [len(row["input_ids"]) for row in buffer],
            [len(row["labels"]) for row in buffer],
            self.max_tokens,
            seed=self.seed + place["buffer"],
            num_processes=self.num_processes,
            process_index=self.process_index,
        )
        sampler.set_epoch(place["epoch"])
        for number, rows in enumerate(islice(sampler, place["batch"], None), place["batch"] + 1):
            batch = Batch(buffer[index] for index in rows)
            if self._has_state:
                after = {**place, "batch": number, "processes": self._processes}
                batch.position = json.dumps(after)
            yield batch


class PositionCollator:
    """Collates batches of a stream, and adds their positions."""

    def __init__(self, collator: Callable[[list[Any]], Any]) -> None:
        self.collator = collator

    def __call__(self, batch: list[Any]) -> dict[str, Any]:
        """Returns the tensors of a batch; nothing for one that is skipped."""
        position = getattr(batch, "position", None)
        return {**self.collator(batch), POSITION: position} if batch else {}


def _encoded_columns(row: Mapping[str, Any], columns: Sequence[str]) -> Example:
    """Returns the columns of an example that a batch keeps."""
    if missing := [name for name in _NEEDED_COLUMNS if name not in row]:
        raise ValueError(
            f"The stream's examples have no {missing}, only {sorted(row)}: encode them first, as "
            "the tokenizer does with `text` and `text_target`."
        )
    return {name: row[name] for name in columns if name in row}
