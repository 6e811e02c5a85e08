"""Records the shapes of inputs and outputs of every module during one call of a model."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache

from vanilla_transformer.model.context import CallContext
from vanilla_transformer.model.evaluation import evaluation_mode

Shapes = dict[str, tuple[int, ...]]
"""Shapes by name of the argument or of the output field; "" if the output is one tensor."""


@dataclass(frozen=True)
class ShapeRecord:
    """One call of one module.

    Attributes:
        name: Name of the module in the model; "" for the model itself.
        depth: Number of calls that this call is nested in.
        parameters: Number of parameters of the module and its submodules. Shared ones count once.
        inputs: Shapes of the tensor arguments before the call, by name. A cache is shown by the
            keys that its layers hold; the values have the same shape.
        outputs: Shapes of the returned tensors, by name, or by position in a tuple.
    """

    name: str
    kind: str
    depth: int
    parameters: int
    inputs: Shapes = field(default_factory=dict)
    outputs: Shapes = field(default_factory=dict)


@dataclass(frozen=True)
class ShapeWalk:
    """The calls of all modules, in the order in which they started. `str()` makes a table.

    Attributes:
        total_parameters: Number of parameters of the model. Tied parameters count once.
    """

    records: list[ShapeRecord]
    total_parameters: int

    def __iter__(self) -> Iterator[ShapeRecord]:
        """Iterates over the records in the order of the calls."""
        return iter(self.records)

    def __str__(self) -> str:
        """Returns a table with an indented line for each call, and the total."""
        rows = [("module", "parameters", "inputs -> outputs"), *self._table_rows()]
        rows.append(("total", f"{self.total_parameters:,}", ""))
        width, digits = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines = (f"{name:<{width}}  {count:>{digits}}  {flow}" for name, count, flow in rows)
        return "\n".join(line.rstrip() for line in lines)

    def _table_rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields the rows of the table. A name leaves out the prefix of the calling module."""
        callers: list[str] = []
        for record in self.records:
            del callers[record.depth :]
            caller = f"{callers[-1]}.".lstrip(".") if callers else ""
            callers.append(record.name)
            name = f"{record.name.removeprefix(caller)} {record.kind}".strip()
            flow = f"{format_shapes(record.inputs)} -> {format_shapes(record.outputs)}"
            yield "  " * record.depth + name, f"{record.parameters:,}", flow


def format_shapes(shapes: Shapes) -> str:
    """Formats shapes on one line. A position in a tuple is not shown."""
    named = ((name if not name.isdigit() else "", shape) for name, shape in shapes.items())
    return ", ".join(f"{name} {shape}".strip() for name, shape in named) or "-"


def shape_walk(model: nn.Module, inputs: Mapping[str, Any]) -> ShapeWalk:
    """Runs a model once and records every call of a module in it.

    The model runs in eval mode and without gradients, with hooks on its modules. Afterwards, also
    after an error, the hooks are removed and the mode of every module is restored.

    Args:
        inputs: Arguments of the call by name, such as a tokenizer's output.
    """
    recorder = _CallRecorder(model)
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        for module in model.modules():
            before = module.register_forward_pre_hook(recorder.before, with_kwargs=True)
            stack.callback(before.remove)
            stack.callback(module.register_forward_hook(recorder.after).remove)
        model(**inputs)
    return ShapeWalk(recorder.records, _count_parameters(model))


class _CallRecorder:
    """Adds a record before each call of a module, and completes it after the call."""

    def __init__(self, model: nn.Module) -> None:
        self.records: list[ShapeRecord] = []
        self._running: list[int] = []  # indices of the records of the running calls
        self._names: dict[nn.Module, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            self._names.setdefault(module, []).append(name)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Adds a record (a forward pre-hook with keyword arguments)."""
        record = ShapeRecord(
            name=self._name_for_caller(module),
            kind=type(module).__name__,
            depth=len(self._running),
            parameters=_count_parameters(module),
            inputs=dict(_find_shapes("", _named_arguments(module, args, kwargs))),
        )
        self._running.append(len(self.records))
        self.records.append(record)

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Completes the record of the innermost running call (a forward hook)."""
        index = self._running.pop()
        outputs = dict(_find_shapes("", output))
        self.records[index] = replace(self.records[index], outputs=outputs)

    def _name_for_caller(self, module: nn.Module) -> str:
        """Returns the module's name; for a shared module, the one inside the calling module."""
        names = self._names[module]
        running = self.records[self._running[-1]].name if self._running else ""
        caller = f"{running}.".lstrip(".")
        return next((name for name in names if name.startswith(caller)), names[0])


def _named_arguments(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """Returns the arguments of a call of a module's forward by name."""
    signature = inspect.signature(module.forward)
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        parts = value._asdict() if isinstance(value, CallContext) else value
        named |= parts if rest or parts is not value else {name: value}
    return named


def _find_shapes(name: str, value: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields name and shape of each tensor in an argument or output, however deeply nested."""
    parts: Mapping[str, Any] = {}
    if isinstance(value, torch.Tensor):
        yield name, tuple(value.shape)
    elif isinstance(value, Cache):
        parts = _cached_keys(value)
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", map(str, range(len(value))))
        parts = dict(zip(names, value, strict=True))
    for part, inner in parts.items():
        yield from _find_shapes(f"{name}.{part}".lstrip("."), inner)


def _cached_keys(cache: Cache) -> dict[str, Any]:
    """Returns the keys of each layer, or one entry for all layers if their shapes are equal."""
    if isinstance(cache, EncoderDecoderCache):
        return {"self": cache.self_attention_cache, "cross": cache.cross_attention_cache}
    keys = [getattr(layer, "keys", None) for layer in cache.layers]
    filled = {f"layer {i}": key for i, key in enumerate(keys) if isinstance(key, torch.Tensor)}
    if len(filled) > 1 and len({key.shape for key in filled.values()}) == 1:
        return {f"layers 0-{len(filled) - 1}": next(iter(filled.values()))}
    return filled


def _count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
