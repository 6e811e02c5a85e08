"""Multi-head attention: self- and cross-attention over one shared core (Vaswani et al. §3.2).

States are (batch, length, d_model), or (1, tokens, d_model) in padding-free training. They are
projected in that shape; attention itself needs the padded one (see `token_layout`).

Queries are (batch, heads, target_len, head_dim), keys and values (batch, key_value_heads,
source_len, head_dim); each of these serves heads / key_value_heads neighbouring query heads.
Weights are (batch, heads, target_len, source_len). Fused implementations return None for them.
"""

from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .context import AttentionFunction, CallContext
from .dropout import dropout as drop_out
from .initialization import StackedLinear
from .modes import as_factor, is_plain_product
from .normalization import make_norm
from .packed_attention import attend_to_sequences
from .token_layout import PADDED, TokenLayout


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention, written out: softmax(scaling · QK^T) V (§3.2.1).

    Args:
        attention_mask: Added to the scores: 0 where attention is allowed, the most negative
            number of the type elsewhere; or True where it is allowed. Of shape (batch, 1,
            target_len, source_len).
        position_bias: Added to the scores, of shape (batch, heads, target_len, source_len).
        **kwargs: Ignored here; other implementations of the same interface use them.

    Returns:
        The mixed values, of shape (batch, target_len, heads, head_dim), and the weights.
    """
    key, value = (_repeat_heads(states, query.shape[1]) for states in (key, value))
    # (batch, heads, target_len, head_dim) -> (batch, heads, target_len, source_len)
    scores = query @ key.transpose(-2, -1) * scaling
    # With a mask, the smallest number of a half type may overflow.
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:  # as callers may pass it
            allowed, lowest = attention_mask, torch.finfo(scores.dtype).min
            attention_mask = torch.zeros_like(allowed, dtype=scores.dtype)
            attention_mask = attention_mask.masked_fill(~allowed, lowest)
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1).to(query.dtype)
    weights = drop_out(weights, dropout, module.training)
    mixed = weights @ value  # (batch, heads, target_len, head_dim)
    return mixed.transpose(1, 2).contiguous(), weights


def packed_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    cu_seq_lens_k: torch.Tensor,
    max_length_q: int,
    max_length_k: int,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each of the sequences of a `PackedLayout`, on a GPU.

    Args:
        query, key, value: Of shape (1, heads, tokens, head_dim).
        attention_mask: None: the sequences tell what a token may attend to.
        cu_seq_lens_q, cu_seq_lens_k: Where each sequence begins, of shape (sequences + 1,).
        max_length_q, max_length_k: No sequence has more tokens.
    """
    key, value = (_repeat_heads(states, query.shape[1]) for states in (key, value))
    # (1, heads, tokens, head_dim) -> (1, tokens, heads, head_dim)
    query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
    bounds = (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    mixed: torch.Tensor = attend_to_sequences(
        query, key, value, *bounds, module.is_causal, scaling
    )[0]
    return mixed, None


def _repeat_heads(states: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeats keys or values, (batch, key_value_heads, ...) -> (batch, heads, ...)."""
    groups = heads // states.shape[1]
    return states.repeat_interleave(groups, dim=1) if groups > 1 else states


def choose_attention(
    config: VanillaTransformerConfig,
    output_attentions: bool | None = False,
    layout: TokenLayout = PADDED,
) -> tuple[VanillaTransformerConfig, AttentionFunction]:
    """Chooses the attention implementation of one call: the one that the config names.

    Packed sequences have their own. Fused implementations do not compute the attention weights: a
    call that asks for weights uses the eager one.

    Returns:
        The config for which masks are to be made, the given one or a shallow copy that names eager
        attention, and the implementation.
    """
    if layout.positions is not None:
        return config, packed_attention_forward
    if output_attentions and config._attn_implementation != "eager":
        config = copy(config)
        config._attn_implementation = "eager"
    function: AttentionFunction = ALL_ATTENTION_FUNCTIONS.get_interface(
        config._attn_implementation, eager_attention_forward
    )
    return config, function


class AttentionCore(nn.Module):
    """Base class of self- and cross-attention: projections, heads, the attention function.

    Args:
        num_heads: Number of heads; without `config.head_dim` it divides `config.d_model`.
        layer_idx: Index of the layer in its stack, and of its part of the cache.
        is_causal: Whether tokens do not attend to later tokens.
        num_key_value_heads: Number of heads of keys and values. None: as many as heads.
    """

    normalised_with: tuple[str, ...] = ("all",)
    """The values of `config.qk_norm` that normalise queries and keys here."""

    def __init__(
        self,
        config: VanillaTransformerConfig,
        num_heads: int,
        layer_idx: int,
        is_causal: bool = False,
        num_key_value_heads: int | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_dim = config.head_dim_with(num_heads)
        self.scaling = config.attention_scale or self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        num_key_value_heads = num_key_value_heads or num_heads
        self.num_key_value_groups = num_heads // num_key_value_heads
        query_dim = num_heads * self.head_dim
        self._make_projections(config, query_dim, num_key_value_heads * self.head_dim)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if config.qk_norm in self.normalised_with:
            self.q_norm = make_norm(config.norm_type, self.head_dim, config.layer_norm_eps)
            self.k_norm = make_norm(config.norm_type, self.head_dim, config.layer_norm_eps)
        self.out_proj = nn.Linear(query_dim, config.d_model, bias=config.attention_bias)

    def _make_projections(
        self, config: VanillaTransformerConfig, query_dim: int, key_value_dim: int
    ) -> None:
        self.q_proj = nn.Linear(config.d_model, query_dim, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.d_model, key_value_dim, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.d_model, key_value_dim, bias=config.attention_bias)

    def split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, length, heads · head_dim) -> (batch, heads, length, head_dim)."""
        return states.view(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Any,
        context: CallContext,
        keys: TokenLayout,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Calls the attention implementation; returns the output, as the states, and the weights.

        Args:
            mask: In the form that the implementation asks for.
            keys: The layout of the keys.
        """
        dropout = self.attention_dropout if self.training else 0.0
        mixed, weights = context.attend(
            self, query, key, value, mask, dropout=dropout, scaling=self.scaling,
            **kwargs, **context.layout.attention_arguments(keys), **context.arguments,
        )  # fmt: skip
        mixed = mixed.flatten(-2)  # (batch, target_len, heads · head_dim)
        return self.out_proj(context.layout.unpad_attention(mixed)), weights


def project(
    states: torch.Tensor, layout: TokenLayout, *projections: nn.Linear
) -> tuple[torch.Tensor, ...]:
    """Computes several linear projections of the same states.

    On a GPU, one product of packed sequences is faster than several.
    """
    if layout.positions is None or not all(map(is_plain_product, projections)):
        return tuple(projection(states) for projection in projections)
    weights = tuple(projection.weight for projection in projections)
    biases = tuple(projection.bias for projection in projections if projection.bias is not None)
    stacked = F.linear(states, torch.cat(weights), torch.cat(biases) if biases else None)
    return tuple(stacked.split([len(weight) for weight in weights], dim=-1))


class SelfAttention(AttentionCore):
    """Each token attends to the tokens of its own sequence; the cache grows with every call."""

    normalised_with = ("self", "all")

    def forward(
        self, hidden_states: torch.Tensor, context: CallContext
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attends within a sequence; returns the output, shaped as the input, and the weights."""
        # Padding-free states, (1, tokens, ...), become (batch, length, ...) for attention alone.
        projected = self.project(hidden_states, context.layout)
        states = map(context.layout.pad_for_attention, projected)
        query, key, value = map(self.split_heads, states)  # (batch, heads, length, head_dim)
        # Autocast may have widened what a norm returns.
        query, key = self.q_norm(query).to(value.dtype), self.k_norm(key).to(value.dtype)
        query, key = context.positions.rotate(query), context.positions.rotate(key)
        if context.cache is not None:  # (..., length, head_dim) -> (..., length with the past, ...)
            key, value = context.cache.update(key, value, self.layer_idx)
        bias = context.positions.bias_of(query)
        return self.attend(
            query, key, value, context.mask, context, context.layout, position_bias=bias
        )

    def project(self, hidden_states: torch.Tensor, layout: TokenLayout) -> tuple[torch.Tensor, ...]:
        """Projects a sequence to its queries, keys and values, before `split_heads`."""
        return project(as_factor(hidden_states), layout, self.q_proj, self.k_proj, self.v_proj)


class FusedSelfAttention(SelfAttention):
    """Self-attention whose three projections are one matrix: rows of queries, keys, then values.

    The same function as `SelfAttention` with one matrix product instead of three.
    """

    def _make_projections(
        self, config: VanillaTransformerConfig, query_dim: int, key_value_dim: int
    ) -> None:
        self.part_sizes = [query_dim, key_value_dim, key_value_dim]
        self.qkv_proj = StackedLinear(
            config.d_model, tuple(self.part_sizes), bias=config.attention_bias
        )

    def project(self, hidden_states: torch.Tensor, layout: TokenLayout) -> tuple[torch.Tensor, ...]:
        """Projects as `SelfAttention.project` does."""
        stacked: torch.Tensor = self.qkv_proj(hidden_states)
        return torch.split(stacked, self.part_sizes, dim=-1)


SELF_ATTENTIONS: dict[bool, type[SelfAttention]] = {False: SelfAttention, True: FusedSelfAttention}


class CrossAttention(AttentionCore):
    """Target tokens attend to the encoder's output, whose keys and values are cached once."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: CallContext,
        encoder_hidden_states: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attends to the source; returns the output, shaped as the target, and the weights."""
        count = context.rows_per_source
        query = context.layout.pad_for_attention(self.q_proj(hidden_states))
        if count > 1:  # (rows, target_len, width) -> (sources, rows_per_source · target_len, width)
            query = query.reshape(len(query) // count, -1, query.shape[-1])
        key, value = self.project_source(encoder_hidden_states, context)
        query = self.q_norm(self.split_heads(query)).to(query.dtype)
        output, weights = self.attend(
            query, key, value, context.source_mask, context, context.source_layout
        )
        if count > 1:  # back to the rows
            output = output.reshape(hidden_states.shape)
            if weights is not None:
                weights = weights.unflatten(2, (count, -1)).transpose(1, 2).flatten(0, 1)
        return output, weights

    def project_source(
        self, encoder_hidden_states: torch.Tensor, context: CallContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values of each source, whose rows are equal, from now or a call before.

        Their shape is (sources, key_value_heads, source_len, head_dim).
        """
        cache = context.source_cache
        if cache is not None and cache.is_updated.get(self.layer_idx):
            cached: Any = cache.cross_attention_cache.layers[self.layer_idx]
            device = encoder_hidden_states.device  # an offloaded cache keeps them elsewhere
            return cached.keys.to(device), cached.values.to(device)
        sources = encoder_hidden_states
        if context.rows_per_source > 1:  # (rows, source_len, d_model) -> (sources, ...)
            sources = sources[:: context.rows_per_source]
        layout = context.source_layout
        projected = project(as_factor(sources), layout, self.k_proj, self.v_proj)
        key, value = (self.split_heads(layout.pad_for_attention(states)) for states in projected)
        key = self.k_norm(key).to(value.dtype)
        if cache is not None:
            key, value = cache.cross_attention_cache.update(key, value, self.layer_idx)
            cache.is_updated[self.layer_idx] = True
        return key, value
