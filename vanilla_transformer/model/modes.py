"""How torch runs a call: traced or not, with values that can be read, under autocast."""

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
