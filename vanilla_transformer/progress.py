"""How far a long work is: a bar on a terminal, and elsewhere a line at most once a minute."""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from logging import DEBUG, WARNING, Handler, LogRecord, disable, getLogger
from time import monotonic
from typing import Self, TypeVar

from huggingface_hub.utils.tqdm import enable_progress_bars
from tqdm.auto import tqdm
from transformers.utils import logging
from transformers.utils.import_utils import is_in_notebook

SECONDS_BETWEEN_LINES = 60.0
"""How often a work that is not watched on a terminal reports, at most."""

Item = TypeVar("Item")

_SECONDS_BETWEEN_NOTES = 1.0
_BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


def print_message(text: str) -> None:
    """Prints a line on standard error, above the bars that stand there."""
    if sys.stderr is not None:
        tqdm.write(text, file=sys.stderr)


def tells_all() -> bool:
    """Returns whether all messages are shown, as with `--verbose`."""
    return getLogger("vanilla_transformer").isEnabledFor(DEBUG)


def show_messages(level: int) -> None:
    """Shows the messages of the package from a level on, on standard error."""
    package = getLogger("vanilla_transformer")
    package.setLevel(level)
    if not package.handlers:
        package.addHandler(MessageHandler())
    hide_bars_of_loading()


@contextmanager
def without_messages() -> Iterator[None]:
    """Hides warnings and lesser messages of all packages; blocks may be nested."""
    hidden = getLogger().manager.disable
    disable(max(hidden, WARNING))
    try:
        yield
    finally:
        disable(hidden)


def hide_bars_of_loading() -> None:
    """Hides the bars of transformers, but not the bars of downloads on a terminal."""
    logging.disable_progress_bar()
    if shows_bars():
        enable_progress_bars()


class MessageHandler(Handler):
    """Prints the records of a logger on standard error, above the bars that stand there."""

    def emit(self, record: LogRecord) -> None:
        """Prints one record."""
        print_message(self.format(record))


def shows_bars() -> bool:
    """Returns whether a bar can be drawn again and again: on a terminal, or in a notebook."""
    return (sys.stderr is not None and sys.stderr.isatty()) or is_in_notebook()


class Progress:
    """The progress of one work, shown on standard error.

    A line reads "2,048 of 29,000 texts, 34.1 texts/s, 13:10 left". The time is estimated from the
    mean speed so far. No line tells that the work is complete.

    Args:
        total: How many units there are. None: it is not known.
        unit: Their name in the plural, such as "texts".
        work: The name of the work, as the begin of a line. "": the work is the only one.
        done: How many were done before.
        bar: Whether to show a bar. None: where one can be drawn.
        print_line: Prints a line where there is no bar.
        seconds_to_first_line: How soon the first line comes. None: as the others.
        warms_up: Whether the first update takes longer than others, so that the speed is counted
            from its end.
    """

    def __init__(
        self,
        total: int | None,
        unit: str,
        *,
        work: str = "",
        done: int = 0,
        shown: bool = True,
        bar: bool | None = None,
        print_line: Callable[[str], None] = print_message,
        seconds_to_first_line: float | None = None,
        warms_up: bool = False,
    ) -> None:
        self._has_bar = shown and (shows_bars() if bar is None else bar)
        self._prints_lines = shown and not self._has_bar
        self.total, self.unit, self.done = total, unit, done
        self._work, self._before, self._print_line = work, done, print_line
        self._warms_up = warms_up
        self._bar = tqdm(
            total=total,
            bar_format=None if total is None else _BAR_FORMAT,
            initial=done,
            unit=f" {unit}",
            desc=work or None,
            leave=None,  # a bar below another one goes when it is full
            disable=not self._has_bar,
            dynamic_ncols=True,
        )
        self._begun = self._reported = monotonic()
        if seconds_to_first_line is not None:
            self._reported += seconds_to_first_line - SECONDS_BETWEEN_LINES

    def __enter__(self) -> Self:
        return self

    def update(self, done: int, note: Callable[[], str] | None = None) -> None:
        """Shows that so many units are done.

        Args:
            note: Makes a further text to show, only when it is shown. None: the speed.
        """
        self._bar.total = self.total
        self._bar.update(done - self.done)
        self.done, now = done, monotonic()
        if self._warms_up:
            self._begun, self._before, self._warms_up = now, done, False
        pause = _SECONDS_BETWEEN_NOTES if self._has_bar else SECONDS_BETWEEN_LINES
        if now - self._reported < pause or done == self.total:
            return
        self._reported = now
        rate = (done - self._before) / max(now - self._begun, 1e-9)
        told = f"{rate:,.1f} {self.unit}/s" if note is None else note()
        text = ", ".join(filter(None, (told, self.time_left())))
        if self._has_bar:
            self._bar.set_postfix_str(text)
        elif self._prints_lines:
            work = f"{self._work}: " if self._work else ""
            of_total = "" if self.total is None else f" of {self.total:,}"
            self._print_line(f"{work}{done:,}{of_total} {self.unit}, {text}")

    def wait_for_next_line(self) -> None:
        """Lets a minute pass before the next line, because another message has just told more."""
        self._reported = monotonic()

    def time_left(self) -> str:
        """Returns the estimated time to the end, as "13:10 left"; "" where it is not known."""
        steps = self.done - self._before
        if self.total is None or steps <= 0:
            return ""
        seconds = (monotonic() - self._begun) / steps * (self.total - self.done)
        return f"{tqdm.format_interval(seconds)} left"

    def close(self, *_: object) -> None:
        """Ends the bar."""
        self._bar.close()

    __exit__ = close


def with_progress(items: Collection[Item], unit: str, work: str) -> Iterator[Item]:
    """Yields items, and shows how many are done."""
    with Progress(len(items), unit, work=work, seconds_to_first_line=10.0) as progress:
        for done, item in enumerate(items, 1):
            yield item
            progress.update(done)
