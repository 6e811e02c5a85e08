"""A context manager that evaluates a model: eval mode, no gradients."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch


@dataclass
class Evaluations:
    """The blocks that evaluate a model at this moment, and the modes to which it returns."""

    count: int
    modes: list[tuple[torch.nn.Module, bool]]


_running: WeakKeyDictionary[torch.nn.Module, Evaluations] = WeakKeyDictionary()
_running_lock = threading.Lock()


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Runs a block with a model in eval mode and without gradients.

    Args:
        model: The model. When the block ends, even with an error, each of its modules returns to
            the mode it was in. If several threads evaluate the model, it returns with the last.

    Yields:
        None.
    """
    _enter_evaluation(model)
    try:
        with torch.no_grad():
            yield
    finally:
        _leave_evaluation(model)


def _enter_evaluation(model: torch.nn.Module) -> None:
    with _running_lock:
        running = _running.get(model)
        if running is None:
            modes = [(module, module.training) for module in model.modules()]
            _running[model] = running = Evaluations(0, modes)
        running.count += 1
        model.eval()


def _leave_evaluation(model: torch.nn.Module) -> None:
    with _running_lock:
        running = _running[model]
        running.count -= 1
        if running.count:
            return
        del _running[model]
        for module, training in running.modes:
            module.training = training
