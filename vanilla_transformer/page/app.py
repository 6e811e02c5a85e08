"""Builds the page and serves it."""

import os
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from threading import Event, Timer
from typing import Any

import gradio as gr

from vanilla_transformer.page.events import PageEvents
from vanilla_transformer.page.models import PageModels
from vanilla_transformer.page.parts import make_parts

_FOLDER = Path(__file__).parent
_WAITING_REQUESTS = 64
_SECONDS_TO_END = 10.0
_REMEMBERED_USERS = 200  # the attention of each may take some MB
LARGEST_BODY = 8 * 2**20
"""Largest body of a request in bytes: room for a text that the page refuses with a message."""
REFUSED = ("/upload", "/deep_link")
"""Ends of the paths of Gradio that write to the disk."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def build_page(models: PageModels, text: str = "") -> gr.Blocks:
    """Builds the page, `Blocks`. `launch_page` serves it; so does `launch(**launch_options())`."""
    page = gr.Blocks(title="vanilla-transformer", analytics_enabled=False)
    with page:
        parts = make_parts(models, text)
        PageEvents(models, parts).connect(page, runs_at_once=bool(text.strip()))
    page.queue(max_size=_WAITING_REQUESTS, default_concurrency_limit=4)
    return page


def launch_options() -> dict[str, Any]:
    """Returns the arguments of `Blocks.launch` that the page needs wherever it runs.

    Nothing is loaded from other hosts, nothing is recorded, and no tunnel is opened.
    """
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    theme = gr.themes.Default(
        primary_hue="indigo",
        font=("system-ui", "sans-serif"),
        font_mono=("ui-monospace", "monospace"),
    ).set(  # Gradio's own grey on white, and white on indigo, are too pale
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        body_text_color_subdued="*neutral_600",
        button_primary_background_fill="*primary_600",
        body_text_color_subdued_dark="*neutral_300",
    )
    return {
        "theme": theme,
        "css": (_FOLDER / "page.css").read_text(encoding="utf-8"),
        "head": f"<script>{script}</script>",
        "footer_links": [],
        "share": False,
        "ssr_mode": False,
        "run_history": False,
        "enable_monitoring": False,
        "state_session_capacity": _REMEMBERED_USERS,
        # As Starlette's `Middleware`: a class, its arguments, its named arguments.
        "app_kwargs": {"middleware": [(PageGuard, (), {})]},
    }


def launch_page(
    page: gr.Blocks, host: str, port: int | None, announce: Callable[[str], None]
) -> None:
    """Serves the page until the process is interrupted; call it from the main thread.

    Args:
        host: Address to listen at; "127.0.0.1" admits only this machine.
        port: Port to listen at. None: the first free one from 7860.
        announce: Called with the address of the page when it can be opened.

    Raises:
        OSError: If the port is taken, or the machine does not have the address.
    """
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        **launch_options(),
    )
    # An exception that the signal raises may be lost, in a callback of the garbage collector say.
    interrupted = Event()
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        announce(address)
        # Another thread may receive the signal; this one sees it when it wakes up.
        while not interrupted.wait(0.2):
            pass
        # Ends the process whatever an open connection or a thread waits for.
        timer = Timer(_SECONDS_TO_END, os._exit, (128 + signal.SIGINT,))
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt
    finally:
        page.close(verbose=False)


class PageGuard:
    """An ASGI middleware that answers some requests itself, and passes the others on."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers a request."""
        headers = dict(scope.get("headers", ()))
        size = headers.get(b"content-length", b"0")
        if scope["type"] != "http":
            refusal = None
        elif scope["path"].rstrip("/").endswith(REFUSED):
            refusal = 403, "The page takes no files and stores no inputs."
        elif b"transfer-encoding" in headers or not size.isdigit():
            # The server reads no more of a body than this header announces.
            refusal = 411, "Give the size of the body in the header Content-Length."
        elif int(size) > LARGEST_BODY:
            refusal = 413, f"The body is larger than {LARGEST_BODY:,} bytes."
        else:
            refusal = None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        status, text = refusal
        answer = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": answer})
        await send({"type": "http.response.body", "body": f"{text}\n".encode()})
