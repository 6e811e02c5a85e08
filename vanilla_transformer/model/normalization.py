"""The norms, and how the two norm slots of a sublayer are filled."""

from collections.abc import Callable

import torch
from torch import nn


class UnbiasedStdNorm(nn.Module):
    """gain · (x - mean) / (std + eps) + bias, with the sample standard deviation.

    Unlike a layer norm it divides by n - 1 under the root, and `eps` stands outside of it (The
    Annotated Transformer, Rush 2018).

    Args:
        d_model: Length of the axis that is normalised, at least 2.
        eps: Added to the standard deviation.
    """

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalises the last axis, in float32 at least.

        Args:
            hidden_states: Of shape (..., d_model).

        Returns:
            A tensor of the same shape and type.
        """
        exact = torch.promote_types(hidden_states.dtype, torch.float32)
        values = hidden_states.to(exact)
        centred = values - values.mean(-1, keepdim=True)
        scaled = centred / (centred.std(-1, keepdim=True) + self.eps)
        return (self.weight * scaled + self.bias).to(hidden_states.dtype)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer_norm": nn.LayerNorm,
    "rms_norm": nn.RMSNorm,
    "unbiased_std": UnbiasedStdNorm,
}


def make_norm(norm_type: str, d_model: int, eps: float) -> nn.Module:
    """Makes a norm over the last axis.

    Args:
        norm_type: "layer_norm" (Ba et al. 2016), "rms_norm" (Zhang and Sennrich 2019) or
            "unbiased_std" (The Annotated Transformer).
        d_model: Length of the axis.
        eps: Keeps the divisor from 0.

    Returns:
        A module that maps (..., d_model) to the same shape.
    """
    return NORMS[norm_type](d_model, eps=eps)


def norm_slots(placement: str, make_norm: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Fills the slot before a sublayer and the slot after its residual sum.

    The unused slot is an identity, so that a layer's forward is one straight line for every
    placement, and a checkpoint's keys tell the placement that it was trained with.

    Args:
        placement: "post" (Vaswani et al. 2017, §3.1), "pre" (Xiong et al. 2020) or "none".
        make_norm: Makes one norm over the last axis.

    Returns:
        (pre, post): the modules for the two slots.
    """
    pre = make_norm() if placement == "pre" else nn.Identity()
    post = make_norm() if placement == "post" else nn.Identity()
    return pre, post
