"""A block in which a model is evaluated: no dropout, no gradients."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Runs a block with a model in eval mode and without gradients.

    Args:
        model: Each of its modules is in the mode that it was in when the block ends, also by an
            error.

    Yields:
        Nothing.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
