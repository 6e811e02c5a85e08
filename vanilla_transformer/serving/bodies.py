"""Bodies of requests: read within the limits, as JSON or as a form, and checked."""

import asyncio
import json
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from vanilla_transformer.serving.errors import CLIENT_GONE, FieldsError, RequestError
from vanilla_transformer.serving.settings import Limits

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
MOST_FIELDS = 1000
"""Most fields of a form."""
# With a constraint, pydantic refuses lone surrogates, which are not Unicode text.
Text = Annotated[str, StringConstraints(min_length=0)]
Texts = Text | Annotated[list[Text], Field(fail_fast=True)]


class Fields(BaseModel):
    """The fields of a body; unknown ones are errors, and so is a number written as a text."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    not_given: ClassVar[tuple[Any, ...]] = (None,)

    @model_validator(mode="before")
    @classmethod
    def leave_out(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Leaves out the fields whose values mean that they are not given."""
        return {name: value for name, value in values.items() if value not in cls.not_given}


class LenientFields(Fields):
    """Fields as LibreTranslate reads them: unknown and blank ones do not count, "2" means 2."""

    model_config = ConfigDict(extra="ignore", strict=False)
    not_given: ClassVar[tuple[Any, ...]] = (None, "", [])
    api_key: Text = Field("", description="API key, where the server asks for one")


_READ_WHOLE = 4
"""A body up to so many times too large is read whole: clients that send read no answer yet."""
SomeFields = TypeVar("SomeFields", bound=Fields)


def describe_body(fields: type[Fields], *kinds: str) -> dict[str, Any]:
    """Returns the description of a body for OpenAPI."""
    content = {kind: {"schema": fields.model_json_schema()} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """Reads a body as it is, unless it comes too slowly, is too large, or the client is gone."""
    declared = request.headers.get("content-length", "")
    size = int(declared) if declared.isdigit() else 0
    body, more, is_late = bytearray(), True, False
    try:
        async with asyncio.timeout(limits.read_timeout):
            while more and size <= _READ_WHOLE * limits.max_body:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RequestError(CLIENT_GONE, "The client closed the connection.")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                size = max(size, len(body))
    except TimeoutError:
        is_late = True
    if size > limits.max_body:
        problem = f"The body has more than {limits.max_body} bytes: send less in a request."
        raise RequestError(413, problem, {"Connection": "close"})
    if is_late:
        problem = f"The body did not arrive within {limits.read_timeout:g} s: send it at once."
        raise RequestError(408, problem, {"Connection": "close"})
    return bytes(body)


async def parse_body(request: Request, body: bytes) -> dict[str, Any]:
    """Reads the values of a body: JSON, or a form. The address may hold some fields of a form."""
    kind = request.headers.get("content-type", "")
    if MULTIPART not in kind and body.lstrip().startswith(b"{"):  # `curl -d` calls it a form
        kind = "application/json"
    try:
        if "json" in kind:
            values = json.loads(body)
            if not isinstance(values, dict):
                raise RequestError(400, "The body is JSON, but not an object in braces.")
            return values
        pairs = _parse_urlencoded(request.scope["query_string"])
        pairs += await _parse_parts(request, body) if MULTIPART in kind else _parse_urlencoded(body)
    except (ValueError, RecursionError) as error:
        what = "JSON" if "json" in kind else "a form in UTF-8"
        raise RequestError(400, f"The body is not {what}: {str(error)[:200]}") from None
    if len(dict(pairs)) < len(pairs):
        raise RequestError(400, "A field is given twice: to send a list, send JSON.")
    return dict(pairs)


def _parse_urlencoded(body: bytes) -> list[tuple[str, Any]]:
    """Reads fields, which `curl -d` sends as they are: starlette would read them as Latin-1."""
    return parse_qsl(
        body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
    )


async def _parse_parts(request: Request, body: bytes) -> list[tuple[str, Any]]:
    """Reads fields, and at most one file."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    limits = {"max_files": 1, "max_fields": MOST_FIELDS, "max_part_size": len(body)}
    form = await Request(request.scope, receive).form(**limits)
    return form.multi_items()


def check_fields(fields: type[SomeFields], values: dict[str, Any]) -> SomeFields:
    """Checks the values of a body."""
    try:
        return fields.model_validate(values)
    except ValidationError as error:
        raise FieldsError(list(fields.model_fields), error.errors()) from None
