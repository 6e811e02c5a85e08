"""A context manager that evaluates a model: eval mode, no gradients."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Runs a block with a model in eval mode and without gradients.

    Args:
        model: The model. When the block ends, even with an error, each of its modules returns to
            the mode it was in.

    Yields:
        None.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
