"""Batches, the queue, errors of the model, clients that leave, and the end of the server.

The server's model waits at a gate where a test says so (see gated_server.py), so that what comes
first and what comes later is decided by the tests and not by the clock.
"""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from servers import GATED, JSON, read_answer, serving, wait_until

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."
SLOW, SLOW_OUTPUT = "a horse sees a cat .", "Pferd sieht Katze ."
BROKEN = "a boat sees a cat ."


class Gate:
    """The gate of a server."""

    def __init__(self, folder):
        self.folder = folder

    def open(self):
        (self.folder / "open").touch()

    def close(self):
        (self.folder / "open").unlink(missing_ok=True)
        (self.folder / "waiting").unlink(missing_ok=True)

    def wait_for_a_batch(self):
        wait_until((self.folder / "waiting").exists)


@contextmanager
def gated_server(trained, folder, *options):
    gate = Gate(folder)
    with serving(folder, f"en-de={trained}", *options, program=GATED) as running:
        yield running, gate


@pytest.fixture(scope="module")
def running(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    with gated_server(trained, folder, "--queue-size", 12, "--timeout", 600) as both:
        yield both


@pytest.fixture
def server(running):
    server, gate = running
    gate.close()
    yield server
    gate.open()
    wait_until(lambda: server.metric("accepted_requests") == 0)
    assert server.translate(LINE)[2] == {"translatedText": OUTPUT}


@pytest.fixture
def gate(running):
    return running[1]


@contextmanager
def clients():
    with ThreadPoolExecutor(32) as pool:
        yield pool


def accept(server, pool, texts, **fields):
    """Sends requests one after the other, each when the one before it is in the queue."""
    answers = []
    for text in texts:
        with queueing(server):
            answers.append(pool.submit(server.translate, text, **fields))
    return answers


@contextmanager
def queueing(server):
    """Waits at the end until a further request is in the queue: its tokens are counted then."""
    before = server.metric("source_tokens_total")
    yield
    wait_until(lambda: server.metric("source_tokens_total") > before)


def test_requests_that_wait_are_computed_in_one_batch(server, gate):
    batches, segments = server.metric("batch_segments_count"), server.metric("batch_segments_sum")
    with clients() as pool:
        first = accept(server, pool, [SLOW])
        gate.wait_for_a_batch()
        others = accept(server, pool, [LINE] * 9)
        gate.open()
        assert first[0].result()[2] == {"translatedText": SLOW_OUTPUT}
        assert [one.result()[2]["translatedText"] for one in others] == [OUTPUT] * 9
    assert server.metric("batch_segments_count") - batches == 2
    assert server.metric("batch_segments_sum") - segments == 10


def test_a_full_queue_says_when_to_come_again(server, gate):
    with clients() as pool:
        accepted = accept(server, pool, [SLOW] + [LINE] * 11)
        gate.wait_for_a_batch()
        status, headers, found = server.translate(LINE)
        assert status == 503
        assert int(headers["Retry-After"]) >= 1
        assert "The queue is full (12 requests)" in found["error"]
        status, _, found = server.ask("GET", "/ready")
        assert (status, found) == (503, {"error": "the queue of en-de is full"})
        assert server.ask("GET", "/health")[0] == 200
        gate.open()
        assert {one.result()[0] for one in accepted} == {200}
    assert server.ask("GET", "/ready")[0] == 200


def test_an_error_of_the_model_is_that_of_one_request(server, gate):
    with clients() as pool:
        first = accept(server, pool, [SLOW])
        gate.wait_for_a_batch()
        others = accept(server, pool, [LINE, BROKEN, LINE, [LINE, BROKEN], LINE])
        gate.open()
        found = [one.result() for one in [*first, *others]]
    assert [status for status, _, _ in found] == [200, 200, 500, 200, 500, 200]
    assert found[2][2] == {"error": "The model failed to compute this request."}
    assert server.metric("computation_errors_total") >= 2
    logged = [line for line in server.logs() if line["event"] == "computation failed"]
    assert logged[-1]["cause"]["error"] == "RuntimeError"
    assert any("gated_server.py" in place for place in logged[-1]["cause"]["places"])
    assert "secret" not in server.process.stderr


def test_the_work_of_a_client_that_leaves_is_dropped(server, gate):
    segments = server.metric("batch_segments_sum")
    dropped = server.metric("dropped_segments_total")
    with clients() as pool:
        first = accept(server, pool, [SLOW])
        gate.wait_for_a_batch()
        body = json.dumps({"q": [LINE] * 50, "source": "en", "target": "de"})
        leaving = server.connect()
        with queueing(server):
            leaving.request("POST", "/translate", body, JSON)
        leaving.close()
        wait_until(lambda: server.metric("accepted_requests") == 1)
        gate.open()
        assert first[0].result()[0] == 200
    assert server.metric("dropped_segments_total") - dropped == 50
    assert server.metric("batch_segments_sum") - segments == 1
    wait_until(lambda: any(line.get("status") == 499 for line in server.logs()))


def test_a_request_that_takes_too_long_is_given_up(trained, tmp_path):
    with gated_server(trained, tmp_path, "--timeout", 0.5) as (server, gate):
        status, _, found = server.translate(SLOW)
        assert status == 504
        assert "more than 0.5 s" in found["error"]
        assert server.metric("accepted_requests") == 0
        gate.open()
        assert server.translate(SLOW)[2] == {"translatedText": SLOW_OUTPUT}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_after_what_it_has_accepted(trained, tmp_path, number):
    with gated_server(trained, tmp_path) as (server, gate), clients() as pool:
        idle = server.connect()
        idle.request("GET", "/health")
        assert read_answer(idle)[0] == 200
        accepted = accept(server, pool, [SLOW, LINE, [LINE] * 100])
        gate.wait_for_a_batch()
        server.process.send_signal(number)

        def is_refused():
            try:
                return server.ask("GET", "/health") is None
            except OSError:
                return True

        wait_until(is_refused)
        assert server.process.poll() is None
        gate.open()
        found = [one.result() for one in accepted]
        assert [status for status, _, _ in found] == [200] * 3
        assert found[2][2] == {"translatedText": [OUTPUT] * 100}
        assert server.process.wait() == 0
        assert server.logs()[-1]["event"] == "stopped"


def test_a_second_signal_ends_the_server_at_once(trained, tmp_path):
    with gated_server(trained, tmp_path) as (server, gate), clients() as pool:
        accepted = accept(server, pool, [SLOW])
        gate.wait_for_a_batch()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_closed(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert accepted[0].result()[0] == 500


def is_closed(server):
    try:
        server.send(b"").close()
    except OSError:
        return True
    return False


def test_a_killed_server_leaves_no_request_without_an_error(trained, tmp_path):
    with gated_server(trained, tmp_path) as (server, gate), clients() as pool:
        accepted = accept(server, pool, [SLOW, LINE, LINE])
        gate.wait_for_a_batch()
        server.process.send_signal(signal.SIGKILL)
        assert all(isinstance(one.exception(), OSError) for one in accepted)
