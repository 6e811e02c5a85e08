"""How the bodies of requests are parsed, in this process."""

import asyncio
import threading
from types import SimpleNamespace

from vanilla_transformer.serving import bodies


def test_a_form_is_parsed_beside_the_connections(monkeypatch):
    parse, threads = bodies._parse_multipart, []

    def parse_and_note(header, body):
        threads.append(threading.current_thread())
        return parse(header, body)

    monkeypatch.setattr(bodies, "_parse_multipart", parse_and_note)
    kind = "multipart/form-data; boundary=b"
    request = SimpleNamespace(scope={"query_string": b"a=b"}, headers={"content-type": kind})
    body = b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\ntext\r\n--b--\r\n'
    found = asyncio.run(bodies.parse_body(request, body, bodies.MULTIPART))
    assert found == {"a": "b", "q": "text"}
    assert threads[0] is not threading.main_thread()
