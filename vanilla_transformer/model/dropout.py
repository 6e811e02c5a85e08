"""Dropout, with a faster path on the CPU than torch's own."""

import torch
import torch.nn.functional as F
from torch import nn

from .modes import is_tracing

LEVELS = 2**16
"""Number of values that the 16 random bits of a unit can take."""


def dropout(states: torch.Tensor, p: float, training: bool = True) -> torch.Tensor:
    """Zeroes units at random and scales the others to keep the mean (Srivastava et al. 2014, §4).

    On the CPU, torch draws a double-precision number per unit; this draws 64 bits per four units,
    and `p` becomes a multiple of 2^-16. A whole training step with torch's own takes 2 to 7% longer
    at widths from 96 to 512. The bits come from torch's generator, so seeds work as usual.
    """
    if not training:
        return states
    dropped = round(p * LEVELS)
    is_plain = type(states) is torch.Tensor and states.device.type == "cpu"
    if not 0 < dropped < LEVELS or not is_plain or is_tracing():
        return F.dropout(states, p)
    words = torch.empty((states.numel() + 3) // 4, dtype=torch.int64, device="cpu")
    words.random_(-(2**63), None)
    drawn = words.view(torch.int16)[: states.numel()].view(states.shape)
    keep = drawn >= dropped - LEVELS // 2
    scale, kept = LEVELS / (LEVELS - dropped), keep.to(states.dtype)
    if states.dtype.itemsize < 4:  # half precision would round the scale, and bias the mean
        return states * scale * kept
    return states * kept.mul_(scale)


class Dropout(nn.Dropout):
    """Dropout as a module."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Applies `dropout` in training mode."""
        return dropout(input, self.p, self.training)


class ScaledDropout(Dropout):
    """Dropout on a sublayer's output, followed by a constant factor, also in evaluation."""

    def __init__(self, p: float, scale: float) -> None:
        super().__init__(p)
        self.scale = scale

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Applies dropout in training mode, then the factor."""
        return super().forward(input) * self.scale
