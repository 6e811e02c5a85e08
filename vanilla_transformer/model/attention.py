"""Multi-head attention: self- and cross-attention over one shared core (Vaswani et al. §3.2).

States are (batch, length, d_model), queries, keys and values (batch, heads, length, head_dim), with
fewer heads of keys and values under GQA. In padding-free training they are (1, tokens, d_model) and
(1, heads, tokens, head_dim); `AttentionFunction` gives implementations the shape that they need.

Weights are (batch, heads, target_len, source_len). Fused implementations return None for them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .attention_functions import AttentionFunction
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .context import CallContext
from .initialization import StackedLinear
from .modes import cast_for_matmul, is_plain_product
from .normalization import make_norm
from .token_layout import TokenLayout


class AttentionCore(nn.Module):
    """Base class of self- and cross-attention: projections, heads, the attention function.

    Args:
        stack: "encoder" or "decoder".
        layer_idx: Index of the layer in its stack, and of its part of the cache.
        is_causal: Whether tokens do not attend to later tokens.
    """

    normalised_with: tuple[str, ...] = ("all",)
    """The values of `config.qk_norm` that normalise queries and keys here."""

    def __init__(
        self, config: VanillaTransformerConfig, stack: str, layer_idx: int, is_causal: bool = False
    ) -> None:
        super().__init__()
        num_heads = getattr(config, f"{stack}_attention_heads")
        num_key_value_heads = getattr(config, f"{stack}_num_key_value_heads")
        self.config = config  # transformers' implementations read it, and the groups below
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_dim = config.head_dim_with(num_heads)
        self.scaling = config.attention_scale or self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
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
        attention: AttentionFunction,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Any,
        **arguments: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attends and projects; returns the output, shaped as the states, and the weights."""
        dropout = self.attention_dropout if self.training else 0.0
        mixed, weights = attention(
            self, query, key, value, mask, dropout=dropout, scaling=self.scaling, **arguments
        )
        return self.out_proj(mixed.flatten(-2)), weights


def apply_projections(
    states: torch.Tensor, layout: TokenLayout, *projections: nn.Linear
) -> tuple[torch.Tensor, ...]:
    """Computes several linear projections of the same states.

    On a GPU, one product of packed sequences is faster than several.
    """
    if not layout.is_packed or not all(map(is_plain_product, projections)):
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
        projected = self.project(hidden_states, context.layout)
        query, key, value = map(self.split_heads, projected)  # (batch, heads, length, head_dim)
        # Autocast may have widened what a norm returns.
        query, key = self.q_norm(query).to(value.dtype), self.k_norm(key).to(value.dtype)
        query, key = context.positions.rotate(query), context.positions.rotate(key)
        if context.cache is not None:  # (..., length, head_dim) -> (..., length with the past, ...)
            key, value = context.cache.self_attention_cache.update(key, value, self.layer_idx)
        return self.attend(
            context.attention, query, key, value, context.mask,
            position_bias=context.positions.bias, **context.arguments,
        )  # fmt: skip

    def project(self, hidden_states: torch.Tensor, layout: TokenLayout) -> tuple[torch.Tensor, ...]:
        """Projects a sequence to its queries, keys and values, before `split_heads`."""
        return apply_projections(
            cast_for_matmul(hidden_states), layout, self.q_proj, self.k_proj, self.v_proj
        )


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
        self, hidden_states: torch.Tensor, context: CallContext, encoder_hidden_states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attends to the source; returns the output, shaped as the target, and the weights."""
        query = self.split_heads(self.q_proj(hidden_states))
        query = self.q_norm(query).to(query.dtype)
        key, value = self.project_source(encoder_hidden_states, context)
        return self.attend(
            context.source_attention, query, key, value, context.source_mask, **context.arguments
        )

    def project_source(
        self, encoder_hidden_states: torch.Tensor, context: CallContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the keys and values of each source, which the first call with a cache computes.

        Their shape is (sources, key_value_heads, source_len, head_dim).
        """
        cache = context.cache
        if cache is not None and cache.is_updated.get(self.layer_idx):
            cached: Any = cache.cross_attention_cache.layers[self.layer_idx]
            device = encoder_hidden_states.device  # an offloaded cache keeps them elsewhere
            return cached.keys.to(device), cached.values.to(device)
        # (rows, source_len, d_model) -> (sources, source_len, d_model): rows of a source are equal.
        sources = encoder_hidden_states[:: context.source_attention.rows_per_source]
        projected = apply_projections(
            cast_for_matmul(sources), context.source_layout, self.k_proj, self.v_proj
        )
        key, value = map(self.split_heads, projected)
        key = self.k_norm(key).to(value.dtype)
        if cache is not None:
            key, value = cache.cross_attention_cache.update(key, value, self.layer_idx)
            cache.is_updated[self.layer_idx] = True
        return key, value
