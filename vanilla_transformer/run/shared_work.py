"""Work that one process of a machine does for all of them, however long it takes."""

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psutil
from accelerate.utils import gather_object
from transformers import TrainingArguments

from vanilla_transformer.data.atomic_files import explained_full_disk, replaced_file

T = TypeVar("T")

_SECONDS_BETWEEN_LOOKS = 0.2
_ENDED = (
    "The main process has ended before it had prepared the data: its own message tells why. This "
    "process ends too."
)


def compute_on_main_process(training: TrainingArguments, compute: Callable[[], T]) -> T:
    """Computes a value in the main process of each machine; the others wait, and get a copy.

    The others wait in no operation of the process group, which would end after `ddp_timeout`: they
    look for a file. The value is pickled; data sets whose rows are in files are pickled as the
    names of these files. The folder is one that only this user can open, and it is deleted when all
    have read it.

    Args:
        training: Tells how many processes there are, and which one this is.

    Raises:
        OSError: In the others, if the main process ends, or its work fails.
    """
    if training.world_size == 1:
        return compute()
    state: Any = training.distributed_state
    if training.local_process_index > 0:
        value: T = _wait_for_value(*_file_of_machine(training, None))
        state.wait_for_everyone()
        return value
    with TemporaryDirectory(prefix="vanilla-transformer-") as folder:
        path, _ = _file_of_machine(training, folder)
        value = compute()
        with explained_full_disk(path), replaced_file(path) as part, part.open("wb") as stream:
            pickle.dump(value, stream)
        state.wait_for_everyone()
    return value


def _file_of_machine(training: TrainingArguments, folder: str | None) -> tuple[Path, int]:
    """Returns the file that the main process of this machine writes, and the id of that process.

    The processes of a machine have successive numbers, and the first of them is the main process.
    """
    try:
        rows: list[tuple[str, int] | None] = gather_object([folder and (folder, os.getpid())])
    except RuntimeError as error:  # of the process group: it has lost a process
        raise OSError(_ENDED) from error
    main_folder, main = next(row for row in reversed(rows[: training.process_index + 1]) if row)
    return Path(main_folder, "value"), main


def _wait_for_value(path: Path, main: int) -> Any:
    while not path.exists():
        # The order matters: the main process may end after it has written the file.
        if not (path.parent.exists() and _is_alive(main)) and not path.exists():
            raise OSError(_ENDED)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with path.open("rb") as stream:
        return pickle.load(stream)


def _is_alive(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
