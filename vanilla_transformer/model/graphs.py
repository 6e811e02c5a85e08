"""CUDA graphs: what a step starts on a GPU is recorded once, and replayed at one call.

A graph repeats kernels, with their addresses and numbers. Python code does not run again: hooks are
not called, and values that have changed since are not seen.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn.modules import module as torch_module

_lock = threading.Lock()  # torch records one graph at a time, also for several threads
_drawing = 0  # blocks of `draws_random_numbers` that run now

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@contextmanager
def draws_random_numbers() -> Iterator[None]:
    """Runs a block during which nothing is recorded.

    torch raises an error if one thread draws random numbers of a GPU while another one records.
    """
    global _drawing
    with _lock:
        _drawing += 1
    try:
        yield
    finally:
        with _lock:
            _drawing -= 1


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream of all recordings of a device: cuBLAS keeps memory for each stream."""
    return torch.cuda.Stream(device)


class Recorder:
    """Records graphs that never run at the same time: they share their memory.

    Args:
        device: A GPU, with its index.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # It stays, and with it the memory that graphs share, when they are dropped.
        self._first: torch.cuda.CUDAGraph | None = None

    def record(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Records what a function starts on the device; nothing is computed.

        Returns:
            The graph. None: another thread draws random numbers.

        Raises:
            torch.OutOfMemoryError: If the device lacks memory. What is free, but was not given
                back, does not count.
        """
        with _lock:
            if _drawing:
                return None
            if self._first is None:
                self._first = self._capture(lambda: torch.zeros(1, device=self.device))
            return self._capture(step)

    def _capture(self, step: Callable[[], Any]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = None if self._first is None else self._first.pool()
        with torch.cuda.device(self.device), torch.cuda.stream(_capture_stream(self.device)):
            # Other threads may go on, such as one that pins memory for batches. `torch.cuda.graph`
            # would also give all free memory back, which takes longer than a short search.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                step()
            except BaseException:
                with suppress(RuntimeError):  # the first error tells what has happened
                    graph.capture_end()
                raise
            try:
                graph.capture_end()
            except torch.AcceleratorError as error:  # of the driver, which makes the graph
                if "out of memory" in str(error):
                    raise torch.OutOfMemoryError(str(error)) from error
                raise
        return graph


def runs_recordable_code(model: nn.Module) -> bool:
    """Returns whether a call of a model runs its own code alone, which a graph can repeat.

    Hooks, and forwards that are replaced on a module, may do anything. Known are hooks with the
    attribute `is_recordable`, what Accelerate puts around a model's forward, and compiled layers.
    """
    if any(getattr(torch_module, f"_global{name}") for name in _HOOKS):
        return False
    if not has_own_forward(model):
        return False
    for module in model.modules():
        parts = vars(module)
        hooks = [hook for name in _HOOKS for hook in parts[name].values()]
        if not all(getattr(hook, "is_recordable", False) for hook in hooks):
            return False
        is_known = module is model or isinstance(module, OptimizedModule)
        if "forward" in parts and not is_known:
            return False
    return True


def has_own_forward(model: nn.Module) -> bool:
    """Returns whether a model's forward is that of its class, with or without Accelerate's cast."""
    forward = vars(model).get("forward")
    if forward is None:
        return True
    original = getattr(vars(model).get("_original_forward"), "__func__", None)
    wrapper = type(getattr(forward, "__wrapped__", None)).__name__
    return original is type(model).forward and wrapper == "ConvertOutputsToFp32"
