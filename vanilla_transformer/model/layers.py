"""The two layers of the paper's figure 1, and one without cross-attention; read bottom to top.

States are (batch, length, d_model), or (1, tokens, d_model) where `packing` says so.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import SELF_ATTENTIONS, CrossAttention, SelfAttention
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .dropout import Dropout, ScaledDropout
from .feed_forward import FEED_FORWARDS, FeedForward
from .initialization import set_gains
from .normalization import make_norm, norm_slots
from .packing import UNPACKED, Packing
from .positions import NO_POSITIONS, PositionEncoding


def _make_norm_slots(config: VanillaTransformerConfig) -> tuple[nn.Module, nn.Module]:
    make = partial(make_norm, config.norm_type, config.d_model, config.layer_norm_eps)
    return norm_slots(config.norm_placement, make)


def _make_self_attention(
    config: VanillaTransformerConfig, layer_idx: int, stack: str
) -> SelfAttention:
    return SELF_ATTENTIONS[config.fused_qkv](
        config,
        getattr(config, f"{stack}_attention_heads"),
        layer_idx,
        is_causal=stack == "decoder",
        num_key_value_heads=getattr(config, f"{stack}_num_key_value_heads"),
    )


def _make_feed_forward(config: VanillaTransformerConfig, stack: str) -> FeedForward:
    return FEED_FORWARDS[config.gated_ffn](
        config.d_model,
        getattr(config, f"{stack}_ffn_dim"),
        activation=config.activation_function,
        bias=config.ffn_bias,
        dropout=config.activation_dropout,
        output_dropout=config.ffn_dropout,
    )


def _make_residual_dropout(config: VanillaTransformerConfig, stack: str) -> Dropout:
    scale = config.residual_scale_of(stack)
    return Dropout(config.dropout) if scale == 1 else ScaledDropout(config.dropout, scale)


class EncoderLayer(GradientCheckpointingLayer):
    """Self-attention, then feed-forward, each with its residual sum (Vaswani et al. §3.1).

    Args:
        config: The model's config.
        layer_idx: Index of the layer in its stack.
    """

    stack = "encoder"

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn_pre_norm, self.self_attn_post_norm = _make_norm_slots(config)
        self.self_attn = _make_self_attention(config, layer_idx, self.stack)
        self.feed_forward_pre_norm, self.feed_forward_post_norm = _make_norm_slots(config)
        self.feed_forward = _make_feed_forward(config, self.stack)
        self.dropout = _make_residual_dropout(config, self.stack)
        set_gains(self, config, self.stack, layer_idx + 1)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        positions: PositionEncoding = NO_POSITIONS,
        packing: Packing = UNPACKED,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Runs the layer.

        Args:
            hidden_states: The states of the layer below.
            attention_mask: In the form that the attention implementation asks for.
            positions: For self-attention.
            packing: The places that `hidden_states` holds.
            **kwargs: Passed to self-attention.

        Returns:
            States of the same shape.
        """
        residual = hidden_states
        hidden_states = self.self_attn_pre_norm(hidden_states)
        hidden_states, _ = self.self_attn(
            hidden_states, attention_mask, positions, packing=packing, **kwargs
        )
        hidden_states = self.self_attn_post_norm(residual + self.dropout(hidden_states))

        residual = hidden_states
        hidden_states = self.feed_forward_pre_norm(hidden_states)
        hidden_states = self.feed_forward(hidden_states)
        hidden_states = self.feed_forward_post_norm(residual + self.dropout(hidden_states))
        return hidden_states


class CausalLayer(EncoderLayer):
    """A decoder layer without cross-attention: masked self-attention, then feed-forward.

    It is an encoder layer with the decoder's sizes, under a causal mask (Liu et al. 2018,
    "Generating Wikipedia by Summarizing Long Sequences"; Radford et al. 2018). Its parameters have
    the same names as in `DecoderLayer`. A cache is passed as `past_key_values`.

    Args:
        config: The model's config.
        layer_idx: Index of the layer in its stack.
    """

    stack = "decoder"


class DecoderLayer(GradientCheckpointingLayer):
    """Masked self-attention, attention to the encoder, feed-forward (Vaswani et al. §3.1).

    Args:
        config: The model's config.
        layer_idx: Index of the layer in its stack.
    """

    stack = "decoder"

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int) -> None:
        super().__init__()
        heads, shared = config.decoder_attention_heads, config.decoder_num_key_value_heads
        self.self_attn_pre_norm, self.self_attn_post_norm = _make_norm_slots(config)
        self.self_attn = _make_self_attention(config, layer_idx, self.stack)
        self.encoder_attn_pre_norm, self.encoder_attn_post_norm = _make_norm_slots(config)
        self.encoder_attn = CrossAttention(config, heads, layer_idx, num_key_value_heads=shared)
        self.feed_forward_pre_norm, self.feed_forward_post_norm = _make_norm_slots(config)
        self.feed_forward = _make_feed_forward(config, self.stack)
        self.dropout = _make_residual_dropout(config, self.stack)
        set_gains(self, config, self.stack, layer_idx + 1)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: Any = None,
        positions: PositionEncoding = NO_POSITIONS,
        past_key_values: Cache | None = None,
        packing: Packing = UNPACKED,
        encoder_packing: Packing = UNPACKED,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Runs the layer.

        Args:
            hidden_states: The states of the layer below.
            attention_mask: Causal, in the form that the attention implementation asks for.
            encoder_hidden_states: The encoder's states.
            encoder_attention_mask: Hides source padding, in the same form.
            positions: For self-attention.
            past_key_values: Keys and values of earlier tokens and of the source.
            packing: The places that `hidden_states` holds.
            encoder_packing: The places that `encoder_hidden_states` holds.
            **kwargs: Passed to the attention implementation.

        Returns:
            States of the same shape as `hidden_states`.
        """
        residual = hidden_states
        hidden_states = self.self_attn_pre_norm(hidden_states)
        hidden_states, _ = self.self_attn(
            hidden_states, attention_mask, positions, past_key_values, packing=packing, **kwargs
        )
        hidden_states = self.self_attn_post_norm(residual + self.dropout(hidden_states))

        residual = hidden_states
        hidden_states = self.encoder_attn_pre_norm(hidden_states)
        hidden_states, _ = self.encoder_attn(
            hidden_states,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            packing=packing,
            encoder_packing=encoder_packing,
            **kwargs,
        )
        hidden_states = self.encoder_attn_post_norm(residual + self.dropout(hidden_states))

        residual = hidden_states
        hidden_states = self.feed_forward_pre_norm(hidden_states)
        hidden_states = self.feed_forward(hidden_states)
        hidden_states = self.feed_forward_post_norm(residual + self.dropout(hidden_states))
        return hidden_states
