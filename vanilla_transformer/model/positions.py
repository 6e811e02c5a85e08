"""Position schemes: one class per scheme, and the value that all return.

Shapes: `position_ids` is (batch or 1, length), with values from 0. "length with the past" is the
number of keys: the cached ones and the new ones. rotated_dim is the number of dimensions of a head
that RoPE rotates, at most head_dim.

Every forward takes `position_ids`, the positions of the tokens or queries; `dtype`, the type of the
result; and `key_ids`, the positions of the keys, of shape (batch or 1, length with the past). Only
a bias needs them. None: equal to `position_ids`. Each returns a `PositionEncoding` with one part.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from transformers.cache_utils import Cache

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .inputs import is_allowed_by, tokens_of
from .modes import has_readable_values


class PositionEncoding(NamedTuple):
    """The contribution of a position scheme. Each scheme fills one of the three parts.

    Attributes:
        embedding: Added to the token embeddings, of shape (batch or 1, length, d_model).
        rotation: Cosines and sines that rotate queries and keys, each of shape (batch or 1, 1,
            length, rotated_dim) in float32. The sines of the first half are negated. The dimensions
            of a head beyond rotated_dim are not rotated.
        bias: Added to the scores of self-attention, of shape (batch or 1, heads, length, length
            with the past).
    """

    embedding: torch.Tensor | None = None
    rotation: tuple[torch.Tensor, torch.Tensor] | None = None
    bias: torch.Tensor | None = None

    def rotate(self, states: torch.Tensor) -> torch.Tensor:
        """Rotates queries or keys, if there is a rotation (Su et al. 2021, §3.4.2).

        Dimension i of a head is paired with dimension i + rotated_dim / 2, as in Llama and
        GPT-NeoX. States are (batch, heads, length, head_dim).
        """
        if self.rotation is None:
            return states
        cosines, sines = self.rotation
        size = cosines.shape[-1]
        # (batch, heads, length, rotated_dim), in float32: half precision would blur the angles.
        values = states[..., :size].to(torch.promote_types(states.dtype, torch.float32))
        partners = values.roll(size // 2, dims=-1)  # of dimension i: i + rotated_dim / 2
        rotated = torch.addcmul(values * cosines, partners, sines).to(states.dtype)
        return rotated if size == states.shape[-1] else torch.cat([rotated, states[..., size:]], -1)


NO_POSITIONS = PositionEncoding()


def number_tokens(
    embeds: torch.Tensor, mask: Any, cache: Cache | None, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers the tokens of each row from 0, by its mask: padding takes no position.

    A row therefore has the same positions on either side of its padding. Padding gets an arbitrary
    legal position.

    Args:
        embeds: Of the current tokens, (batch, length, ...); only shape and device are read.
        mask: Of the tokens with the past, as `check_mask` returns it.

    Returns:
        Positions of the queries, (batch or 1, length), and of the keys, (batch or 1, length with
        the past).
    """
    length = key_len = embeds.shape[1]
    past: int | torch.Tensor = 0
    if cache is not None:
        past, (key_len, _) = cache.get_seq_length(), cache.get_mask_sizes(length, 0)
    dims = mask.dim() if isinstance(mask, torch.Tensor) else 0
    keys = torch.arange(key_len, device=embeds.device)[None]
    queries = keys[:, :length] + past
    if dims == 4 and is_causal:  # `generate()` makes such a mask for a static cache
        # A token comes after all that it may attend to; padding may attend to nothing.
        allowed = is_allowed_by(mask)[:, 0]  # (batch, length, length with the past)
        queries = torch.minimum((allowed.sum(-1) - 1).clamp(min=0), queries)
        keys = _positions_from_mask(allowed[:, -1])
    elif dims:
        keys = _positions_from_mask(tokens_of(mask)).to(embeds.device)
        queries = keys[:, -length:]
        if cache is not None:  # a static one has room for later keys: they are masked
            keys = F.pad(keys, (0, key_len - keys.shape[1]))
    return queries, keys


def _positions_from_mask(is_token: torch.Tensor) -> torch.Tensor:
    """(batch, length), True for tokens -> the number of tokens before each."""
    return (is_token.long().cumsum(-1) - 1).clamp(min=0)


