"""Detects tracing, compilation and functorch transforms."""

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

    Args:
        tensor: Any tensor.

    Returns:
        True for a plain tensor on the CPU outside compilation. False for tensors on other devices,
        where reading would wait for the device, and for fake tensors, which hold no values.
    """
    is_plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    return is_plain and not torch.compiler.is_compiling()
