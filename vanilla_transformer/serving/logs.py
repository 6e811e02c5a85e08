"""Logs as JSON objects, one per line, without texts of users."""

import json
import logging
import sys
import time
import traceback
from typing import Any

EVENTS = logging.getLogger("vanilla_transformer.serving")
"""What the server logs itself: each record's message is the name of an event."""
_FIELDS = "fields"


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object.

    Of an exception it keeps the type and the places in the code. The message is left out, because
    it may quote a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the object as one line.

        Args:
            record: The record.
        """
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        described: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            described |= describe_exception(error)
        return json.dumps(described, ensure_ascii=True)


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Returns the type of an exception and where it was raised, without its message.

    Args:
        error: The exception.
    """
    frames = traceback.extract_tb(error.__traceback__)
    found: dict[str, Any] = {
        "error": type(error).__name__,
        "places": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if error.__cause__ is not None:
        found["cause"] = describe_exception(error.__cause__)
    return found


def log_event(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Logs an event of the server.

    Args:
        event: Its name.
        level: Level of the record.
        **fields: What is known of it; None is left out.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    error = given.pop("exception", None)
    EVENTS.log(level, event, extra={_FIELDS: given}, exc_info=error)


def set_up_logs(level: str) -> None:
    """Sends all records of this process to standard error, as JSON.

    Args:
        level: Lowest level that is shown: "debug", "info", "warning" or "error".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    EVENTS.setLevel(level.upper())
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    for name in ("transformers", "vanilla_transformer"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
