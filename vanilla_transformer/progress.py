"""How far a long work is: a bar on a terminal, and elsewhere a line at most once a minute."""

import sys
from collections.abc import Callable
from logging import Handler, LogRecord
from time import monotonic
from types import TracebackType
from typing import Any, Self

from huggingface_hub.utils.tqdm import enable_progress_bars
from tqdm.auto import tqdm
from transformers.utils import logging
from transformers.utils.import_utils import is_in_notebook

SECONDS_BETWEEN_LINES = 60.0
"""How often a work that is not watched on a terminal reports, at most."""

_SECONDS_BETWEEN_NOTES = 1.0
_BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{left}, {rate_noinv_fmt}{postfix}]"


def print_message(text: str) -> None:
    """Prints a line on standard error, above the bars that stand there."""
    if sys.stderr is not None:
        tqdm.write(text, file=sys.stderr)


def hide_bars_of_loading() -> None:
    """Hides the bars of transformers, but not those of downloads on a terminal."""
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


class _Bar(tqdm):  # type: ignore[type-arg]  # no class with parameters at run time
    """A bar with the time left that its `Progress` estimates."""

    time_left: Callable[[], str] = staticmethod(lambda: "")

    @property
    def format_dict(self) -> dict[str, Any]:
        """What the format of the bar may name; tqdm reads this."""
        return {**super().format_dict, "left": self.time_left() or "?"}


class Progress:
    """The progress of one work, shown on standard error.

    A line reads "2,048 of 29,000 texts, 34.1 texts/s, 13:10 left". Its time is estimated from the
    mean speed so far. No line tells that the work is complete.

    Attributes:
        seconds_besides: Estimated seconds of what comes before the end besides the units, such as
            evaluations; the time left includes them.

    Args:
        total: How many units there are. None: it is not known.
        unit: Their name in the plural, such as "texts".
        work: What is done, as the beginning of a line. "": the work is the only one.
        done: How many were done before.
        bar: Whether to show a bar. None: where one can be drawn.
        print_line: What prints a line where there is no bar.
        seconds_to_first_line: How soon the first line comes, if no bar is shown. None: as the
            others.
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
    ) -> None:
        has_bar = shown and (shows_bars() if bar is None else bar)
        self.total, self.unit, self.done = total, unit, done
        self._work, self._before, self._print_line = work, done, print_line
        self.seconds_besides = 0.0
        self._bar = _Bar(
            total=total,
            bar_format=None if total is None else _BAR_FORMAT,
            initial=done,
            unit=f" {unit}",
            desc=work or None,
            leave=None,  # a bar below another one goes when it is full
            disable=not has_bar,
            dynamic_ncols=True,
        )
        self._prints_lines = shown and not has_bar
        self._begun = monotonic()
        self._reported = self._begun
        if seconds_to_first_line is not None:
            self._reported += seconds_to_first_line - SECONDS_BETWEEN_LINES
        self._bar.time_left = self.time_left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def reach(self, done: int, note: Callable[[], str] | None = None) -> None:
        """Shows that so many units are done.

        Args:
            note: Makes what is shown besides. It is called only when it is shown. None: the speed.
        """
        self._bar.update(done - self.done)
        self.done, waited = done, monotonic() - self._reported
        if self._prints_lines and waited >= SECONDS_BETWEEN_LINES and done != self.total:
            self._reported = monotonic()
            rate = (self.done - self._before) / max(monotonic() - self._begun, 1e-9)
            told = f"{rate:,.1f} {self.unit}/s" if note is None else note()
            self._print_line(self._describe_line(told))
        elif note is not None and not self._bar.disable and waited >= _SECONDS_BETWEEN_NOTES:
            self._reported = monotonic()
            self._bar.set_postfix_str(note())

    def wait_for_next_line(self, seconds: float = 0.0) -> None:
        """Lets a minute pass before the next line, because another message has just told more.

        Args:
            seconds: Time that was spent on something else, which the mean speed leaves out.
        """
        self._reported = monotonic()
        self._begun += seconds

    def time_left(self) -> str:
        """Returns the estimated time to the end as "13:10"; "" where it is not known."""
        steps = self.done - self._before
        if self.total is None or steps <= 0:
            return ""
        left = (monotonic() - self._begun) / steps * (self.total - self.done)
        return str(tqdm.format_interval(max(0, left + self.seconds_besides)))

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()

    def _describe_line(self, note: str) -> str:
        of_total = "" if self.total is None else f" of {self.total:,}"
        left = f"{found} left" if (found := self.time_left()) else ""
        work = f"{self._work}: " if self._work else ""
        return ", ".join(filter(None, (f"{work}{self.done:,}{of_total} {self.unit}", note, left)))
