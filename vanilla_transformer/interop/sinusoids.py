"""Compares stored tables of positions with the sinusoids that the model computes itself."""

from collections.abc import Mapping, Sequence

import torch

from vanilla_transformer.model.positions import (
    FairseqSinusoidalPositions,
    HalfSinusoidalPositions,
    PositionEncoding,
    SinusoidalPositions,
)

SINUSOIDS: dict[str, type[SinusoidalPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "sinusoidal_half": HalfSinusoidalPositions,
    "sinusoidal_fairseq": FairseqSinusoidalPositions,
}
"""The sinusoids by the name of their `position_embedding_type`."""


def sinusoids(scheme: str, length: int, d_model: int) -> torch.Tensor:
    """Returns the sinusoids of the first positions, of shape (length, d_model).

    Args:
        scheme: A name in `SINUSOIDS`.
        length: Number of positions.
        d_model: Width of the model.
    """
    made = SINUSOIDS[scheme](d_model)
    encoding: PositionEncoding = made(torch.arange(length)[None], torch.float32)
    return encoding.add_to(torch.zeros(1, length, d_model))[0]


def find_wrong_sinusoids(
    state_dict: Mapping[str, torch.Tensor], scheme: str, names: Sequence[str]
) -> list[str]:
    """Returns a sentence for each table that does not hold the sinusoids of a scheme.

    Args:
        state_dict: Names and weights of the source.
        scheme: A name in `SINUSOIDS`.
        names: Names of the tables; axes of size 1 do not count.
    """
    problems = []
    for name in names:
        table = state_dict[name].float().squeeze()
        # Angles are computed in float32, so their error grows with the position.
        if table.dim() != 2 or not torch.allclose(
            table, sinusoids(scheme, *table.shape), rtol=0, atol=2e-7 * len(table) + 1e-5
        ):
            problems.append(f"`{name}` does not hold the positions `{scheme}`")
    return problems
