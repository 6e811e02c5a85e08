"""How a stack learns the order of its tokens: one class per scheme, one value that all return."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .tracing import can_be_read


class PositionEncoding(NamedTuple):
    """What a scheme of positions contributes; a scheme fills the part that it has.

    Attributes:
        embedding: To add to the token embeddings, of shape (batch or 1, length, d_model).
        rotation: Cosines and sines that turn queries and keys, each of shape (batch or 1, 1,
            length, rotated_dim) in float32; dimensions of a head beyond rotated_dim stay as they
            are.
        bias: To add to the scores of self-attention, of shape (batch or 1, heads, length, length
            with the past).
    """

    embedding: torch.Tensor | None = None
    rotation: tuple[torch.Tensor, torch.Tensor] | None = None
    bias: torch.Tensor | None = None

    def add_to(self, embeds: torch.Tensor) -> torch.Tensor:
        """Adds the embedding, if there is one, to tokens of shape (batch, length, d_model)."""
        return embeds if self.embedding is None else embeds + self.embedding

    def rotate(self, states: torch.Tensor) -> torch.Tensor:
        """Turns queries or keys, if there is a rotation (Su et al. 2021, §3.4.2).

        Dimension i of a head and dimension i + rotated_dim / 2 make a pair, the order that Llama
        and GPT-NeoX use.

        Args:
            states: Of shape (batch, heads, length, head_dim).

        Returns:
            A tensor of the same shape and type, turned in float32.
        """
        if self.rotation is None:
            return states
        cosines, sines = self.rotation
        turned, kept = states[..., : cosines.shape[-1]], states[..., cosines.shape[-1] :]
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cosines + torch.cat([-second, first], dim=-1) * sines
        return torch.cat([turned.to(states.dtype), kept], dim=-1)

    def bias_of(self, query: torch.Tensor) -> torch.Tensor | None:
        """Returns the bias for each row of a query of shape (batch, ...), if there is one."""
        return None if self.bias is None else self.bias.expand(query.shape[0], -1, -1, -1)


NO_POSITIONS = PositionEncoding()


class NoPositions(nn.Module):
    """No positions: order is seen through the causal mask alone (Haviv et al. 2022)."""

    def forward(
        self,
        position_ids: torch.Tensor,
        dtype: torch.dtype,
        key_position_ids: torch.Tensor | None = None,
    ) -> PositionEncoding:
        """Returns an encoding without any part."""
        return NO_POSITIONS


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

    def forward(
        self,
        position_ids: torch.Tensor,
        dtype: torch.dtype,
        key_position_ids: torch.Tensor | None = None,
    ) -> PositionEncoding:
        """Computes the rows of the table at the given positions.

        Args:
            position_ids: Non-negative positions, of shape (batch or 1, length).
            dtype: Type of the result.
            key_position_ids: Not used.

        Returns:
            An embedding of shape (batch or 1, length, d_model).
        """
        even_dims = torch.arange(0, self.d_model, 2, device=position_ids.device)
        frequencies = torch.exp(even_dims * (-math.log(10000.0) / self.d_model))
        angles = position_ids[..., None].float() * frequencies
        table = self._arrange(angles.sin(), angles.cos())
        return PositionEncoding(embedding=table[..., : self.d_model].to(dtype))

    def _arrange(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return torch.stack([sines, cosines], dim=-1).flatten(-2)


class HalfSinusoidalPositions(SinusoidalPositions):
    """The same sinusoids, all sines before all cosines (Marian, fairseq).

    The frequencies stay those of the paper, as in transformers' Marian models; fairseq's own are
    10000^(-i / (d_model / 2 - 1)). An odd `d_model` has one sine more than cosines.

    Args:
        d_model: Width of the embedding.
    """

    def _arrange(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return torch.cat([sines, cosines], dim=-1)


class RotaryPositions(nn.Module):
    """Rotary positions, RoPE: turns queries and keys by angles that grow with their positions.

    Position m turns pair i by m · theta^(-2i / rotated_dim) radians (Su et al. 2021, "RoFormer"),
    so that a score depends on the distance of query and key. Scaled kinds change these
    frequencies, as `transformers.modeling_rope_utils` defines them.

    Args:
        head_dim: Width of a head.
        max_positions: Length that was trained on, where a kind of scaling asks for it.
        rope_parameters: `rope_type`, `rope_theta`, and what the type needs besides.
    """

    def __init__(
        self, head_dim: int, max_positions: int, rope_parameters: Mapping[str, Any]
    ) -> None:
        super().__init__()
        plain = rope_parameters["rope_type"] == "default"
        scaling = {"rope_type": "linear", "factor": 1.0} if plain else {}
        fields: dict[str, Any] = {
            "head_dim": head_dim,
            "hidden_size": head_dim,
            "num_attention_heads": 1,
            "max_position_embeddings": max_positions,
            "rope_parameters": {**rope_parameters, **scaling},
        }
        self.rope = PreTrainedConfig(**fields)
        with torch.device("cpu"):  # the model may be built on meta: these are no parameters
            self.frequencies, self.magnitude = self._compute_frequencies()

    def _compute_frequencies(self, *length: Any) -> tuple[torch.Tensor, float]:
        compute = ROPE_INIT_FUNCTIONS[self.rope.rope_parameters["rope_type"]]
        return compute(self.rope, torch.get_default_device(), *length)

    def _frequencies_at(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Radians per position, broadcastable to (batch or 1, length, rotated_dim / 2)."""
        if self.frequencies.device != position_ids.device:
            self.frequencies = self.frequencies.to(position_ids.device)
        return self.frequencies

    def forward(
        self,
        position_ids: torch.Tensor,
        dtype: torch.dtype,
        key_position_ids: torch.Tensor | None = None,
    ) -> PositionEncoding:
        """Computes the angles of the given positions.

        Args:
            position_ids: Non-negative positions, of shape (batch or 1, length).
            dtype: Not used: angles are in float32, and states come back in their own type.
            key_position_ids: Not used: keys are turned before they are cached.

        Returns:
            A rotation, each part of shape (batch or 1, 1, length, rotated_dim).
        """
        angles = position_ids[..., None].float() * self._frequencies_at(position_ids)
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        return PositionEncoding(
            rotation=(angles.cos() * self.magnitude, angles.sin() * self.magnitude)
        )


