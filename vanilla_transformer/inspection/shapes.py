"""The shapes that flow through a model, module by module, as one call of it goes."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache

from vanilla_transformer.model.evaluation_mode import evaluation_mode

Shapes = dict[str, tuple[int, ...]]
"""Shapes by name: of an argument, of a field of an output, or "" for an output that is a tensor."""


@dataclass
class ShapeRecord:
    """One call of one module.

    Attributes:
        name: Name of the module in the model; "" for the model itself.
        kind: Name of its class.
        depth: Number of calls that it happened inside of.
        inputs: Shapes of the tensors among its arguments, by name, as they were before the call. A
            cache counts by the keys that its layers hold; the values have the same shape.
        outputs: Shapes of the tensors that it returned, by name; a position in a tuple is a name.
        parameters: Number of parameters of the module and those in it, each counted once.
    """

    name: str
    kind: str
    depth: int
    parameters: int
    inputs: Shapes = field(default_factory=dict)
    outputs: Shapes = field(default_factory=dict)


@dataclass
class ShapeWalk:
    """The calls of all modules in the order in which they began; `str()` of it is a table.

    Attributes:
        records: One for each call.
        total_parameters: Number of parameters of the model; those that are tied count once.
    """

    records: list[ShapeRecord]
    total_parameters: int

    def __iter__(self) -> Iterator[ShapeRecord]:
        """Goes through the records in the order of the calls."""
        return iter(self.records)

    def __len__(self) -> int:
        """Returns the number of calls."""
        return len(self.records)

    def __str__(self) -> str:
        """Returns a line for each call, indented as the calls are nested, and the total."""
        rows = [("module", "parameters", "inputs -> outputs"), *self._rows()]
        rows.append(("total", f"{self.total_parameters:,}", ""))
        width, digits = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines = (f"{name:<{width}}  {count:>{digits}}  {flow}" for name, count, flow in rows)
        return "\n".join(line.rstrip() for line in lines)

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Names each module as its caller does: without the caller's own name in front."""
        callers: list[str] = []
        for record in self.records:
            del callers[record.depth :]
            caller = f"{callers[-1]}.".lstrip(".") if callers else ""
            callers.append(record.name)
            name = f"{record.name.removeprefix(caller)} {record.kind}".strip()
            flow = f"{_text(record.inputs)} -> {_text(record.outputs)}"
            yield "  " * record.depth + name, f"{record.parameters:,}", flow


def _text(shapes: Shapes) -> str:
    named = ((name if not name.isdigit() else "", shape) for name, shape in shapes.items())
    return ", ".join(f"{name} {shape}".strip() for name, shape in named) or "-"


def shape_walk(model: nn.Module, inputs: Mapping[str, Any]) -> ShapeWalk:
    """Runs a model once and records every call of a module in it, by hooks on the real model.

    The call is made in eval mode and without gradients. Afterwards, also after an error, the hooks
    are gone and every module is in the mode that it was in.

    Args:
        model: Any module.
        inputs: Arguments of the call by name, such as a tokenizer's output.

    Returns:
        The records, in the order in which the calls began.

    Raises:
        ValueError: From the model, if it cannot use the inputs.
    """
    watch = _Watch(model)
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        for module in model.modules():
            before = module.register_forward_pre_hook(watch.before, with_kwargs=True)
            stack.callback(before.remove)
            stack.callback(module.register_forward_hook(watch.after).remove)
        model(**inputs)
    return ShapeWalk(watch.records, _count(model))


class _Watch:
    """Writes a record before each call of a module, and completes it after the call."""

    def __init__(self, model: nn.Module) -> None:
        self.records: list[ShapeRecord] = []
        self._running: list[ShapeRecord] = []
        self._names: dict[nn.Module, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            self._names.setdefault(module, []).append(name)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Opens a record; a pre-hook with keyword arguments."""
        record = ShapeRecord(
            name=self._name(module),
            kind=type(module).__name__,
            depth=len(self._running),
            parameters=_count(module),
            inputs=dict(_shapes("", _arguments(module, args, kwargs))),
        )
        self.records.append(record)
        self._running.append(record)

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Completes the record opened last; a forward hook."""
        self._running.pop().outputs = dict(_shapes("", output))

    def _name(self, module: nn.Module) -> str:
        """Of the names of a shared module, prefers one inside the module that calls it."""
        names = self._names[module]
        caller = f"{self._running[-1].name}.".lstrip(".") if self._running else ""
        return next((name for name in names if name.startswith(caller)), names[0])


def _arguments(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    signature = inspect.signature(module.forward)
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if rest else {name: value}
    return named


def _shapes(name: str, value: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Finds the tensors in what a module takes or returns, and names each by its place in it."""
    parts: Mapping[str, Any] = {}
    if isinstance(value, torch.Tensor):
        yield name, tuple(value.shape)
    elif isinstance(value, Cache):
        parts = _parts_of_cache(value)
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", map(str, range(len(value))))
        parts = dict(zip(names, value, strict=True))
    for part, inner in parts.items():
        yield from _shapes(f"{name}.{part}".lstrip("."), inner)


def _parts_of_cache(cache: Cache) -> dict[str, Any]:
    """Returns the keys of each layer, or one entry for all of them where the shapes are equal."""
    if isinstance(cache, EncoderDecoderCache):
        return {"self": cache.self_attention_cache, "cross": cache.cross_attention_cache}
    keys = [getattr(layer, "keys", None) for layer in cache.layers]
    filled = {f"layer {i}": key for i, key in enumerate(keys) if isinstance(key, torch.Tensor)}
    if len(filled) > 1 and len({key.shape for key in filled.values()}) == 1:
        return {f"layers 0-{len(filled) - 1}": next(iter(filled.values()))}
    return filled


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