class NoPositions(nn.Module):
    """No positions: only the causal mask conveys the order of tokens (Haviv et al. 2022)."""

    def forward(
        self, position_ids: torch.Tensor, dtype: torch.dtype, key_ids: torch.Tensor | None = None
    ) -> PositionEncoding:
        """Returns an empty encoding."""
        return NO_POSITIONS


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids with sines and cosines interleaved (Vaswani et al. 2017, §3.5).

    PE(pos, 2i) = sin(angle) and PE(pos, 2i + 1) = cos(angle), with angle = pos / 10000^(2i /
    d_model) in radians. The table is computed in float32 for the given positions only. It is never
    stored, has no maximum length, and does not lose precision with half-precision weights. An odd
    `d_model` ends with a sine.
    """

    def __init__(self, d_model: int, offset: int = 0) -> None:
        super().__init__()
        self.d_model = d_model
        self.offset = offset

    def forward(
        self, position_ids: torch.Tensor, dtype: torch.dtype, key_ids: torch.Tensor | None = None
    ) -> PositionEncoding:
        """Computes an embedding for the given positions."""
        frequencies = self._frequencies_on(position_ids.device)
        # (batch or 1, length) -> (batch or 1, length, waves)
        angles = (position_ids[..., None] + self.offset).float() * frequencies
        table = self._join_waves(angles.sin(), angles.cos())
        return PositionEncoding(embedding=table[..., : self.d_model].to(dtype))

    def _frequencies_on(self, device: torch.device) -> torch.Tensor:
        """Returns the frequencies in radians per position, of shape (waves,)."""
        even_dims = torch.arange(0, self.d_model, 2, dtype=torch.float32, device=device)
        return torch.exp(even_dims * (-math.log(10000.0) / self.d_model))

    def _join_waves(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return torch.stack([sines, cosines], dim=-1).flatten(-2)


class HalfSinusoidalPositions(SinusoidalPositions):
    """Fixed sinusoids with all sines before all cosines (Marian in transformers).

    The frequencies are those of the paper. An odd `d_model` has one more sine than cosines.
    """

    def _join_waves(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return torch.cat([sines, cosines], dim=-1)


class FairseqSinusoidalPositions(HalfSinusoidalPositions):
    """Fixed sinusoids of fairseq: sines, then cosines, with frequencies that reach 1/10000.

    Sine and cosine i have the frequency 10000^(-i / (d_model / 2 - 1)), as in tensor2tensor, Marian
    itself, and transformers' FSMT and M2M100 models. The exponent of the paper and of transformers'
    Marian is -i / (d_model / 2). fairseq counts positions from the padding id + 1: give that as
    `offset`. An odd `d_model` ends with a zero.
    """

    def _frequencies_on(self, device: torch.device) -> torch.Tensor:
        waves = self.d_model // 2
        numbers = torch.arange(waves, dtype=torch.float32, device=device)
        return torch.exp(numbers * (-math.log(10000.0) / (waves - 1)))

    def _join_waves(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return F.pad(super()._join_waves(sines, cosines), (0, self.d_model % 2))


class RotaryPositions(nn.Module):
    """Rotary positions (RoPE): rotates queries and keys by angles that grow with the position.

    Position m rotates pair i by m · theta^(-2i / rotated_dim) radians (Su et al. 2021, "RoFormer").
    A score then depends only on the distance between query and key.
    """

    def __init__(self, rotated_dim: int, theta: float) -> None:
        super().__init__()
        with torch.device("cpu"):  # the meta device would lose them: they are not parameters
            exponents = torch.arange(0, rotated_dim, 2, dtype=torch.float32) / rotated_dim
            self.frequencies = 1.0 / theta**exponents  # (rotated_dim / 2,), radians per position

    def forward(
        self, position_ids: torch.Tensor, dtype: torch.dtype, key_ids: torch.Tensor | None = None
    ) -> PositionEncoding:
        """Computes a rotation, in float32; keys are rotated before they are cached."""
        angles = position_ids[:, None, :, None].float() * self._frequencies_on(position_ids.device)
        cosines, sines = angles.cos(), angles.sin()  # (batch or 1, 1, length, rotated_dim / 2)
        rotation = torch.cat([cosines, cosines], dim=-1), torch.cat([-sines, sines], dim=-1)
        return PositionEncoding(rotation=rotation)

    def _frequencies_on(self, device: torch.device) -> torch.Tensor:
        if self.frequencies.device != device:  # moved once
            self.frequencies = self.frequencies.to(device)
        return self.frequencies


def alibi_slopes(num_heads: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns ALiBi's slopes, of shape (heads,): 2^(-8 / n), ..., 2^-8 (Press et al. 2022, §3).

    If the number of heads is not a power of 2, the slopes of the next lower power come first, then
    every other slope of the next higher power, as in the authors' code.
    """
    power = 2 ** int(math.log2(num_heads))
    exponents = torch.arange(1, power + 1, dtype=torch.float32, device=device) / power
    between = (torch.arange(num_heads - power, dtype=torch.float32, device=device) + 0.5) / power
    return torch.exp2(-8.0 * torch.cat([exponents, between]))


