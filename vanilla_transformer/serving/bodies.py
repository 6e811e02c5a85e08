"""Reads the body of a request, within its limits, as JSON or as a form."""

import asyncio
import json
import re
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vanilla_transformer.serving.errors import CLIENT_GONE, RequestError, shorten
from vanilla_transformer.serving.settings import Limits

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000
"""Most fields of a form."""
# With a constraint, pydantic refuses lone surrogates, which are not Unicode text.
Text = Annotated[str, StringConstraints(min_length=0)]
Texts = Text | Annotated[list[Text], Field(fail_fast=True)]


class Fields(BaseModel):
    """The fields of a body; unknown ones are errors, and so is a number written as a text."""

    model_config = ConfigDict(extra="forbid")


class LenientFields(Fields):
    """Fields as LibreTranslate reads them: unknown and blank ones do not count, "2" means 2."""

    model_config = ConfigDict(extra="ignore")


SomeFields = TypeVar("SomeFields", bound=Fields)


def content_type(request: Request, takes_forms: bool = False) -> str:
    """Returns the type of a body: JSON, or one of the types of forms.

    Args:
        takes_forms: Whether it may be a form; no type is that of a form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if _is_json(kind) or (takes_forms and kind in (FORM, MULTIPART, "")):
        return kind
    forms = f", {FORM} or {MULTIPART}" if takes_forms else ""
    raise RequestError(
        415, f"The content type is {shorten(kind)}: send JSON, as application/json{forms}."
    )


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """Reads a body as it is.

    Raises:
        RequestError: With status 408 if it comes too slowly, 413 if it is too large, 499 if the
            client is gone.
    """
    declared = request.headers.get("content-length", "")
    size = int(declared) if declared.isdigit() else 0
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(limits.read_timeout):
            # A body that is somewhat too large is read whole: while they send, most clients
            # do not read an answer.
            while more and size <= 4 * limits.max_body:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RequestError(CLIENT_GONE, "The client closed the connection.")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                size = max(size, len(body))
    except TimeoutError:
        if size <= limits.max_body:
            raise RequestError(
                408,
                f"The body did not arrive within {limits.read_timeout:g} s: send it at once.",
                {"Connection": "close"},
            ) from None
    if size <= limits.max_body:
        return bytes(body)
    raise RequestError(
        413,
        f"The body has more than {limits.max_body} bytes: send less in a request.",
        {"Connection": "close"},
    )


async def parse_body(
    request: Request, body: bytes, kind: str, max_files: int = 0
) -> dict[str, Any]:
    """Reads the values of a body, and of the address where the body may be a form.

    Args:
        max_files: Most files of a form; a file is an `UploadFile`.
    """
    if _is_json(kind):
        return _parse_json(body)
    pairs = _parse_urlencoded(request.scope["query_string"])
    if kind == MULTIPART:
        pairs += await _parse_multipart(request, body, max_files)
    else:
        pairs += _parse_urlencoded(body)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise RequestError(
                400, f"The field {shorten(name)} is given twice: to send a list, send JSON."
            )
        values[name] = value
    return values


def check_fields(fields: type[SomeFields], values: dict[str, Any], kind: str) -> SomeFields:
    """Checks the values of a body.

    Args:
        values: What `parse_body` returned. In JSON, null counts as not given; in a form and for
            `LenientFields`, so does a blank text.
        kind: What `content_type` returned; the texts of a form may mean numbers.
    """
    is_strict = _is_json(kind) and not issubclass(fields, LenientFields)
    blank = (None,) if is_strict else (None, "")
    supplied = {
        name: value
        for name, value in values.items()
        if value not in blank or name not in fields.model_fields
    }
    try:
        return fields.model_validate(supplied, strict=is_strict)
    except ValidationError as error:
        raise RequestValidationError(error.errors(), body=list(fields.model_fields)) from None


def _is_json(kind: str) -> bool:
    return re.fullmatch(r"application/([\w.-]+\+)?json", kind) is not None


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"The body is not JSON: {str(error)[:200]}") from None
    if not isinstance(values, dict):
        raise RequestError(
            400, 'The body is JSON, but not an object: send fields in braces, such as {"q": ...}.'
        )
    return values


def _parse_urlencoded(body: bytes) -> list[tuple[str, Any]]:
    try:
        return parse_qsl(
            body.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except UnicodeDecodeError:
        raise RequestError(
            400, "The form is not UTF-8: encode its values as UTF-8, then with percent signs."
        ) from None
    except ValueError:
        raise RequestError(400, f"The form has more than {MOST_FIELDS} fields.") from None


async def _parse_multipart(request: Request, body: bytes, max_files: int) -> list[tuple[str, Any]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    limits = {"max_files": max_files, "max_fields": MOST_FIELDS, "max_part_size": len(body)}
    form = await Request(request.scope, receive).form(**limits)
    return form.multi_items()
