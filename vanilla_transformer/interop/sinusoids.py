"""Sinusoids as tables, and the comparison of stored tables with those that the model computes."""

from collections.abc import Mapping
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


def find_wrong_sinusoids(
    tables: Mapping[str, torch.Tensor], scheme: str, tolerance: float | None = None
) -> list[str]:
    """Returns a sentence for each table that does not hold the sinusoids of a scheme from 0 on.

    Args:
        tables: Tables by name. Axes of size 1 do not count, nor do rows of zeros, which fairseq
            stores at the position of padding.
        scheme: A name in `SINUSOIDS`.
        tolerance: Largest difference. None: what float32 explains; angles are computed in it, so
            that their error grows with the position.
    """
    problems = []
    for name, tensor in tables.items():
        table = tensor.float().squeeze()
        atol = 2e-7 * len(tensor) + 1e-5 if tolerance is None else tolerance
        computed = sinusoids(scheme, *table.shape) if table.dim() == 2 else table.new_zeros(1)
        used = table.any(dim=-1)
        if table.dim() != 2 or not torch.allclose(table[used], computed[used], rtol=0, atol=atol):
            problems.append(f"`{name}` does not hold the positions `{scheme}`")
    return problems