class AlibiPositions(nn.Module):
    """Attention with linear biases: adds -slope · distance to each score (Press et al. 2022, §3).

    The distance is |i - j|: under the decoder's causal mask the paper's i - j.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(
        self, position_ids: torch.Tensor, dtype: torch.dtype, key_ids: torch.Tensor | None = None
    ) -> PositionEncoding:
        """Computes the biases between queries and keys."""
        keys = position_ids if key_ids is None else key_ids
        # (batch or 1, 1, queries, keys)
        distances = (position_ids[:, None, :, None] - keys[:, None, None, :]).abs()
        slopes = alibi_slopes(self.num_heads, position_ids.device)
        return PositionEncoding(bias=(-slopes[:, None, None] * distances).to(dtype))


class RelativePositions(nn.Module):
    """A trained bias on the scores per head and bucket of distances (T5, Raffel et al. 2020, §2.1).

    A decoder has `num_buckets` for the distances to earlier tokens. An encoder has half of them for
    earlier and half for later tokens. In each direction, half of the buckets hold one distance
    each; the rest grow logarithmically up to `max_distance`, and the last holds all that is beyond.
    """

    def __init__(
        self, num_heads: int, num_buckets: int, max_distance: int, is_causal: bool
    ) -> None:
        super().__init__()
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.is_causal = is_causal
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))

    def forward(
        self, position_ids: torch.Tensor, dtype: torch.dtype, key_ids: torch.Tensor | None = None
    ) -> PositionEncoding:
        """Looks up the biases between queries and keys."""
        keys = position_ids if key_ids is None else key_ids
        # (batch or 1, queries, keys)
        buckets = self._buckets_of(keys[:, None, :] - position_ids[:, :, None])
        bias = F.embedding(buckets, self.weight)  # (batch or 1, queries, keys, heads)
        return PositionEncoding(bias=bias.permute(0, 3, 1, 2).to(dtype))

    def _buckets_of(self, distances: torch.Tensor) -> torch.Tensor:
        """Returns the bucket of each distance, key - query in tokens."""
        if self.is_causal:
            return self._buckets_of_sizes((-distances).clamp(min=0), self.num_buckets)
        half = self.num_buckets // 2
        return half * (distances > 0) + self._buckets_of_sizes(distances.abs(), half)

    def _buckets_of_sizes(self, sizes: torch.Tensor, num_buckets: int) -> torch.Tensor:
        exact = num_buckets // 2
        # In this order of operations, float32 rounds at the borders of buckets as it does in T5.
        growth = torch.log(sizes.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        ranges = exact + (growth * (num_buckets - exact)).long()
        return torch.where(sizes < exact, sizes, ranges.clamp(max=num_buckets - 1))


class LearnedPositions(nn.Module):
    """A trained vector per position, up to a limit (Gehring et al. 2017; compared in §3.5).

    Args:
        num_positions: Number of positions that have a vector.
        offset: Position of the first token. The table has this many more rows, which are not used.
    """

    def __init__(self, num_positions: int, d_model: int, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(num_positions + offset, d_model))

    def forward(
        self, position_ids: torch.Tensor, dtype: torch.dtype, key_ids: torch.Tensor | None = None
    ) -> PositionEncoding:
        """Looks up an embedding for the given positions; refuses those that have no vector."""
        self._check_length(position_ids, position_ids if key_ids is None else key_ids)
        rows = F.embedding(position_ids + self.offset, self.weight)
        return PositionEncoding(embedding=rows.to(dtype))

    def _check_length(self, position_ids: torch.Tensor, key_ids: torch.Tensor) -> None:
        if torch.compiler.is_compiling() or position_ids.numel() == 0:
            return
        if has_readable_values(position_ids):
            needed = int(position_ids.max()) + 1
        else:  # reading would wait for the device: the positions of rows without padding
            needed = min(position_ids.shape[-1], key_ids.shape[-1])
        limit = len(self.weight) - self.offset
        if needed > limit:
            raise ValueError(
                f"The sequence needs {needed} positions, but `max_position_embeddings` is "
                f"{limit}: truncate the input, or train with a larger value or with "
                "`position_embedding_type='sinusoidal'`."
            )


def make_scheme(config: VanillaTransformerConfig, stack: str) -> nn.Module:
    """Makes the position scheme of the "encoder" or the "decoder"."""
    d_model, offset = config.d_model, config.position_offset
    heads = getattr(config, f"{stack}_attention_heads")
    rope = getattr(config, "rope_parameters", None) or {}
    rotated_dim = int(config.head_dim_with(heads) * rope.get("partial_rotary_factor", 1.0))
    buckets = config.relative_attention_num_buckets
    distance = config.relative_attention_max_distance
    schemes: dict[str, Callable[[], nn.Module]] = {
        "sinusoidal": lambda: SinusoidalPositions(d_model, offset),
        "sinusoidal_half": lambda: HalfSinusoidalPositions(d_model, offset),
        "sinusoidal_fairseq": lambda: FairseqSinusoidalPositions(d_model, offset),
        "learned": lambda: LearnedPositions(config.max_position_embeddings, d_model, offset),
        "rope": lambda: RotaryPositions(rotated_dim, rope["rope_theta"]),
        "alibi": lambda: AlibiPositions(heads),
        "relative": lambda: RelativePositions(
            heads, buckets, distance, is_causal=stack == "decoder"
        ),
        "none": NoPositions,
    }
    return schemes[config.position_embedding_type]()
