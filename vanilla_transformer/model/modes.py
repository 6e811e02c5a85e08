"""How a call runs: traced or not, in evaluation mode, and with some tokens banned."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch


def is_tracing() -> bool:
    """Returns whether the current call is recorded or transformed instead of simply run.

    This is True under `torch.compile`, `torch.export`, `torch.jit.trace`, `torch.func` transforms
    and CUDA graph capture. Such calls must not use shapes that depend on data, or draw random
    numbers other than by torch's own layers.
    """
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or transformed:
        return True
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def has_readable_values(tensor: torch.Tensor) -> bool:
    """Returns whether a check may read the values of a tensor without cost.

    Not so on other devices, where reading would wait for the device, and not for fake tensors,
    which hold no values, and tensors of a `torch.func` transform: those of `vmap` hold many.
    """
    is_plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    if not is_plain or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def matmul_dtype(states: torch.Tensor) -> torch.dtype:
    """Returns the type in which a matrix product of these states is computed, with autocast."""
    device = states.device.type
    if states.is_meta or not torch.is_autocast_enabled(device):  # "meta" has no autocast
        return states.dtype
    return torch.get_autocast_dtype(device)


def cast_for_matmul(states: torch.Tensor) -> torch.Tensor:
    """Converts states once for several matrix products; autocast would do so for each."""
    return states.to(matmul_dtype(states))


def is_plain_product(linear: torch.nn.Module) -> bool:
    """Returns whether a call of a module is exactly the product with its weight, plus its bias."""
    if type(linear) is not torch.nn.Linear or "forward" in vars(linear):
        return False
    hooks = (linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks)
    is_plain = not any(hooks) and not linear._backward_pre_hooks
    return is_plain and type(linear.weight) in (torch.Tensor, torch.nn.Parameter)


@dataclass
class _Evaluations:
    """How many blocks evaluate a model now, and the modes to which its modules return."""

    count: int
    modes: list[tuple[torch.nn.Module, bool]]


_running: WeakKeyDictionary[torch.nn.Module, _Evaluations] = WeakKeyDictionary()
_running_lock = threading.Lock()


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Runs a block with a model in eval mode and without gradients.

    Then each of its modules returns to the mode it was in; if several threads evaluate the model,
    with the last of them.
    """
    with _running_lock:
        running = _running.get(model)
        if running is None:
            modes = [(module, module.training) for module in model.modules()]
            _running[model] = running = _Evaluations(0, modes)
        running.count += 1
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        with _running_lock:
            running.count -= 1
            if not running.count:
                del _running[model]
                for module, training in running.modes:
                    module.training = training


@contextmanager
def banned_ids(model: Any, ids: Sequence[int]) -> Iterator[None]:
    """Runs a block in which a model never chooses some ids, such as rows that have no token."""
    banned = torch.tensor(ids, device=model.device)  # once: a recorded step cannot bring it there

    def ban(module: Any, inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits.index_fill(-1, banned.to(logits.device), -torch.inf)

    ban.is_recordable = True  # type: ignore[attr-defined]  # see `graphs`
    hook = model.get_output_embeddings().register_forward_hook(ban) if ids else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()
