"""Real server processes for the tests, and a plain client."""

import http.client
import json
import re
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import programs

GATED = Path(__file__).with_name("gated_server.py")
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PATIENCE = 60  # seconds until a test gives up


class Server:
    """A running server."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=()):
        """Returns (status, headers, body); a JSON body is parsed."""
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers))
            return read_answer(connection)
        finally:
            connection.close()

    def post(self, path, values, **headers):
        return self.ask("POST", path, json.dumps(values), {**JSON, **headers})

    def form(self, path, **values):
        return self.ask("POST", path, urlencode(values), FORM)

    def translate(self, q, **values):
        return self.post("/translate", {"q": q, "source": "en", "target": "de", **values})

    def send(self, content):
        """Opens a connection, and sends bytes as they are."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        connection.sendall(content)
        return connection

    def metric(self, name):
        """The sum of a counter over its labels."""
        text = self.ask("GET", "/metrics")[2]
        found = re.findall(rf"^vanilla_transformer_{name}(?:{{.*}})? (.*)$", text, re.MULTILINE)
        return sum(map(float, found))

    def logs(self):
        return [json.loads(line) for line in self.process.stderr.splitlines()]


def plan_of(texts):
    """What a route asks a served model for."""
    return lambda translator, options, memories: translator.plan(texts, options, memories)


def read_answer(connection):
    answer = connection.getresponse()
    content = answer.read().decode()
    kind = answer.headers.get("content-type", "")
    is_json = "json" in kind and content  # the answer to HEAD has no body
    return answer.status, answer.headers, json.loads(content) if is_json else content


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@contextmanager
def serving(*argv, program="vanilla_transformer", environment=None):
    """Starts a server on a free port; it is killed at the end unless it ended itself."""
    words = ["serve", *argv, "--port", 0] if program == "vanilla_transformer" else argv
    process = programs.start(program, *words, environment=environment)
    try:
        wait_until(lambda: process.poll() is not None or "Serving on" in process.stdout)
        assert process.poll() is None, process.stderr[-3000:]
        yield Server(process, int(re.search(r":(\d+) ", process.stdout)[1]))
    finally:
        process.send_signal(9)
        process.wait()
