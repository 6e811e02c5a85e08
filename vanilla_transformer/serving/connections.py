"""Connections: a deadline for slow clients, a graceful end, JSON errors."""

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from vanilla_transformer.serving.settings import Limits

_REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for the head of a request."""

    limits = Limits()
    """Set by `protocol_with`."""
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuses connections above the limit, and waits for a request in the others."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._answer_and_close(503, "Too many connections: try again later.")
        else:
            self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the deadline."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request."""
        super().data_received(data)
        self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        self._answer_and_close(400, msg)

    def _watch_head(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if not waits:
            self._stop_head_timer()
        elif self._head_timer is None:
            seconds = self.limits.read_timeout
            self._head_timer = self.loop.call_later(
                seconds, self._answer_and_close, 408, f"No request arrived within {seconds:g} s."
            )

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = None

    def _answer_and_close(self, status: int, message: str) -> None:
        """Writes an answer past the application, whose work for this connection is dropped."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": message}).encode()
        retry = "Retry-After: 1\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n{retry}\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def protocol_with(limits: Limits) -> type[DeadlineProtocol]:
    """Returns the protocol with its limits, as uvicorn takes it."""
    return type("LimitedProtocol", (DeadlineProtocol,), {"limits": limits})


class GracefulServer(uvicorn.Server):
    """Ends with status 0 on a signal, after what it has accepted; at once on a second one."""

    def __init__(self, config: uvicorn.Config, on_started: Any) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: Any = None) -> None:
        """Begins to accept connections."""
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles SIGTERM and SIGINT inside of a `with` block."""
        handled = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the server after what it has accepted; at the second signal, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
