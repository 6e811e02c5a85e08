"""The two layers of the paper's figure 1: a forward has its boxes, from the bottom up.

States are (batch, length, d_model), or (1, tokens, d_model) in padding-free training. A layer takes
those of the layer below and returns its own, in the same shape. `layer_idx` is its index in its
stack, and `context` is what the layers of a call share.
"""

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import SELF_ATTENTIONS, CrossAttention
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .context import CallContext
from .dropout import Dropout, ScaledDropout
from .feed_forward import FEED_FORWARDS, FeedForward
from .initialization import set_initial_gains
from .normalization import make_norm
from .wide_states import NarrowingRMSNorm, WideLinear, has_wide_states


def make_state_norm(config: VanillaTransformerConfig) -> nn.Module:
    """Makes a norm of residual states."""
    if has_wide_states(config):
        return NarrowingRMSNorm(config.d_model, config.layer_norm_eps)
    return make_norm(config.norm_type, config.d_model, config.layer_norm_eps)


def _make_norm_slots(config: VanillaTransformerConfig) -> tuple[nn.Module, nn.Module]:
    """Makes the modules for the slots before a sublayer and after its residual sum.

    The unused slot is an identity. A layer's forward is then one straight line for every placement,
    and the checkpoint keys show the placement that a model was trained with.
    """
    norm = make_state_norm(config)
    pre = norm if config.norm_placement == "pre" else nn.Identity()
    post = norm if config.norm_placement == "post" else nn.Identity()
    return pre, post


def _make_feed_forward(config: VanillaTransformerConfig, stack: str) -> FeedForward:
    return FEED_FORWARDS[config.gated_ffn](
        config.d_model,
        getattr(config, f"{stack}_ffn_dim"),
        activation=config.activation_function,
        bias=config.ffn_bias,
        dropout=config.activation_dropout,
        output_dropout=config.ffn_dropout,
        output_linear=WideLinear if has_wide_states(config) else nn.Linear,
    )


def _make_residual_dropout(config: VanillaTransformerConfig) -> Dropout:
    if config.residual_scale == 1:
        return Dropout(config.dropout)
    return ScaledDropout(config.dropout, config.residual_scale)


class EncoderLayer(GradientCheckpointingLayer):
    """Self-attention, then feed-forward, each with its residual sum (Vaswani et al. §3.1)."""

    stack = "encoder"

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn_pre_norm, self.self_attn_post_norm = _make_norm_slots(config)
        self.self_attn = SELF_ATTENTIONS[config.fused_qkv](config, self.stack, layer_idx)
        self.feed_forward_pre_norm, self.feed_forward_post_norm = _make_norm_slots(config)
        self.feed_forward = _make_feed_forward(config, self.stack)
        self.dropout = _make_residual_dropout(config)
        set_initial_gains(self, config, self.stack)  # T-Fixup scales the projections by their stack

    def forward(self, hidden_states: torch.Tensor, context: CallContext) -> torch.Tensor:
        """Runs the layer."""
        residual = hidden_states
        hidden_states = self.self_attn_pre_norm(hidden_states)
        hidden_states, _ = self.self_attn(hidden_states, context)
        hidden_states = self.self_attn_post_norm(residual + self.dropout(hidden_states))

        residual = hidden_states
        hidden_states = self.feed_forward_pre_norm(hidden_states)
        hidden_states = self.feed_forward(hidden_states)
        hidden_states = self.feed_forward_post_norm(residual + self.dropout(hidden_states))
        return hidden_states


class DecoderLayer(GradientCheckpointingLayer):
    """Masked self-attention, attention to the encoder, feed-forward (Vaswani et al. §3.1)."""

    stack = "decoder"

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn_pre_norm, self.self_attn_post_norm = _make_norm_slots(config)
        attention = SELF_ATTENTIONS[config.fused_qkv]
        self.self_attn = attention(config, self.stack, layer_idx, is_causal=True)
        self.encoder_attn_pre_norm, self.encoder_attn_post_norm = _make_norm_slots(config)
        self.encoder_attn = CrossAttention(config, self.stack, layer_idx)
        self.feed_forward_pre_norm, self.feed_forward_post_norm = _make_norm_slots(config)
        self.feed_forward = _make_feed_forward(config, self.stack)
        self.dropout = _make_residual_dropout(config)
        set_initial_gains(self, config, self.stack)

    def forward(
        self, hidden_states: torch.Tensor, context: CallContext, encoder_hidden_states: torch.Tensor
    ) -> torch.Tensor:
        """Runs the layer."""
        residual = hidden_states
        hidden_states = self.self_attn_pre_norm(hidden_states)
        hidden_states, _ = self.self_attn(hidden_states, context)
        hidden_states = self.self_attn_post_norm(residual + self.dropout(hidden_states))

        residual = hidden_states
        hidden_states = self.encoder_attn_pre_norm(hidden_states)
        hidden_states, _ = self.encoder_attn(hidden_states, context, encoder_hidden_states)
        hidden_states = self.encoder_attn_post_norm(residual + self.dropout(hidden_states))

        residual = hidden_states
        hidden_states = self.feed_forward_pre_norm(hidden_states)
        hidden_states = self.feed_forward(hidden_states)
        hidden_states = self.feed_forward_post_norm(residual + self.dropout(hidden_states))
        return hidden_states
