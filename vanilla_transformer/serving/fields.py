"""The fields of a request's body: one table reads them and describes them in the OpenAPI page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.serving.errors import RequestError

TEXT, TEXTS, INTEGER, NUMBER, FLAG = "text", "texts", "integer", "number", "flag"
_WRITTEN_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_KINDS: dict[str, dict[str, Any]] = {
    TEXT: {"type": "string"},
    TEXTS: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    INTEGER: {"type": "integer"},
    NUMBER: {"type": "number"},
    FLAG: {"type": "boolean"},
}
_NOUNS = {
    TEXT: "a text",
    TEXTS: "a text or a list of texts",
    INTEGER: "a whole number",
    NUMBER: "a number",
    FLAG: "true or false",
}


@dataclass(frozen=True)
class Field:
    """A field of a body.

    Attributes:
        name: Its name.
        kind: One of the kinds of this module.
        description: What it means.
        minimum: Smallest number.
        maximum: Largest number.
        choices: Texts that are possible; empty: any.
        is_required: Whether it must be given.
    """

    name: str
    kind: str
    description: str
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    is_required: bool = False


def read_fields(
    fields: Sequence[Field], values: Mapping[str, Any], is_form: bool = False
) -> dict[str, Any]:
    """Checks the values of a body.

    Args:
        fields: What may be given.
        values: Values by name; None counts as not given.
        is_form: Whether values are texts that stand for numbers.

    Returns:
        The values that are given, of the types of their fields.

    Raises:
        RequestError: With status 400 if a field is unknown, is missing, or has a wrong value.
    """
    known = {field.name: field for field in fields}
    for name in values:
        if name not in known:
            raise RequestError(400, f"Unknown field {shorten(name)!r}: use {', '.join(known)}.")
    found = {}
    for field in fields:
        value = values.get(field.name)
        if value is not None:
            found[field.name] = _check_value(field, _from_form(field, value) if is_form else value)
        elif field.is_required:
            raise RequestError(400, f"Invalid request: missing {field.name} parameter")
    return found


def schema_of(fields: Sequence[Field]) -> dict[str, Any]:
    """Returns the JSON schema of a body.

    Args:
        fields: What may be given.
    """
    properties = {}
    for field in fields:
        described = {**_KINDS[field.kind], "description": field.description}
        if field.minimum > -math.inf:
            described["minimum"] = field.minimum
        if field.maximum < math.inf:
            described["maximum"] = field.maximum
        if field.choices:
            described["enum"] = list(field.choices)
        properties[field.name] = described
    return {
        "type": "object",
        "properties": properties,
        "required": [field.name for field in fields if field.is_required],
        "additionalProperties": False,
    }


def check_text(text: str, name: str) -> None:
    """Checks that a text is Unicode text.

    Args:
        text: The text.
        name: Name of its field.

    Raises:
        RequestError: With status 400 if it holds a lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            400,
            f"`{name}` holds the lone surrogate U+{ord(text[error.start]):04X} at character "
            f"{error.start}, which is not Unicode text: send both halves of a pair, or UTF-8.",
        ) from None


def shorten(value: object, most: int = 80) -> str:
    """Returns a value as text for a message, without lone surrogates, cut where it is long.

    Args:
        value: The value.
        most: Longest text.
    """
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}..."


def _from_form(field: Field, value: str) -> Any:
    """Reads a number or a flag as forms write it; other texts are left for the check."""
    if field.kind == FLAG:
        return _WRITTEN_FLAGS.get(value.lower(), value)
    if field.kind not in (INTEGER, NUMBER) or len(value) > 40:
        return value
    for read in (int, float) if field.kind == NUMBER else (int,):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def _check_value(field: Field, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        TEXT: isinstance(value, str),
        TEXTS: isinstance(value, str)
        or (isinstance(value, list) and all(isinstance(one, str) for one in value)),
        INTEGER: isinstance(value, int) and is_number,
        NUMBER: is_number and math.isfinite(value),
        FLAG: isinstance(value, bool),
    }[field.kind]
    if not fits:
        raise RequestError(
            400, f"`{field.name}` is {_describe_value(value)}: give {_NOUNS[field.kind]}."
        )
    if is_number and not field.minimum <= value <= field.maximum:
        raise RequestError(
            400,
            f"`{field.name}` is {shorten(value)}: give {_NOUNS[field.kind]} "
            f"{_describe_range(field)}.",
        )
    if field.choices and value not in field.choices:
        raise RequestError(
            400,
            f"`{field.name}` {shorten(value)!r} is not supported: use {', '.join(field.choices)}.",
        )
    for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
        check_text(text, field.name)
    return value


def _describe_value(value: Any) -> str:
    if isinstance(value, list):
        strange = next((one for one in value if not isinstance(one, str)), None)
        return f"a list with {_describe_value(strange)}"
    names = {dict: "an object", type(None): "null"}
    return names.get(type(value)) or shorten(repr(value))


def _describe_range(field: Field) -> str:
    if field.maximum == math.inf:
        return f"of at least {field.minimum:g}"
    return f"from {field.minimum:g} to {field.maximum:g}"
