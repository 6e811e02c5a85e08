"""How a stack learns the order of its tokens: one class per scheme, one value that all return."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class PositionEncoding(NamedTuple):
    """What a scheme of positions contributes; a scheme fills the parts that it has.

    Attributes:
        embedding: To add to the token embeddings, of shape (batch or 1, length, d_model).
    """

    embedding: torch.Tensor


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids, sine and cosine interleaved (Vaswani et al. 2017, §3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(of the same angle), in
    radians. Computed in float32 for the positions asked for: nothing is stored or saved, no length
    is too long, and half-precision weights do not blur it. An odd `d_model` ends on a sine.

    Args:
        d_model: Width of the embedding.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype) -> PositionEncoding:
        """Computes the rows of the table at the given positions.

        Args:
            position_ids: Non-negative positions, of shape (batch or 1, length).
            dtype: Type of the result.

        Returns:
            An embedding of shape (batch or 1, length, d_model).
        """
        even_dims = torch.arange(0, self.d_model, 2, device=position_ids.device)
        frequencies = torch.exp(even_dims * (-math.log(10000.0) / self.d_model))
        angles = position_ids[..., None].float() * frequencies
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return PositionEncoding(embedding=table[..., : self.d_model].to(dtype))


class LearnedPositions(nn.Module):
    """A trained vector for each position up to a limit (Gehring et al. 2017; §3.5 compares both).

    Args:
        num_positions: How many positions have a vector.
        d_model: Width of the embedding.
    """

    def __init__(self, num_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_positions, d_model))

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype) -> PositionEncoding:
        """Looks up the vectors of the given positions.

        Args:
            position_ids: Non-negative positions, of shape (batch or 1, length).
            dtype: Type of the result.

        Returns:
            An embedding of shape (batch or 1, length, d_model).

        Raises:
            ValueError: If a position on the CPU has no vector, or if on another device the
                sequence has more positions than there are vectors (where looking at the values
                would wait for the device).
        """
        self._check_length(position_ids)
        return PositionEncoding(embedding=F.embedding(position_ids, self.weight).to(dtype))

    def _check_length(self, position_ids: torch.Tensor) -> None:
        if torch.compiler.is_compiling() or position_ids.numel() == 0:
            return
        on_cpu = position_ids.device.type == "cpu"
        needed = int(position_ids.max()) + 1 if on_cpu else position_ids.shape[-1]
        if needed > len(self.weight):
            raise ValueError(
                f"The sequence needs {needed} positions, but `max_position_embeddings` is "
                f"{len(self.weight)}: truncate the input, or train with a larger value or with "
                "`position_embedding_type='sinusoidal'`."
            )


def positions_from_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers the real tokens of each row from 0, wherever the padding stands.

    Args:
        attention_mask: 1 for a token and 0 for padding, of shape (batch, length).

    Returns:
        Positions of shape (batch, length); padding gets some legal position.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def positions_from_causal_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers tokens from 0 by how many tokens each may attend to, itself included.

    Args:
        attention_mask: True (or 0, in a mask that is added to the scores) where attention is
            allowed, of shape (batch, 1, length, length with the past).

    Returns:
        Positions of shape (batch, length); padding gets some non-negative position.
    """
    allowed = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
    return (allowed[:, 0].sum(-1) - 1).clamp(min=0)
