"""Folders of a page with its model: exported once, and served as `python -m http.server` does."""

import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from programs import REPOSITORY

PACKAGES = REPOSITORY / "node_modules"


def needs_packages():
    """Skips a test where the packages of npm are not installed; `scripts/test.sh` installs them."""
    if not (PACKAGES / "axe-core").is_dir():
        pytest.skip("needs packages of npm in node_modules: see scripts/test.sh")


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if (content := self.server.others.get(path)) is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self):
        for row in self.server.headers.items():
            self.send_header(*row)
        super().end_headers()

    def log_message(self, *args):
        pass


@contextmanager
def served(folder):
    """Serves a folder, with further `headers`, and `others` than its files, by their path.

    Yields a server with its address, and what was `asked`.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder))
    server.asked, server.others, server.headers = [], {}, {}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{server.server_port}/"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def findings(page):
    """What axe finds on a page; it needs a context that bypasses the page's own policy."""
    page.evaluate((PACKAGES / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(one["id"], one["nodes"][0]["html"]) for one in found]
