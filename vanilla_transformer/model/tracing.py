"""Tells calls that are recorded from calls that are run."""

import torch


def is_traced() -> bool:
    """Whether a call is compiled, exported, traced or transformed by `torch.func`.

    There no shape may depend on the data, and no random numbers be drawn by hand.
    """
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or transformed:
        return True
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def can_be_read(values: torch.Tensor) -> bool:
    """Whether the values of a tensor are at hand: on the CPU, in a call that is run.

    Args:
        values: Any tensor; fake ones, which stand for memory or shapes alone, hold no values.

    Returns:
        Whether a check may look at them.
    """
    is_plain = type(values) is torch.Tensor and values.device.type == "cpu"
    return is_plain and not torch.compiler.is_compiling()
