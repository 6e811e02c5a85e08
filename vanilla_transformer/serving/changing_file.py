"""A file that the server reads again when it changes."""

import logging
from collections.abc import Callable
from pathlib import Path

from vanilla_transformer.serving.monitoring import log_event


class ChangingFile:
    """A file that is read again when it changes, and whose former content stays if it is wrong."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._state = self._state_now()

    def _state_now(self) -> tuple[int, int] | None:
        if not self._path.exists():
            return None
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size

    def read_if_changed(self, problem: str, read: Callable[[], None]) -> None:
        """Reads the file once in each state; logs an error as the event `problem`."""
        if (now := self._state_now()) != self._state:
            self._state = now
            try:
                read()
            except (OSError, ValueError) as error:
                log_event(problem, logging.WARNING, file=str(self._path), problem=str(error))
