"""Reads `model.bin`, the file in which CTranslate2 stores a model.

All numbers are little-endian. Source of the layout: `ctranslate2.specs.model_spec` of CTranslate2
4.8.

    version: uint32
    name of the specification: text
    revision of the specification: uint32
    number of variables: uint32; for each of them
        name: text
        number of axes: uint8; the size of each: uint32
        type, an index of `TYPES`: uint8
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

TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
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


@dataclass(frozen=True)
class ModelBin:
    """The variables of a file. Values are read when they are asked for.

    Attributes:
        specification: Name of the kind of model, such as "TransformerSpec".
        variables: Variables by name. An alias has the variable that it stands for.
        asked: Names that a reader has asked for: the others mean nothing to it.
    """

    version: int
    specification: str
    variables: Mapping[str, Variable]
    _data: Any = field(repr=False)
    asked: set[str] = field(default_factory=set)

    def tensor(self, name: str) -> torch.Tensor:
        """Returns the values of a variable: a view of the file, which is not read at once."""
        variable = self.variables[name]
        count = prod(variable.shape)
        if count == 0:
            return torch.empty(variable.shape, dtype=variable.dtype)
        flat = torch.frombuffer(
            self._data, dtype=variable.dtype, count=count, offset=variable.start
        )
        return flat.view(variable.shape)

    def weight(self, name: str) -> torch.Tensor:
        """Returns a weight; numbers in 8 or 16 bits become floats."""
        self.asked.update((name, f"{name}_scale"))
        values = self.tensor(name)
        if values.is_floating_point():
            return values
        scale = self.tensor(f"{name}_scale").float()  # one of each row, or one of all
        return values.float() / scale.reshape(-1, *[1] * (values.dim() - 1))

    def number(self, name: str, default: float | None = None) -> float | None:
        """Returns an attribute, also of a model that has one for both stacks."""
        for known in (name, name.partition("/")[2]):
            if known in self.variables:
                self.asked.add(known)
                return float(self.tensor(known).reshape(()).item())
        return default

    def integer(self, name: str, default: int) -> int:
        """Returns an attribute that is a whole number, or a flag: 0 or 1."""
        return int(self.number(name, default) or 0)


def read_model_bin(path: str | Path) -> ModelBin:
    """Reads names, types and shapes of a file; the values stay on the disk."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _read_file(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except (ValueError, LookupError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged, or no model of CTranslate2 ({error}): copy it again."
        ) from error


def _read_file(data: Any) -> ModelBin:
    offset = 0

    def skip(size: int) -> int:
        """Steps over some bytes, and returns the offset of the first one."""
        nonlocal offset
        start, offset = offset, offset + size
        if offset > len(data):
            raise ValueError(f"it is cut off at byte {len(data):,}")
        return start

    def number(kind: str) -> int:
        """Reads a number: `kind` is "B", "H" or "I" of `struct`."""
        value: int = struct.unpack_from(f"<{kind}", data, skip(struct.calcsize(f"<{kind}")))[0]
        return value

    def text() -> str:
        size = number("H")
        content: bytes = data[(start := skip(size)) : start + size]
        return content[:-1].decode("utf-8")

    def variable() -> Variable:
        """Reads type and shape of a variable, and steps over its values."""
        shape = tuple(number("I") for _ in range(number("B")))
        dtype, size = TYPES[number("B")], number("I")
        if size != prod(shape) * dtype.itemsize:
            raise ValueError(f"a variable of shape {shape} and type {dtype} has {size:,} bytes")
        return Variable(dtype, shape, skip(size))

    if (version := number("I")) not in VERSIONS:
        raise ValueError(f"it has version {version}; versions {VERSIONS} are read")
    specification, _ = text(), number("I")
    variables = {text(): variable() for _ in range(number("I"))}
    for _ in range(number("I")):
        alias, name = text(), text()
        variables[alias] = variables[name]
        if f"{name}_scale" in variables:
            variables[f"{alias}_scale"] = variables[f"{name}_scale"]
    if offset < len(data):
        raise ValueError(f"{len(data) - offset:,} bytes are left over")
    return ModelBin(version, specification, variables, data)
