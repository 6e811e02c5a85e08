"""Work that one process of a machine does for all of them, however long it takes."""

import os
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psutil
from accelerate.utils import gather_object
from transformers import TrainingArguments

from vanilla_transformer.data.atomic_files import explained_full_disk, replaced_file, write_atomic
from vanilla_transformer.progress import SECONDS_BETWEEN_LINES, print_message

T = TypeVar("T")
Report = Callable[[str], None]
"""Takes what is being done, as a verb phrase, such as "encode 4,500,000 pairs"."""

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_BETWEEN_MESSAGES = SECONDS_BETWEEN_LINES
_TASK, _VALUE = "task", "value"
_ENDED = (
    "The main process has ended before it had prepared the data: its own message tells why. This "
    "process ends too."
)


def compute_on_main_process(training: TrainingArguments, make: Callable[[Report], T]) -> T:
    """Makes a value in the main process of each machine; the others wait, and get a copy.

    The others wait in no operation of the process group, which would end after `ddp_timeout`: they
    look for a file, and one of them tells once a minute what they wait for. The value is pickled;
    data sets whose rows are in files are pickled as the names of these files. The folder is one
    that only this user can open, and it is deleted when all have read it.

    Args:
        training: Tells how many processes there are, and which one this is.
        make: Makes the value. Its argument takes what is being done.

    Raises:
        OSError: In the others, if the main process ends, or its work fails.
    """
    if training.world_size == 1:
        return make(lambda _: None)
    if training.local_process_index > 0:
        folder, main = _folder_of_machine(training, None)
        is_first = training.local_process_index == 1
        value: T = _wait_for_value(folder, main, training.process_index, tells=is_first)
        _wait_for_everyone(training)
        return value
    with TemporaryDirectory(prefix="vanilla-transformer-") as made:
        folder, _ = _folder_of_machine(training, made)
        value = make(partial(write_atomic, folder / _TASK))
        path = folder / _VALUE
        with explained_full_disk(path), replaced_file(path) as part, part.open("wb") as stream:
            pickle.dump(value, stream)
        _wait_for_everyone(training)
    return value


def _folder_of_machine(training: TrainingArguments, made: str | None) -> tuple[Path, int]:
    """Returns the folder of the main process of this machine, and the id of this process.

    The processes of a machine have successive numbers, and the first of them is the main process.
    """
    own = None if made is None else (made, os.getpid())
    try:
        rows: list[tuple[str, int] | None] = gather_object([own])
    except RuntimeError as error:  # of the process group: it has lost a process
        raise OSError(_ENDED) from error
    folder, main = next(row for row in reversed(rows[: training.process_index + 1]) if row)
    return Path(folder), main


def _wait_for_value(folder: Path, main: int, index: int, tells: bool) -> Any:
    path, task = folder / _VALUE, folder / _TASK
    told = time.monotonic()
    while not path.exists():
        # The order matters: the main process may end after it has written the file.
        if not (folder.exists() and _is_alive(main)) and not path.exists():
            raise OSError(_ENDED)
        if tells and time.monotonic() - told >= SECONDS_BETWEEN_MESSAGES:
            told = time.monotonic()
            what = task.read_text(encoding="utf-8") if task.exists() else "prepare the data"
            print_message(f"Process {index} is waiting for the main process to {what}.")
        time.sleep(SECONDS_BETWEEN_LOOKS)
    with path.open("rb") as stream:
        return pickle.load(stream)


def _is_alive(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait_for_everyone(training: TrainingArguments) -> None:
    state: Any = training.distributed_state
    state.wait_for_everyone()
