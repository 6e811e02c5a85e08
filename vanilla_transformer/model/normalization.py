"""The norms.

Every norm maps (..., width) to the same shape and normalises the last axis.
"""

import torch
from torch import nn


class UnbiasedStdNorm(nn.Module):
    """Computes gain · (x - mean) / (std + eps) + bias with the sample standard deviation.

    It differs from a layer norm in two ways: the variance divides by n - 1, and `eps` is added
    outside the root (The Annotated Transformer, Rush 2018).

    Args:
        d_model: Length of the normalised axis, at least 2.
        eps: Added to the standard deviation.
    """

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalises in float32 or a wider type, and returns the type of the input."""
        exact = torch.promote_types(hidden_states.dtype, torch.float32)
        values = hidden_states.to(exact)
        centred = values - values.mean(-1, keepdim=True)
        scaled = centred / (centred.std(-1, keepdim=True) + self.eps)
        return (self.weight * scaled + self.bias).to(hidden_states.dtype)


NORMS: dict[str, type[nn.Module]] = {
    "layer_norm": nn.LayerNorm,
    "rms_norm": nn.RMSNorm,
    "unbiased_std": UnbiasedStdNorm,
}


def make_norm(norm_type: str, d_model: int, eps: float) -> nn.Module:
    """Makes a norm of a type of `NORMS`; the config says where each is from."""
    return NORMS[norm_type](d_model, eps=eps)
