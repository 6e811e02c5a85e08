"""What surrounds every request: its id, its line in the log, its metrics, its last error."""

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from vanilla_transformer.serving.errors import CLIENT_GONE
from vanilla_transformer.serving.monitoring import Metrics, log_event
from vanilla_transformer.serving.settings import Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_REQUEST_ID = re.compile(rb"[\w.-]{1,64}")
_QUIET = ("/health", "/ready", "/metrics")


@dataclass
class Record:
    """What the log says of a request. Handlers add to `fields`.

    Attributes:
        request_id: Its id: `X-Request-ID` of the request, or a new one.
        fields: Further facts, such as the model and the number of characters.
    """

    request_id: str
    fields: dict[str, Any] = field(default_factory=dict)


class Guard:
    """An ASGI application around another one.

    Args:
        application: The application.
        metrics: Counts the requests.
        limits: The limits.
    """

    def __init__(self, application: Application, metrics: Metrics, limits: Limits) -> None:
        self._application, self._metrics, self._limits = application, metrics, limits

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"x-request-id"]
        known = next((value.decode() for value in given if _REQUEST_ID.fullmatch(value)), None)
        record = Record(known or uuid.uuid4().hex)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # uvicorn drops the body
        scope = {**scope, "method": method}
        scope.setdefault("state", {})["record"] = record
        answer = Answer(send, record.request_id)
        started = time.perf_counter()
        try:
            await self._application(scope, receive, answer.send)
        except asyncio.CancelledError:  # the server is to stop at once
            if answer.status is None:
                await answer.send_error(503, "The server stops.")
            raise
        except Exception as error:
            log_event("error", logging.ERROR, id=record.request_id, exception=error)
            if answer.status is None:
                await answer.send_error(500, "An error occurred in the server.")
        if answer.closes:
            await self._let_the_client_read(receive)
        await answer.finish()
        self._note_answer(scope, record, answer.status, time.perf_counter() - started)

    async def _let_the_client_read(self, receive: Receive) -> None:
        """Reads on for a while what the client sends: a reset would destroy the answer."""
        left = 4 * self._limits.max_body
        try:
            async with asyncio.timeout(self._limits.read_timeout):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return
        except TimeoutError:
            return

    def _note_answer(
        self, scope: MutableMapping[str, Any], record: Record, status: int | None, seconds: float
    ) -> None:
        path = getattr(scope.get("route"), "path", "other")
        status = CLIENT_GONE if status is None else status
        self._metrics.requests.labels(path, scope["method"], str(status)).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        log_event(
            "request",
            logging.DEBUG if path in _QUIET and status < 400 else logging.INFO,
            id=record.request_id,
            client=(scope.get("client") or ("",))[0],
            method=scope["method"],
            path=path,
            status=status,
            seconds=round(seconds, 4),
            **record.fields,
        )


class Answer:
    """Passes an answer on, with the request's id, and remembers its status.

    If the connection is to be closed, the end of the answer waits for `finish`.

    Args:
        send: Sends a message.
        request_id: Id of the request.
    """

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id
        self.status: int | None = None
        self.closes = False

    async def send(self, message: Message) -> None:
        """Sends a message of ASGI."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id.encode())]
            message = {**message, "headers": headers}
            self.closes = any(
                name.lower() == b"connection" and value.lower() == b"close"
                for name, value in headers
            )
        elif self.closes and not message.get("more_body"):
            message = {**message, "more_body": True}
        await self._send(message)

    async def finish(self) -> None:
        """Ends an answer whose connection is closed."""
        if self.closes:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send_error(self, status: int, message: str) -> None:
        """Sends an error."""
        body = json.dumps({"error": message}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
