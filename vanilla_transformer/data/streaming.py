"""Cuts a stream of examples into token-budget batches, with a buffer of bounded size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler

Example = Mapping[str, Any]
"""An encoded pair: "input_ids", "labels", and optionally "attention_mask" and further columns."""

_NEEDED_COLUMNS = ("input_ids", "labels")
_COLUMNS = (*_NEEDED_COLUMNS, "attention_mask")


class TokenBudgetStream(IterableDataset[list[Example]]):
    """Yields token-budget batches, each a list of encoded examples, from a stream.

    A buffer is filled, cut into batches by `TokenBudgetBatchSampler`, and filled again. The stream
    never ends: after the last example the next epoch begins. The order depends only on the
    examples, the seed and the sizes, so a run that skips the batches it has seen continues exactly.
    Load the stream with `DataLoader(stream, batch_size=None, collate_fn=collator)`. In your own
    training loop, do not pass that loader to `Accelerator.prepare`, which would give every process
    the batches of the first one.

    Every process reads all examples and takes its share of the batches; all processes get equally
    many. At the end of an epoch, a remainder of fewer examples than processes is left out.

    Args:
        examples: Mappings with "input_ids" and "labels", such as a `datasets.IterableDataset`,
            which can be iterated more than once. If it has a method `set_epoch`, that method is
            called before each epoch.
        max_tokens: Budget of a batch, in tokens of source and target, padding included.
        buffer_size: Number of examples in the buffer. A larger buffer means less padding.
        seed: Seed of the order.
        num_processes: Number of processes that share the batches.
        process_index: Process whose batches are yielded.
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
        self.examples, self.max_tokens, self.buffer_size = examples, max_tokens, buffer_size
        self.seed, self.num_processes, self.process_index = seed, num_processes, process_index
        self.columns = (*_COLUMNS, *further_columns)

    def __iter__(self) -> Iterator[list[Example]]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError(
                f"`dataloader_num_workers` is {worker.num_workers}, but only one worker can read a "
                "stream: set dataloader_num_workers to 0 or 1."
            )
        for epoch in count():
            number = -1
            for number, buffer in enumerate(self._read_buffers(epoch)):
                yield from self._cut_buffer(buffer, epoch, number)
            if number < 0:
                raise ValueError(
                    f"The stream holds fewer examples than processes ({self.num_processes}): add "
                    "data or use fewer processes."
                )

    def _read_buffers(self, epoch: int) -> Iterator[list[Example]]:
        """Yields the examples of an epoch in buffers that the processes can share equally."""
        if hasattr(self.examples, "set_epoch"):
            self.examples.set_epoch(epoch)
        rows = (_encoded_columns(row, self.columns) for row in self.examples)
        buffer: list[Example] = []
        while True:
            buffer += islice(rows, self.buffer_size - len(buffer))
            # The processes share a multiple of their number; the rest goes to the next buffer.
            whole = len(buffer) - len(buffer) % self.num_processes
            if not whole:
                return
            yield buffer[:whole]
            buffer = buffer[whole:]

    def _cut_buffer(
        self, buffer: list[Example], epoch: int, number: int
    ) -> Iterator[list[Example]]:
        """Yields this process's batches of the buffer with a number within an epoch."""
        sampler = TokenBudgetBatchSampler(
            [len(row["input_ids"]) for row in buffer],
            [len(row["labels"]) for row in buffer],
            self.max_tokens,
            seed=self.seed + number,
            num_processes=self.num_processes,
            process_index=self.process_index,
        )
        sampler.set_epoch(epoch)
        for batch in sampler:
            yield [buffer[index] for index in batch]


def _encoded_columns(row: Mapping[str, Any], columns: Sequence[str]) -> Example:
    """Returns the columns of an example that a batch keeps."""
    if missing := [name for name in _NEEDED_COLUMNS if name not in row]:
        raise ValueError(
            f"The stream's examples have no {missing}, only {sorted(row)}: encode them first, as "
            "the tokenizer does with `text` and `text_target`."
        )
    return {name: row[name] for name in columns if name in row}
