"""Refuses requests that the page never sends: files, links to stored inputs, very large bodies."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LARGEST_BODY = 8 * 2**20
"""Largest body of a request in bytes: room for a text that the page refuses with a message."""
REFUSED = ("/upload", "/deep_link")
"""Ends of the paths of Gradio that write to the disk."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class PageGuard:
    """An ASGI middleware that answers some requests itself, and passes the others on.

    Args:
        app: What answers the others.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["path"].rstrip("/").endswith(REFUSED):
            await _send_text(send, 403, "The page takes no files and stores no inputs.")
        elif _announced_size(scope) is None:
            await _send_text(send, 411, "Give the size of the body in the header Content-Length.")
        elif (_announced_size(scope) or 0) > LARGEST_BODY:
            await _send_text(send, 413, f"The body is larger than {LARGEST_BODY:,} bytes.")
        else:
            await self.app(scope, receive, send)


def _announced_size(scope: Message) -> int | None:
    """Returns the size of the body in bytes; None if its sender does not tell it.

    The server reads no more of a body than the header announces.
    """
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    size = headers.get(b"content-length", b"0")
    return int(size) if size.isdigit() else None


async def _send_text(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
