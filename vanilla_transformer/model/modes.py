"""How torch runs a call: traced or not, with values that can be read, under autocast, by oneDNN."""

from functools import cache
from typing import Any, cast

import torch

_ROWS_OF_WEIGHTS = 12
"""To read the weights of a product takes about as long as to compute this many rows."""
_LEAST_WORK = 2**21
"""Rows, with those of the constant above, times weights from which on oneDNN is faster.

A call of it takes 17 microseconds longer. Measured for widths 64 to 512 and 1 to 1,024 rows.
"""


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
    own_forward: Any = getattr(type(linear), "forward", None)
    if own_forward is not torch.nn.Linear.forward or "forward" in vars(linear):
        return False
    hooks = (linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks)
    is_plain = not any(hooks) and not linear._backward_pre_hooks
    weight = linear._parameters.get("weight")  # a parametrized one is computed, and is not there
    return is_plain and type(weight) in (torch.Tensor, torch.nn.Parameter)


def apply_linear(linear: torch.nn.Module, states: torch.Tensor) -> torch.Tensor:
    """Returns `linear(states)`; if no gradient is needed, oneDNN computes it where MKL is slow.

    On processors of AMD, MKL computes products in float32 without AVX-512. oneDNN takes half of its
    time for many rows, and 0.5 to 0.9 for one (docs/log.md, 2026-11-30). For float32, torch has it
    only as this operator, which has no gradient.
    """
    if not _is_faster_in_onednn(linear, states):
        return cast(torch.Tensor, linear(states))
    # No function follows the product: "none".
    compute: Any = torch.ops.mkldnn._linear_pointwise
    return cast(torch.Tensor, compute(states, linear.weight, linear.bias, "none", [], ""))


def _is_faster_in_onednn(linear: torch.nn.Module, states: torch.Tensor) -> bool:
    # While torch compiles, values are not readable: it must not trace the functions below.
    if torch.is_grad_enabled() or not has_readable_values(states) or not _has_slow_mkl():
        return False
    if torch._C._get_tracing_state() is not None or not is_plain_product(linear):
        return False
    weight = cast(torch.Tensor, linear.weight)
    rows = states.numel() // max(states.shape[-1], 1)
    if (rows + _ROWS_OF_WEIGHTS) * weight.numel() < _LEAST_WORK:
        return False
    is_float32 = states.dtype == weight.dtype == torch.float32
    return is_float32 and not torch.is_autocast_enabled("cpu")


@cache
def _has_slow_mkl() -> bool:
    abilities = torch.cpu.get_capabilities()
    is_of_amd = abilities.get("cpu_name", "").startswith("AMD")
    return bool(is_of_amd and abilities["avx512_f"] and torch.backends.mkldnn.is_available())
