"""Sinusoids as tables, and the comparison of stored tables with the model's sinusoids."""

from typing import Any

import torch

from vanilla_transformer.model.positions import (
    FairseqSinusoidalPositions,
    HalfSinusoidalPositions,
    SinusoidalPositions,
)

SINUSOIDS: dict[str, type[SinusoidalPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "sinusoidal_half": HalfSinusoidalPositions,
    "sinusoidal_fairseq": FairseqSinusoidalPositions,
}
"""The sinusoids by the name of their `position_embedding_type`."""


def sinusoids(scheme: str, length: int, d_model: int, offset: int = 0) -> torch.Tensor:
    """Returns the sinusoids of consecutive positions, of shape (length, d_model)."""
    make: Any = SINUSOIDS[scheme]
    table: torch.Tensor = make(d_model, offset)(torch.arange(length)[None], torch.float32).embedding
    return table[0]


def holds_sinusoids(
    tensor: torch.Tensor, scheme: str, offset: int = 0, tolerance: float = 2e-3
) -> bool:
    """Returns whether a table holds the sinusoids of a scheme, from the position `offset` on.

    Args:
        tensor: The table. Axes of size 1 do not count, nor do rows of zeros, which fairseq stores
            at the position of padding.
        tolerance: Largest difference besides the rounding of angles in float32, which grows with
            the position. The default is the rounding of half precision.
    """
    table = tensor.float().squeeze()
    if table.dim() != 2:
        return False
    atol = 2e-7 * len(table) + 1e-5 + tolerance
    used = table.any(dim=-1)
    computed = sinusoids(scheme, len(table), table.shape[1], offset)
    return torch.allclose(table[used], computed[used], rtol=0, atol=atol)
