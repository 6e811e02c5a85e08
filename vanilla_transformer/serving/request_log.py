"""Around every request: its id, its line in the log, its metrics, an error that nothing catches."""

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from vanilla_transformer.serving.errors import CLIENT_GONE
from vanilla_transformer.serving.monitoring import Metrics, Record, log_event

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
_REQUEST_ID = re.compile(rb"[\w.-]{1,64}")
_QUIET = ("/health", "/ready", "/metrics")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class RequestLog:
    """An ASGI application around another one, which logs and counts its requests."""

    def __init__(self, application: Application, metrics: Metrics) -> None:
        self._application, self._metrics = application, metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        ids = [value for name, value in scope["headers"] if name == b"x-request-id"]
        known = next((value.decode() for value in ids if _REQUEST_ID.fullmatch(value)), None)
        record = Record(known or uuid.uuid4().hex)

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], (b"x-request-id", record.request_id.encode())]
                if seconds := record.fields.get("loading"):
                    headers.append((b"server-timing", b"loading;dur=%d" % (1000 * seconds)))
                record.status = message["status"]
                message = {**message, "headers": headers}
            await send(message)

        # A HEAD request is answered like GET; uvicorn leaves out the body of the answer.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        inner = {**scope, "method": method, "state": {"record": record}}
        started = time.perf_counter()
        try:
            await self._application(inner, receive, pass_on)
        except Exception as error:
            log_event("error", logging.ERROR, id=record.request_id, exception=error)
        path = getattr(inner.get("route"), "path", "other")
        self._note_answer(scope, path, record, time.perf_counter() - started)

    def _note_answer(self, scope: Message, path: str, record: Record, seconds: float) -> None:
        status = CLIENT_GONE if record.status is None else record.status
        # Clients may invent methods; each name would be a metric of its own.
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(path, method, str(status)).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        log_event(
            "request",
            logging.DEBUG if path in _QUIET and status < 400 else logging.INFO,
            id=record.request_id,
            client=(scope.get("client") or ("",))[0],
            method=method,
            path=path,
            status=status,
            seconds=round(seconds, 4),
            **record.fields,
        )
