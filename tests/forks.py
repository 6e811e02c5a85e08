"""Programs in processes of their own that start in no time: forks of one warm process.

`start` gives a process that can be killed; `run` waits for its end. Everything that a program does
after its imports is as in a new interpreter (see fork_server.py).
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


class Server:
    """A warm process. It ends with the process that has started it.

    Args:
        imported: What it has imported: "package" or "transformers" (see fork_server.py).
    """

    def __init__(self, imported):
        folders = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": os.pathsep.join(folders), "CUDA_VISIBLE_DEVICES": ""}
        self.environment = environment
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py")), imported],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self._process.stdin.close)
        assert json.loads(self._process.stdout.readline()) == "ready"
        self._folder = tempfile.TemporaryDirectory()

    def ask(self, **request):
        self._process.stdin.write((json.dumps(request) + "\n").encode())
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, program, argv, cwd=None, input="", environment=None):
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        streams = [folder / name for name in ("in", "out", "err")]
        for path in streams:
            path.touch()
        streams[0].write_bytes(input.encode(errors="surrogateescape"))
        pid = self.ask(
            program=str(program),
            argv=[str(word) for word in argv],
            cwd=str(cwd or Path.cwd()),
            environment={**self.environment, **(environment or {})},
            streams=[str(path) for path in streams],
        )
        return Fork(self, pid, argv, streams)


class Fork:
    """A running program, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, server, pid, argv, streams):
        self._server, self.pid, self._argv, self._streams = server, pid, argv, streams
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            self.returncode = self._server.ask(wait=self.pid, block=False)
        return self.returncode

    def wait(self, timeout=300):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                os.killpg(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(self._argv, timeout)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    @property
    def stdout(self):
        return self._streams[1].read_text(encoding="utf-8")

    @property
    def stderr(self):
        return self._streams[2].read_text(encoding="utf-8")


@cache
def server(imported):
    """The warm process of this test process that has imported these modules."""
    return Server(imported)


def start(program, *argv, imported="package", **options):
    """Starts a module or a file in a process of its own."""
    return server(imported).start(program, argv, **options)


def run(program, *argv, **options):
    """Runs a module or a file in a process of its own; returns what `subprocess.run` would."""
    process = start(program, *argv, **options)
    process.wait()
    return subprocess.CompletedProcess(argv, process.returncode, process.stdout, process.stderr)
