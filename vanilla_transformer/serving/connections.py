"""Connections: a deadline for slow clients, and a graceful end."""

import asyncio
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_SLOW_BODY = b'{"error": "No request arrived within the time."}'
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_TOO_SLOW_BODY), _TOO_SLOW_BODY)
)


def protocol_with_deadline(seconds: float) -> type[H11Protocol]:
    """Returns uvicorn's HTTP/1.1 with a deadline for the head of a request, which uvicorn lacks."""

    class DeadlineProtocol(H11Protocol):
        head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.watch_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch_head()

        def watch_head(self) -> None:
            """Starts the timer for the head of a request; its later parts do not restart it."""
            if self.cycle is not None and not self.cycle.response_complete:
                self.stop_timer()
            elif self.head_timer is None:
                self.head_timer = self.loop.call_later(seconds, self.give_up)

        def stop_timer(self) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
            self.head_timer = None

        def give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.write(_TOO_SLOW)
                self.transport.close()

    return DeadlineProtocol


class GracefulServer(uvicorn.Server):
    """A server that ends with status 0 after a signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the server after the accepted requests; at the second signal, at once.

        The handler of uvicorn would raise the signal again at the end: the status would not be 0.
        """
        self.force_exit = self.should_exit
        self.should_exit = True
