"""Weights of 8 bits for a CPU."""

import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import nn


def with_int8_weights(model: Any) -> Any:
    """Returns a copy of a model that computes its linear maps with integers of 8 bits.

    The weights are rounded once. Each input is rounded to 8 bits when it comes, with a scale of its
    own ("dynamic quantization" in PyTorch). The embeddings, norms and attention stay as they are.

    Args:
        model: A model on the CPU, which is not changed.

    Returns:
        The quantized model, in evaluation mode. It cannot be trained or saved.

    Raises:
        ValueError: If the model is not on the CPU.
    """
    if model.device.type != "cpu":
        raise ValueError(
            f"The engine 'int8' computes on a CPU, not on {model.device}: set `device='cpu'`, or "
            "use another engine."
        )
    with warnings.catch_warnings():
        # PyTorch announces that torchao will take its place.
        warnings.simplefilter("ignore")
        quantized: nn.Module = torch.ao.quantization.quantize_dynamic(
            deepcopy(model).float().eval(), {nn.Linear}, dtype=torch.qint8
        )
    return quantized