class DynamicRotaryPositions(RotaryPositions):
    """RoPE whose base grows with each row's length once that exceeds the trained one (NTK)."""

    def _frequencies_at(self, position_ids: torch.Tensor) -> torch.Tensor:
        lengths = position_ids.amax(dim=-1, keepdim=True) + 1
        with torch.device(position_ids.device):
            return self._compute_frequencies(lengths)[0][:, None]


class LongRotaryPositions(RotaryPositions):
    """RoPE with one factor per frequency, and other factors for rows beyond the trained length."""

    def __init__(
        self, head_dim: int, max_positions: int, rope_parameters: Mapping[str, Any]
    ) -> None:
        super().__init__(head_dim, max_positions, rope_parameters)
        self.trained_length = self.rope.rope_parameters["original_max_position_embeddings"]
        with torch.device("cpu"):
            self.long_frequencies, _ = self._compute_frequencies(self.trained_length + 1)

    def _frequencies_at(self, position_ids: torch.Tensor) -> torch.Tensor:
        short = super()._frequencies_at(position_ids)
        self.long_frequencies = self.long_frequencies.to(position_ids.device)
        is_long = position_ids.amax(dim=-1) + 1 > self.trained_length
        return torch.where(is_long[:, None, None], self.long_frequencies, short)


ROTARIES: dict[str, type[RotaryPositions]] = {
    "dynamic": DynamicRotaryPositions,
    "longrope": LongRotaryPositions,
}


def rotary_positions(
    head_dim: int, max_positions: int, rope_parameters: Mapping[str, Any]
) -> RotaryPositions:
    """Makes the class of rotary positions that the `rope_type` asks for; see there."""
    kind = ROTARIES.get(rope_parameters["rope_type"], RotaryPositions)
    return kind(head_dim, max_positions, rope_parameters)


def alibi_slopes(num_heads: int, device: torch.device | None = None) -> torch.Tensor:
    """The slope of each head: a geometric sequence from 2^(-8 / n) to 2^-8 (Press et al. 2022, §3).

    For a number of heads that is no power of 2: the sequence of the power below, then every other
    slope of the power above, as the authors' own code has it.

    Args:
        num_heads: Number of heads.
        device: Where to make them.

    Returns:
        Slopes of shape (heads,).
    """
    power = 2 ** int(math.log2(num_heads))
    exponents = torch.arange(1, power + 1, device=device) / power
    between = (torch.arange(num_heads - power, device=device) + 0.5) / power
    return torch.exp2(-8.0 * torch.cat([exponents, between]))


class AlibiPositions(nn.Module):
    """Attention with linear biases: -slope · distance on every score (Press et al. 2022, §3).

    The distance is |i - j|: under the decoder's causal mask that is the paper's i - j, and in the
    encoder it makes the symmetric form.

    Args:
        num_heads: Number of heads of the stack.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(
        self,
        position_ids: torch.Tensor,
        dtype: torch.dtype,
        key_position_ids: torch.Tensor | None = None,
    ) -> PositionEncoding:
        """Computes the biases between queries and keys.

        Args:
            position_ids: Positions of the queries, of shape (batch or 1, length).
            dtype: Type of the result.
            key_position_ids: Positions of the keys, of shape (batch or 1, length with the past);
                None: the same as those of the queries.

        Returns:
            A bias of shape (batch or 1, heads, length, length with the past).
        """
        keys = position_ids if key_position_ids is None else key_position_ids
        distances = (position_ids[:, None, :, None] - keys[:, None, None, :]).abs()
        slopes = alibi_slopes(self.num_heads, position_ids.device)
        return PositionEncoding(bias=(-slopes[:, None, None] * distances).to(dtype))


class LearnedPositions(nn.Module):
    """A trained vector for each position up to a limit (Gehring et al. 2017; §3.5 compares both).

    Args:
        num_positions: How many positions have a vector.
        d_model: Width of the embedding.
    """

    def __init__(self, num_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_positions, d_model))

    def forward(
        self,
        position_ids: torch.Tensor,
        dtype: torch.dtype,
        key_position_ids: torch.Tensor | None = None,
    ) -> PositionEncoding:
        """Looks up the vectors of the given positions.

        Args:
            position_ids: Non-negative positions, of shape (batch or 1, length).
            dtype: Type of the result.
            key_position_ids: Not used.

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
        readable = can_be_read(position_ids)
        needed = int(position_ids.max()) + 1 if readable else position_ids.shape[-1]
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
    return (allowed_by(attention_mask)[:, 0].sum(-1) - 1).clamp(min=0)


def allowed_by(attention_mask: torch.Tensor) -> torch.Tensor:
    """Returns True where a mask, boolean or added to the scores, allows attention."""
    return attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
