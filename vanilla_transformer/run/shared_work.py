"""Work that one process of a machine does for all of them, however long it takes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from accelerate.utils import gather_object
from torch import distributed
from transformers import TrainingArguments

T = TypeVar("T")

_LONGEST = timedelta(days=100)  # a wait in the group of the training would end after `ddp_timeout`
_ENDED = (
    "A process of this run has ended before the data were prepared: its own message tells why. "
    "This process ends too."
)


def compute_on_main_process(
    training: TrainingArguments, compute: Callable[..., T], *arguments: object
) -> T:
    """Computes a value in the main process of each machine; the others wait, and get a copy.

    The value is pickled; data sets whose rows are in files are pickled as the names of these files.
    The others raise an OSError if the main process ends, or its work fails.
    """
    if training.world_size == 1:
        return compute(*arguments)
    main = training.process_index - training.local_process_index  # that of this machine
    with _ended_processes():
        mains = gather_object([main])
        groups = dict[int, Any]()
        for first in sorted({*mains}):
            ranks = [rank for rank, its_main in enumerate(mains) if its_main == first]
            groups[first] = distributed.new_group(ranks, timeout=_LONGEST, backend="gloo")
    shared: list[tuple[T] | None] = [None]  # the value in a tuple; None: the work has failed
    try:
        if training.process_index == main:
            shared = [(compute(*arguments),)]
    finally:  # also after an error, or the others would wait for ever
        with _ended_processes():
            distributed.broadcast_object_list(shared, main, groups[main])
    if shared[0] is None:
        raise OSError(_ENDED)
    return shared[0][0]


@contextmanager
def _ended_processes() -> Iterator[None]:
    """Says that another process has ended where communication with it fails."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(_ENDED) from error
