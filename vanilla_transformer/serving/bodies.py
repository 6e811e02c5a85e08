"""Reads the body of a request, within its limits, as JSON or as a form."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from fastapi import Request

from vanilla_transformer.serving.errors import CLIENT_GONE, RequestError
from vanilla_transformer.serving.fields import shorten
from vanilla_transformer.serving.settings import Limits

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


@dataclass(frozen=True)
class Body:
    """The values of a body.

    Attributes:
        values: Values by name.
        is_form: Whether values are texts that may stand for numbers.
    """

    values: Mapping[str, Any]
    is_form: bool


async def read_json(request: Request, limits: Limits) -> Body:
    """Reads a JSON object.

    Args:
        request: The request.
        limits: Its limits.

    Returns:
        The values.

    Raises:
        RequestError: With status 400 if the body is not a JSON object, 408 if it comes too slowly,
            413 if it is too large, 415 if it is something else.
    """
    kind, _ = _content_type(request)
    if not _is_json(kind):
        raise RequestError(
            415, f"The content type is {shorten(kind)!r}: send JSON, as application/json."
        )
    return Body(_parse_json(await _read_bytes(request, limits)), is_form=False)


async def read_json_or_form(request: Request, limits: Limits) -> Body:
    """Reads a JSON object, or the values of a form and of the address.

    Args:
        request: The request.
        limits: Its limits.

    Returns:
        The values.

    Raises:
        RequestError: As `read_json`.
    """
    kind, header = _content_type(request)
    if _is_json(kind):
        return await read_json(request, limits)
    if kind not in (FORM, MULTIPART, ""):
        raise RequestError(
            415,
            f"The content type is {shorten(kind)!r}: send application/json, {FORM} or {MULTIPART}.",
        )
    body = await _read_bytes(request, limits)
    if kind == "" and body:
        raise RequestError(415, "The content type is missing: send JSON, as application/json.")
    pairs = _parse_multipart(header, body) if kind == MULTIPART else _parse_urlencoded(body)
    query = _parse_urlencoded(request.scope["query_string"])
    return Body(_without_duplicates([*query, *pairs]), is_form=True)


def _content_type(request: Request) -> tuple[str, str]:
    header = request.headers.get("content-type", "")
    return header.partition(";")[0].strip().lower(), header


def _is_json(kind: str) -> bool:
    return re.fullmatch(r"application/([\w.-]+\+)?json", kind) is not None


async def _read_bytes(request: Request, limits: Limits) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        _refuse_large_body(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.read_seconds):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RequestError(CLIENT_GONE, "The client closed the connection.")
                body += message.get("body", b"")
                if len(body) > limits.body_bytes:
                    _refuse_large_body(limits)
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise RequestError(
            408,
            f"The body did not arrive within {limits.read_seconds:g} s: send it at once.",
            {"Connection": "close"},
        ) from None


def _refuse_large_body(limits: Limits) -> NoReturn:
    raise RequestError(
        413,
        f"The body has more than {limits.body_bytes} bytes: send less in a request.",
        {"Connection": "close"},
    )


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RequestError(
            400, f"The body is not UTF-8 (byte {error.start}): send JSON in UTF-8."
        ) from None
    except RecursionError:
        raise RequestError(400, "The body is not JSON that is used here: it is nested.") from None
    except ValueError as error:
        raise RequestError(400, f"The body is not JSON: {shorten(error, 200)}") from None
    if not isinstance(found, dict):
        raise RequestError(
            400, 'The body is JSON, but not an object: send fields in braces, such as {"q": ...}.'
        )
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _parse_urlencoded(body: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
    except UnicodeDecodeError:
        raise RequestError(
            400, "The form is not UTF-8: encode its values as UTF-8, then with percent signs."
        ) from None
    except ValueError:
        raise RequestError(400, "The form has more than 1000 fields.") from None
    return pairs


def _parse_multipart(header: str, body: bytes) -> list[tuple[str, str]]:
    head = f"Content-Type: {header}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart() or message.defects:
        raise RequestError(400, "The form is not complete, or its boundary is missing.")
    pairs = []
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise RequestError(400, "A part of the form has no name.")
        if part.get_filename() is not None:
            raise RequestError(400, f"The field {shorten(name)!r} is a file: send a text.")
        try:
            pairs.append((name, content.decode("utf-8")))
        except UnicodeDecodeError:
            raise RequestError(400, f"The field {shorten(name)!r} is not UTF-8.") from None
    return pairs


def _without_duplicates(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise RequestError(
                400, f"The field {shorten(name)!r} is given twice: to send a list, send JSON."
            )
        values[name] = value
    return values
