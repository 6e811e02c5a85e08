"""Logs and metrics: JSON objects without texts of users, and counters for Prometheus."""

import json
import logging
import sys
import time
import traceback
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import Request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

EVENTS = logging.getLogger("vanilla_transformer.serving")
"""The logger of the server: each record's message is the name of an event."""
_RECORD_FIELDS = "fields"  # attribute of a record with the facts of its event
_SEGMENT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKEN_BUCKETS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line.

    Of an exception it keeps the type and the places in the code. The message is left out, because
    it may quote a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the object as text."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        described: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, _RECORD_FIELDS, {}),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            described |= describe_exception(error)
        return json.dumps(described, ensure_ascii=True)


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Returns the type of an exception and where it was raised, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    described: dict[str, Any] = {
        "error": type(error).__name__,
        "places": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if error.__cause__ is not None:
        described["cause"] = describe_exception(error.__cause__)
    return described


def log_event(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Logs an event of the server.

    Args:
        **fields: The facts of the event; None is left out, and `exception` is described.
    """
    known = {name: value for name, value in fields.items() if value is not None}
    error = known.pop("exception", None)
    EVENTS.log(level, event, extra={_RECORD_FIELDS: known}, exc_info=error)


def set_up_logs(level: str) -> None:
    """Sends all records of this process from a level on, such as "info", to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    EVENTS.setLevel(level.upper())
    logging.captureWarnings(True)
    libraries = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "transformers")
    for name in (*libraries, "vanilla_transformer"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True


@dataclass
class Record:
    """The record of a request for its line in the log. Handlers add to `fields`."""

    request_id: str  # `X-Request-ID` of the request, or a new one
    fields: dict[str, Any] = field(default_factory=dict)  # such as the number of characters
    status: int | None = None  # of the answer; None until it begins

    def count(self, **numbers: float) -> None:
        """Adds numbers to the fields of these names; a request may take several directions."""
        for name, number in numbers.items():
            self.fields[name] = self.fields.get(name, 0) + number


def record_of(request: Request) -> Record:
    """Returns the record of a request, which `RequestLog` has made."""
    record: Record = request.scope["state"]["record"]
    return record


class Metrics:
    """The counters at `/metrics`, for Prometheus; names begin with `vanilla_transformer_`."""

    def __init__(self) -> None:
        # Otherwise, each counter has a second series, with the time at which it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        options: dict[str, Any] = {"namespace": "vanilla_transformer", "registry": self.registry}
        counter: Any = partial(Counter, **options)
        histogram: Any = partial(Histogram, **options)
        model = ["model"]
        self.requests = counter("requests", "Requests", ["path", "method", "status"])
        self.seconds = histogram(
            "request_seconds", "Time from the head of a request to the end of its answer", ["path"]
        )
        self.characters = counter("characters", "Characters of source texts", model)
        self.tokens = counter("source_tokens", "Tokens of source texts", model)
        self.errors = counter("computation_errors", "Requests whose computation failed", model)
        self.dropped = counter(
            "dropped_segments", "Segments that were dropped, as their request had ended", model
        )
        self.segments = histogram(
            "batch_segments", "Segments in a batch", model, buckets=_SEGMENT_BUCKETS
        )
        self.batch_tokens = histogram(
            "batch_tokens", "Source tokens in a batch", model, buckets=_TOKEN_BUCKETS
        )
        self.batch_seconds = histogram("batch_seconds", "Time to compute a batch", model)
        self.loading = histogram("loading_seconds", "Time to load a model")
        gauge: Any = partial(Gauge, **options)
        self.waiting = gauge("waiting_requests", "Requests that wait for a model to be loaded")
        self.queued = gauge("accepted_requests", "Accepted requests without an answer", model)

    def render(self) -> bytes:
        """Returns all values in Prometheus's text format."""
        return generate_latest(self.registry)
