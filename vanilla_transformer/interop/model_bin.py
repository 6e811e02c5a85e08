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
    """Reads numbers and texts, one after the other."""

    def __init__(self, data: Any) -> None:
        self.data, self.place = data, 0

    def skip(self, size: int) -> int:
        """Steps over some bytes, and returns the place of the first one."""
        start = self.place
        self.place += size
        if self.place > len(self.data):
            raise ValueError(f"it is cut off at byte {len(self.data):,}")
        return start

    def number(self, kind: str) -> int:
        """Reads a number: `kind` is "B", "H" or "I" of `struct`."""
        kind = f"<{kind}"
        value: int = struct.unpack_from(kind, self.data, self.skip(struct.calcsize(kind)))[0]
        return value

    def text(self) -> str:
        """Reads a text without the zero at its end."""
        size = self.number("H")
        start = self.skip(size)
        content: bytes = self.data[start : start + size]
        return content[:-1].decode("utf-8")


def read_model_bin(path: str | Path) -> ModelBin:
    """Reads names, types and shapes of a file; the values stay on the disk."""
    path = existing_file(path)
    try:
        with path.open("rb") as file:
            return _read_file(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except (ValueError, LookupError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged, or no model of CTranslate2 ({error}): copy it again."
        ) from error


def _read_file(path: Path, data: Any) -> ModelBin:
    cursor = _Cursor(data)
    version = cursor.number("I")
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise ValueError(f"it has version {version}; versions {known} are read")
    specification, revision = cursor.text(), cursor.number("I")
    variables: dict[str, Variable] = {}
    for _ in range(cursor.number("I")):
        name = cursor.text()
        variables[name] = _read_variable(cursor)
    for _ in range(cursor.number("I")):
        alias, name = cursor.text(), cursor.text()
        variables[alias] = variables[name]
        if f"{name}_scale" in variables:
            variables[f"{alias}_scale"] = variables[f"{name}_scale"]
    if cursor.place < len(data):
        raise ValueError(f"{len(data) - cursor.place:,} bytes are left over")
    return ModelBin(path, version, specification, revision, variables, data)


def _read_variable(cursor: _Cursor) -> Variable:
    """Reads type and shape of a variable, and steps over its values."""
    axes = cursor.number("B")
    shape = tuple(cursor.number("I") for _ in range(axes))
    dtype, size = TYPES[cursor.number("B")], cursor.number("I")
    if size != prod(shape) * dtype.itemsize:
        raise ValueError(f"a variable of shape {shape} and type {dtype} has {size:,} bytes")
    return Variable(dtype, shape, cursor.skip(size))
