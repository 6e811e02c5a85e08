"""The progress of a work: lines where nobody watches, a bar on a terminal."""

import io
import sys
from logging import getLogger

import pytest

from vanilla_transformer import progress
from vanilla_transformer.progress import Progress, without_messages


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, which a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def run_work(clock, seconds, total=1000, **options):
    """Does a hundred units after each of so many seconds; returns the lines."""
    lines = []
    with Progress(total, "texts", print_line=lines.append, **options) as shown:
        for number, step in enumerate(seconds, start=1):
            clock[0] += step
            shown.update(options.get("done", 0) + 100 * number)
    return lines


def test_a_line_tells_at_most_once_a_minute_what_is_done_and_left(clock):
    assert run_work(clock, [50, 50, 20]) == ["200 of 1,000 texts, 2.0 texts/s, 06:40 left"]
    assert run_work(clock, [60, 60]) == [
        "100 of 1,000 texts, 1.7 texts/s, 09:00 left",
        "200 of 1,000 texts, 1.7 texts/s, 08:00 left",
    ]
    assert run_work(clock, [59]) == []


def test_work_that_was_done_before_has_taken_no_time(clock):
    assert run_work(clock, [100], done=800) == ["900 of 1,000 texts, 1.0 texts/s, 01:40 left"]


def test_a_first_step_that_takes_longer_does_not_count(clock):
    lines = run_work(clock, [10, 20, 40], warms_up=True)
    assert lines == ["300 of 1,000 texts, 3.3 texts/s, 03:30 left"]


def test_an_unknown_total_leaves_the_time_out(clock):
    assert run_work(clock, [100], total=None) == ["100 texts, 1.0 texts/s"]


def test_no_line_tells_that_the_work_is_complete(clock):
    assert len(run_work(clock, [60, 60, 60], total=300)) == 2


def test_nothing_is_shown_unless_asked(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert run_work(clock, [100, 100], shown=False) == []
    assert sys.stderr.getvalue() == ""


def test_another_message_stands_for_a_line(clock):
    lines = []
    shown = Progress(10, "steps", print_line=lines.append)
    for _ in range(3):
        clock[0] += 40
        shown.wait_for_next_line()
        shown.update(1)
    assert lines == []
    clock[0] += 60
    shown.update(2, lambda: "training loss 2.5")
    assert lines == ["2 of 10 steps, training loss 2.5, 12:00 left"]


def test_a_bar_tells_the_speed_and_the_time_left(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(10, "steps") as shown:
        clock[0] += 20
        shown.update(2)
        assert shown.time_left() == "01:20 left"
        clock[0] += 10
        shown.update(3)
    assert "3/10" in sys.stderr.getvalue()
    assert "0.1 steps/s, 01:10 left" in sys.stderr.getvalue()


def test_lines_have_no_carriage_return(clock, capsys):
    with Progress(10, "texts") as shown:
        clock[0] += 60
        shown.update(5)
    assert capsys.readouterr().err == "5 of 10 texts, 0.1 texts/s, 01:00 left\n"


def test_a_terminal_has_a_bar_and_messages_above_it(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(10, "steps") as shown:
        clock[0] += 60
        shown.update(5, lambda: "training loss 2.5")
        progress.print_message("a message")
    text = sys.stderr.getvalue()
    assert "5/10" in text
    assert "training loss 2.5" in text
    assert "a message\n" in text
    assert "5 of 10 steps" not in text


def test_a_process_without_standard_error_works(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(10, "texts") as shown:
        clock[0] += 60
        shown.update(5)


def test_silence_lasts_until_the_outer_block_ends(caplog):
    logger = getLogger("vanilla_transformer.test")
    with without_messages():
        with without_messages():
            logger.warning("inner")
        logger.warning("outer")
    logger.warning("afterwards")
    assert [record.message for record in caplog.records] == ["afterwards"]
