"""A server of the forms that teachers at an address have, on loopback."""

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def endpoint(misbehave=lambda handler, text, times: False):
    """A server of both forms; it counts how often each text is asked.

    `misbehave` returns whether it has answered itself.
    """
    asked = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = body["q"] if "q" in body else body["messages"][0]["content"]
            asked[text] += 1
            if misbehave(self, text, asked[text]):
                return
            if "q" in body:
                self.send(200, {"translatedText": text.upper(), "key": body.get("api_key")})
            else:
                self.send(200, chat(text.upper()))

        def send(self, status, body, **headers):
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def chat(text, **choice):
    message = {"role": "assistant", "content": text, **choice.pop("message", {})}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message, **choice}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
