"""Errors: a client gets a status and a JSON object with the field `error`."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from vanilla_transformer.serving.monitoring import log_event, record_of

CLIENT_GONE = 499
"""Status in the logs and metrics of a request whose client went away; nobody receives it."""

_TEXT_LIMIT = "Invalid request: request ({value} {name}) exceeds text limit ({most} {name})"
"""The sentence of LibreTranslate, for texts that are too long or too many."""
FIELD_LIMIT = "`{name}` is {value}: this server takes at most {most}."


class RequestError(HTTPException):
    """An error of a request: its status, what is wrong, and headers."""


class FieldsError(Exception):
    """Problems of the fields of a body, as pydantic tells them, and the names of all fields."""

    def __init__(self, allowed: Sequence[str], problems: Sequence[Any]) -> None:
        super().__init__(*problems)
        self.allowed, self.problems = allowed, problems


class ComputationError(Exception):
    """An error inside the model's computation."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(type(cause).__name__)
        self.__cause__ = cause


def add_error_answers(app: FastAPI) -> None:
    """Makes an application answer every error with a JSON object."""

    @app.exception_handler(HTTPException)
    async def answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = error.detail
        if not isinstance(error, RequestError):  # such as an unknown path, or a damaged form
            message = f"{message}: see /docs for what this server offers."
        return JSONResponse({"error": message}, error.status_code, error.headers)

    @app.exception_handler(FieldsError)
    async def answer_fields_error(request: Request, error: FieldsError) -> JSONResponse:
        return JSONResponse({"error": _describe_problem(error)}, 400)

    @app.exception_handler(ComputationError)
    async def answer_computation_error(request: Request, error: ComputationError) -> JSONResponse:
        request_id = record_of(request).request_id
        log_event("computation failed", logging.ERROR, id=request_id, exception=error)
        return JSONResponse({"error": "The model failed to compute this request."}, 500)

    @app.exception_handler(Exception)
    async def answer_other_error(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "An error occurred in the server."}, 500)


def check_limit(value: int | None, most: int, name: str, sentence: str = _TEXT_LIMIT) -> None:
    """Refuses, with status 400, a value above a limit of the server."""
    if value is not None and value > most:
        raise RequestError(400, sentence.format(name=name, value=value, most=most))


def _describe_problem(error: FieldsError) -> str:
    """Names one wrong field, its value, and the values that it takes."""
    problems = error.problems
    for problem in problems:
        name = problem["loc"][-1] if problem["loc"] else problem["input"]  # else not Unicode
        if problem["type"] == "extra_forbidden" or not problem["loc"]:
            return f"Unknown field {_shorten(name)}: use {', '.join(error.allowed)}."
    # Of the types that a field may have, the one that fits best fails deepest in the value.
    field = problems[0]["loc"][0]
    tried = [problem for problem in problems if problem["loc"][0] == field]
    problem = max(tried, key=lambda problem: len(problem["loc"]))
    if problem["type"] == "missing":
        return f"Invalid request: missing {field} parameter"
    place = "".join(f"[{step}]" for step in problem["loc"] if isinstance(step, int))
    return f"`{field}{place}` is {_shorten(problem['input'])}: {problem['msg']}."


def _shorten(value: object) -> str:
    """Returns a value as JSON for a message, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:80]}..."
