"""Errors: a client gets a status and a JSON object with the field `error`."""

import json
import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from vanilla_transformer.serving.monitoring import log_event

CLIENT_GONE = 499
"""Status in the logs and metrics of a request whose client went away; nobody receives it."""


class RequestError(HTTPException):
    """An error of a request: its status, what is wrong, and headers."""


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

    @app.exception_handler(RequestValidationError)
    async def answer_validation_error(
        request: Request, error: RequestValidationError
    ) -> JSONResponse:
        return JSONResponse({"error": _describe_problem(error)}, 400)

    @app.exception_handler(ComputationError)
    async def answer_computation_error(request: Request, error: ComputationError) -> JSONResponse:
        record = request.scope["state"]["record"]
        log_event("computation failed", logging.ERROR, id=record.request_id, exception=error)
        return JSONResponse({"error": "The model failed to compute this request."}, 500)

    @app.exception_handler(Exception)
    async def answer_other_error(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "An error occurred in the server."}, 500)


def check_limit(count: int, most: int, what: str) -> None:
    """Refuses, with status 400, a request that has too many of something."""
    if count > most:
        raise RequestError(
            400, f"Invalid request: request ({count} {what}) exceeds text limit ({most} {what})"
        )


def check_most(name: str, value: int | None, most: int) -> None:
    """Refuses, with status 400, a field above the limit of the server."""
    if value is not None and value > most:
        raise RequestError(400, f"`{name}` is {value}: this server takes at most {most}.")


def shorten(value: object, most: int = 80) -> str:
    """Returns a value as JSON for a message, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= most else f"{text[:most]}..."


def _describe_problem(error: RequestValidationError) -> str:
    """Names one field that is wrong, its value, and what it takes."""
    problems = error.errors()
    for problem in problems:
        unknown = problem["loc"][-1:] or (problem["input"],)  # a name that is no Unicode text
        if problem["type"] == "extra_forbidden" or not problem["loc"]:
            return f"Unknown field {shorten(unknown[0])}: use {', '.join(error.body)}."
    # Of the types that a field may have, the one that fits best fails deepest in the value.
    field = problems[0]["loc"][0]
    tried = [problem for problem in problems if problem["loc"][0] == field]
    problem = max(tried, key=lambda problem: len(problem["loc"]))
    if problem["type"] == "missing":
        return f"Invalid request: missing {field} parameter"
    place = "".join(f"[{step}]" for step in problem["loc"] if isinstance(step, int))
    return f"`{field}{place}` is {shorten(problem['input'])}: {problem['msg']}."
