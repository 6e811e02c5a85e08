"""Reads `model.bin`, the file in which CTranslate2 stores a model.

All numbers are little-endian. Source of the layout: `ctranslate2.specs.model_spec` of CTranslate2
4.8.

    version: uint32
    name of the specification: text
    revision of the specification: uint32
    number of variables: uint32; for each of them
        name: text
        number of axes: uint8; the size of each: uint32
        type, a place in `TYPES`: uint8
        number of bytes: uint32; the bytes
    number of aliases: uint32; for each of them
        name: text
        name of a variable: text

A text is its number of bytes (uint16) and these bytes, of which the last one is zero.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.data.text_files import existing_file

TYPES = (
    torch.float32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.float16,
    torch.bfloat16,
)
"""The types of values by their number in a file."""

VERSIONS = (5, 6)
"""The versions of the file that are read. CTranslate2 writes version 6 since 3.0."""


@dataclass(frozen=True)
class Variable:
    """Where the values of a variable lie.

    Attributes:
        shape: The size of each axis; none for a single number.
        start: Place of the first byte in the file.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def count(self) -> int:
        """How many values there are."""
        return prod(self.shape)


@dataclass(frozen=True)
class ModelBin:
    """What a file holds. Values are read when they are asked for.

    Attributes:
        specification: Name of the kind of model, such as "TransformerSpec".
        variables: Variables by name. An alias has the variable that it stands for.
    """

    path: Path
    version: int
    specification: str
    revision: int
    variables: Mapping[str, Variable]
    _data: Any = field(repr=False)

    def tensor(self, name: str) -> torch.Tensor:
        """Returns the values of a variable: a view of the file, which is not read at once."""
        variable = self.variables[name]
        if variable.count == 0:
            return torch.empty(variable.shape, dtype=variable.dtype)
        flat = torch.frombuffer(
            self._data, dtype=variable.dtype, count=variable.count, offset=variable.start
        )
        return flat.view(variable.shape)


class _Cursor:
    """Reads a file from its begin to its end."""

    def __init__(self, data: Any, path: Path) -> None:
        self.data, self.path, self.place = data, path, 0

    def skip(self, size: int, what: str) -> int:
        """Steps over some bytes, and returns the place of the first one."""
        left = len(self.data) - self.place
        if size > left:
            raise ValueError(
                f"{str(self.path)!r} is cut off: {what} takes {size:,} bytes at byte "
                f"{self.place:,}, and {left:,} are left. Copy it again."
            )
        start = self.place
        self.place += size
        return start

    def number(self, kind: str, what: str) -> int:
        """Reads a number: `kind` is "B", "H" or "I" of `struct`."""
        value: int = struct.unpack_from(
            f"<{kind}", self.data, self.skip(struct.calcsize(f"<{kind}"), what)
        )[0]
        return value

    def text(self, what: str) -> str:
        """Reads a text."""
        size = self.number("H", f"the length of {what}")
        start = self.skip(size, what)
        content: bytes = self.data[start : start + size]
        if not content.endswith(b"\0"):
            raise self.error(f"{what} at byte {start:,} does not end with a zero")
        try:
            return content[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} at byte {start:,} is no text") from None

    def error(self, problem: str) -> ValueError:
        """Returns the error for a file that is no model of CTranslate2."""
        return ValueError(
            f"{str(self.path)!r} is damaged, or no model of CTranslate2: {problem}. Copy it again."
        )


def read_model_bin(path: str | Path) -> ModelBin:
    """Reads names, types and shapes of a file; the values stay on the disk."""
    path = existing_file(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{str(path)!r} is empty: copy it again.")
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    cursor = _Cursor(data, path)
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        raise ValueError(
            f"{str(path)!r} has version {version} of CTranslate2's layout; versions "
            f"{' and '.join(map(str, VERSIONS))} are read. Convert the model again with "
            "CTranslate2 3 or 4, or check that the file is one of CTranslate2."
        )
    specification = cursor.text("the name of the specification")
    revision = cursor.number("I", "the revision")
    variables: dict[str, Variable] = {}
    for number in range(cursor.number("I", "the number of variables")):
        name = cursor.text(f"the name of variable {number}")
        if name in variables:
            raise cursor.error(f"the variable `{name}` is there twice")
        variables[name] = _read_variable(cursor, name)
    for number in range(cursor.number("I", "the number of aliases")):
        alias = cursor.text(f"the name of alias {number}")
        of = cursor.text(f"the name behind the alias `{alias}`")
        if of not in variables:  # an alias that comes later, or the alias itself: a circle
            raise cursor.error(f"the alias `{alias}` leads to `{of}`, which is not there")
        if alias in variables:
            raise cursor.error(f"the variable `{alias}` is there twice")
        for end in ("", "_scale"):
            if of + end in variables:
                variables[alias + end] = variables[of + end]
    if cursor.place < len(data):
        raise cursor.error(f"{len(data) - cursor.place:,} bytes are left over")
    return ModelBin(path, version, specification, revision, variables, data)


def _read_variable(cursor: _Cursor, name: str) -> Variable:
    """Reads type and shape of a variable, and steps over its values."""
    axes = cursor.number("B", f"the number of axes of `{name}`")
    shape = tuple(cursor.number("I", f"the shape of `{name}`") for _ in range(axes))
    kind = cursor.number("B", f"the type of `{name}`")
    size = cursor.number("I", f"the size of `{name}`")
    if kind >= len(TYPES):
        raise cursor.error(f"`{name}` is of type {kind}, and there are {len(TYPES)} types")
    variable = Variable(TYPES[kind], shape, 0)
    if size != variable.count * variable.dtype.itemsize:
        raise cursor.error(
            f"`{name}` of shape {shape} and type {variable.dtype} has {size:,} bytes"
        )
    return Variable(variable.dtype, shape, cursor.skip(size, f"`{name}`"))
