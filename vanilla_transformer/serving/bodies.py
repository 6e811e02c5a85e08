"""Reads the body of a request, within its limits, as JSON or as a form."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import create_form_parser

from vanilla_transformer.serving.errors import CLIENT_GONE, RequestError, shorten
from vanilla_transformer.serving.settings import Limits

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000
"""Most fields of a form."""
_FORMS = ThreadPoolExecutor(1, "forms")  # one form at a time: all others share what is left


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"holds the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}, "
            "which is not Unicode text: send both halves of a pair, or UTF-8"
        ) from None
    return text


Text = Annotated[str, AfterValidator(_check_unicode)]
Texts = Text | Annotated[list[Text], Field(fail_fast=True)]


class Fields(BaseModel):
    """The fields of a body; unknown ones are errors."""

    model_config = ConfigDict(extra="forbid")


Given = TypeVar("Given", bound=Fields)


def content_type(request: Request, takes_forms: bool = False) -> str:
    """Returns the type of a body: JSON, or one of the types of forms.

    Args:
        takes_forms: Whether it may be a form; without a type, values are in the address alone.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if is_json(kind) or (takes_forms and kind in (FORM, MULTIPART, "")):
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
    body, size = bytearray(), int(declared) if declared.isdigit() else 0
    try:
        async with asyncio.timeout(limits.read_timeout):
            while size <= limits.max_body:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RequestError(CLIENT_GONE, "The client closed the connection.")
                body += message.get("body", b"")
                size = len(body)
                if size <= limits.max_body and not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise RequestError(
            408,
            f"The body did not arrive within {limits.read_timeout:g} s: send it at once.",
            {"Connection": "close"},
        ) from None
    raise RequestError(
        413,
        f"The body has more than {limits.max_body} bytes: send less in a request.",
        {"Connection": "close"},
    )


async def parse_body(request: Request, body: bytes, kind: str) -> dict[str, Any]:
    """Reads the values of a body, and of the address where the body may be a form."""
    if is_json(kind):
        return _parse_json(body)
    if kind == "" and body:
        raise RequestError(415, "The content type is missing: send JSON, as application/json.")
    pairs = _parse_urlencoded(request.scope["query_string"])
    if kind == MULTIPART:
        loop, header = asyncio.get_running_loop(), request.headers["content-type"]
        pairs += await loop.run_in_executor(_FORMS, _parse_multipart, header, body)
    else:
        pairs += _parse_urlencoded(body)
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise RequestError(
                400, f"The field {shorten(name)} is given twice: to send a list, send JSON."
            )
        values[name] = value
    return values


def check_fields(fields: type[Given], values: dict[str, Any], kind: str) -> Given:
    """Checks the values of a body.

    Args:
        values: What `parse_body` returned. In JSON, null counts as not given; in a form, so does a
            blank text.
        kind: What `content_type` returned; the texts of a form may mean numbers.
    """
    blank = None if is_json(kind) else ""
    given = {
        name: value
        for name, value in values.items()
        if value != blank or name not in fields.model_fields
    }
    try:
        return fields.model_validate(given, strict=is_json(kind))
    except ValidationError as error:
        raise RequestValidationError(error.errors(), body=list(fields.model_fields)) from None


def is_json(kind: str) -> bool:
    """Returns whether a content type is that of JSON."""
    return re.fullmatch(r"application/([\w.-]+\+)?json", kind) is not None


def _parse_json(body: bytes) -> dict[str, Any]:
    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON value")

    try:
        found = json.loads(body.decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise RequestError(
            400, f"The body is not UTF-8 (byte {error.start}): send JSON in UTF-8."
        ) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"The body is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise RequestError(
            400, 'The body is JSON, but not an object: send fields in braces, such as {"q": ...}.'
        )
    return found


def _parse_urlencoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode("ascii"),
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


def _parse_multipart(header: str, body: bytes) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []

    def add_field(field: Any) -> None:
        if len(pairs) == MOST_FIELDS:
            raise RequestError(400, f"The form has more than {MOST_FIELDS} fields.")
        pairs.append((field.field_name.decode(), (field.value or b"").decode()))

    def refuse_file(file: Any) -> NoReturn:
        name = file.field_name.decode("utf-8", "replace")
        raise RequestError(400, f"The field {shorten(name)} is a file: send a text.")

    ended: list[bool] = []
    try:
        # No file of a form is written to the disk: it is refused when it ends.
        parser = create_form_parser(
            {"Content-Type": header.encode("latin-1")},
            add_field,
            refuse_file,
            {"MAX_MEMORY_FILE_SIZE": len(body), "UPLOAD_ERROR_ON_BAD_CTE": True},
        )
        parser.on_end = lambda: ended.append(True)
        parser.write(body)
        parser.finalize()
    except UnicodeDecodeError:
        raise RequestError(400, "A field of the form is not UTF-8.") from None
    except FormParserError as error:
        raise RequestError(400, f"The form cannot be read: {str(error)[:200]}") from None
    if not ended:
        raise RequestError(400, "The form is not complete, or its boundary is missing.")
    return pairs
