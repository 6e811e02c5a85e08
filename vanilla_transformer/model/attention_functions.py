"""The eager implementation of attention, and implementations that take states in any layout.

Implementations take queries of shape (batch, heads, target_len, head_dim), keys and values of shape
(batch, key_value_heads, source_len, head_dim); each of these serves heads / key_value_heads
neighbouring query heads.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .dropout import dropout as drop_out
from .packed_attention import attend_to_sequences
from .token_layout import PADDED, PackedLayout, TokenLayout


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


def _repeat_heads(states: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeats keys or values, (batch, key_value_heads, ...) -> (batch, heads, ...)."""
    groups = heads // states.shape[1]
    return states.repeat_interleave(groups, dim=1) if groups > 1 else states


class AttentionFunction:
    """An attention implementation that takes and returns states in the layouts of a call.

    Args:
        function: Has the interface of `transformers.AttentionInterface`.
        queries, keys: The layouts of the queries, and of the keys and values.
        rows_per_source: Number of neighbouring rows that decode the same source. Its keys are there
            once, and the rows attend to them as the queries of one longer row.
    """

    def __init__(
        self,
        function: Callable[..., tuple[torch.Tensor, torch.Tensor | None]],
        queries: TokenLayout = PADDED,
        keys: TokenLayout = PADDED,
        rows_per_source: int = 1,
    ) -> None:
        self.function, self.rows_per_source = function, rows_per_source
        self.queries, self.keys = queries, keys

    def __call__(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Any,
        scaling: float,
        position_bias: torch.Tensor | None = None,
        **arguments: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the mixed values, (batch, target_len, heads, head_dim), and the weights.

        Without padding, mixed values are (1, tokens, heads, head_dim).

        Args:
            mask: In the form that the implementation asks for.
            position_bias: Added to the scores, (batch or 1, heads, target_len, source_len).
        """
        queries, keys = self.queries, self.keys
        if isinstance(queries, PackedLayout):  # on a GPU
            assert isinstance(keys, PackedLayout)
            key, value = (_repeat_heads(states, query.shape[1]) for states in (key, value))
            # (1, heads, tokens, head_dim) -> (1, tokens, heads, head_dim)
            query, key, value = (states.transpose(1, 2) for states in (query, key, value))
            sizes = (queries.bounds, keys.bounds, queries.longest, keys.longest)
            is_causal: Any = module.is_causal
            return attend_to_sequences(query, key, value, *sizes, is_causal, scaling)[0], None
        query, key, value = queries.pad_heads(query), keys.pad_heads(key), keys.pad_heads(value)
        shared = self.rows_per_source
        if shared > 1:  # (rows, heads, length, ...) -> (sources, heads, shared · length, ...)
            rows, heads, length, _ = query.shape
            query = query.transpose(1, 2).reshape(rows // shared, shared * length, heads, -1)
            query = query.transpose(1, 2)
        if position_bias is not None:
            arguments["position_bias"] = position_bias.expand(query.shape[0], -1, -1, -1)
        mixed, weights = self.function(
            module, query, key, value, mask, scaling=scaling, **arguments
        )
        if shared > 1:  # back to the rows
            mixed = mixed.reshape(rows, length, heads, -1)
            if weights is not None:
                weights = weights.unflatten(2, (shared, -1)).transpose(1, 2).flatten(0, 1)
        return queries.unpad_heads(mixed), weights


def choose_attention(
    config: VanillaTransformerConfig, output_attentions: bool | None = False
) -> tuple[VanillaTransformerConfig, Callable[..., Any]]:
    """Returns the config for which to make the masks of a call, and the implementation.

    The config names the implementation. It is the eager one if the call asks for weights, which
    fused implementations do not compute.
    """
    if output_attentions and config._attn_implementation != "eager":
        config = copy(config)
        config._attn_implementation = "eager"
    return config, ALL_ATTENTION_FUNCTIONS.get_interface(
        config._attn_implementation, eager_attention_forward
    )
