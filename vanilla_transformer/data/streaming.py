"""Token-budget batches from data that are read as they come, through a buffer of bounded size."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler

_COLUMNS = ("input_ids", "attention_mask", "labels")


class TokenBudgetStream(IterableDataset[list[dict[str, Any]]]):
    """Batches of encoded examples, each a list, from a stream that is read again and again.

    A buffer is filled, cut into batches as `TokenBudgetBatchSampler` cuts a data set, and filled
    again. The stream never ends: when the examples do, the next epoch begins. The order is a
    function of the examples, the seed and the sizes alone, so a run that skips the batches it has
    seen goes on exactly. Load it with
    `DataLoader(stream, batch_size=None, collate_fn=collator)`. In a loop of your own keep that
    loader from `Accelerator.prepare`, which would hand out the batches of the first process.

    Every process reads all examples and takes its share of the batches; all get equally many. Fewer
    examples than processes at the very end of an epoch are left out.

    Args:
        examples: Mappings with "input_ids" and "labels", such as a `datasets.IterableDataset`; can
            be iterated more than once. A method `set_epoch` is told the epoch.
        max_tokens: Budget of a batch, in tokens of source and target, padding included.
        buffer_size: Examples held at a time: the more, the less padding.
        seed: Of the order.
        num_processes: Among which batches are shared.
        process_index: The process whose batches are yielded.

    Raises:
        ValueError: If `buffer_size` is below the number of processes, or the examples can be read
            only once; while iterating, if there are no examples, one exceeds the budget, or a
            loader has more than one worker.
    """

    def __init__(
        self,
        examples: Iterable[Mapping[str, Any]],
        max_tokens: int,
        buffer_size: int = 10_000,
        *,
        seed: int = 0,
        num_processes: int = 1,
        process_index: int = 0,
    ) -> None:
        if buffer_size < num_processes:
            raise ValueError(
                f"`buffer_size` is {buffer_size}: it must be at least the number of processes, "
                f"{num_processes}; 10000 is usual."
            )
        if isinstance(examples, Iterator):
            raise ValueError(
                "`examples` can be read only once: give something that can be iterated anew for "
                "each epoch, e.g. datasets.IterableDataset.from_generator(function)."
            )
        self.examples, self.max_tokens, self.buffer_size = examples, max_tokens, buffer_size
        self.seed, self.num_processes, self.process_index = seed, num_processes, process_index

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError(
                f"A stream is read by one worker, not {worker.num_workers}, among which its "
                "examples would be split: set dataloader_num_workers to 0 or 1."
            )
        return self._batches()

    def _batches(self) -> Iterator[list[dict[str, Any]]]:
        epoch = 0
        while True:
            empty = True
            for number, buffer in enumerate(self._buffers(epoch)):
                empty = False
                yield from self._cut(buffer, epoch, number)
            if empty:
                raise ValueError(
                    f"The stream holds fewer examples than processes ({self.num_processes})."
                )
            epoch += 1

    def _buffers(self, epoch: int) -> Iterator[list[dict[str, Any]]]:
        if hasattr(self.examples, "set_epoch"):
            self.examples.set_epoch(epoch)
        rows = ({n: row[n] for n in _COLUMNS if n in row} for row in self.examples)
        buffer: list[dict[str, Any]] = []
        while True:
            buffer += islice(rows, self.buffer_size - len(buffer))
            # A multiple can always be shared; the rest comes with the next buffer, if there is one.
            whole = len(buffer) - len(buffer) % self.num_processes
            if not whole:
                return
            yield buffer[:whole]
            buffer = buffer[whole:]

    def _cut(
        self, buffer: list[dict[str, Any]], epoch: int, number: int
    ) -> Iterator[list[dict[str, Any]]]:
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
