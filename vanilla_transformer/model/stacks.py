"""The two stacks of the paper's figure 1: embeddings and positions, then layers.

States are (batch, length, d_model). In padding-free training the states between the embeddings and
the final norm are (1, tokens, d_model); see `token_layout`.

The arguments that the forwards share, and what they refuse, are those of the forwards in
`modeling_vanilla_transformer`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Unpack, cast

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils import logging
from transformers.utils.generic import TransformersKwargs, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CrossAttention, SelfAttention
from .attention_functions import AttentionFunction, choose_attention
from .configuration_vanilla_transformer import BIASED_SCHEMES, VanillaTransformerConfig
from .context import CallContext
from .decoding_cache import mask_per_source, rows_per_source_of
from .dropout import Dropout
from .inputs import accepts_both_cache_names, check_mask, check_not_empty, check_token_ids
from .layers import DecoderLayer, EncoderLayer, make_state_norm
from .positions import PositionEncoding, make_scheme, number_tokens
from .pretrained_model import VanillaTransformerPreTrainedModel
from .token_layout import PADDED, TokenLayout, batch_shape

logger = logging.get_logger(__name__)

_HINT_FOR_THE_TARGET = (
    " Or give `labels`. If Trainer removes them (`label_smoothing_factor`), use "
    "`DataCollatorForSeq2Seq(tokenizer, model=model)`."
)


class TransformerStack(VanillaTransformerPreTrainedModel):
    """Base class of the stacks: embeddings, positions, dropout, layers and the final norm."""

    prefix = ""
    """What precedes the names of the stack's arguments in a whole model."""
    is_causal = False
    is_submodule = True

    def __init__(
        self,
        config: VanillaTransformerConfig,
        stack: str,
        vocab_size: int,
        layer_class: Callable[[VanillaTransformerConfig, int], nn.Module],
    ) -> None:
        super().__init__(config)
        layers = [layer_class(config, i) for i in range(getattr(config, f"{stack}_layers"))]
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = make_scheme(config, stack)
        self.embed_norm = make_state_norm(config) if config.normalize_embedding else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layers)
        self.layerdrop = getattr(config, f"{stack}_layerdrop")
        self.final_norm = make_state_norm(config) if config.final_layer_norm else nn.Identity()
        self.final_dropout = Dropout(config.final_dropout)
        self.gradient_checkpointing = False
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    def embed(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        layout: TokenLayout = PADDED,
    ) -> torch.Tensor:
        """Returns the embeddings of tokens, or those of the caller, scaled (§3.4)."""
        name, embeds_name = f"{self.prefix}input_ids", f"{self.prefix}inputs_embeds"
        if (input_ids is None) == (inputs_embeds is None):
            hint = _HINT_FOR_THE_TARGET if input_ids is None and self.prefix else ""
            raise ValueError(f"Give exactly one of `{name}` and `{embeds_name}`.{hint}")
        if inputs_embeds is not None:
            check_not_empty(embeds_name, inputs_embeds)
            return layout.to_tokens(inputs_embeds) * self.embed_scale
        input_ids = cast(torch.Tensor, input_ids)
        table: Any = self.embed_tokens  # an adapter's wrapper has no `num_embeddings`
        vocab_size = getattr(table, "num_embeddings", None) or len(table.weight)
        check_token_ids(name, input_ids, vocab_size)
        # (batch, length) -> (batch, length, d_model)
        embeds: torch.Tensor = self.embed_tokens(layout.to_tokens(input_ids))
        return embeds * self.embed_scale

    def make_positions(
        self, padded: torch.Tensor, mask: Any, layout: TokenLayout, cache: Cache | None = None
    ) -> PositionEncoding:
        """Numbers the tokens of a call, and returns what the position scheme adds (§3.5).

        Args:
            padded: A tensor of attention's padded shape; only its shape, type and device are read.
        """
        queries, keys = number_tokens(padded, mask, cache, is_causal=self.is_causal)
        if self.config.position_embedding_type not in BIASED_SCHEMES:  # a bias is padded
            queries = layout.to_positions(queries)  # (batch or 1, length) or (1, tokens)
        return cast(PositionEncoding, self.embed_positions(queries, padded.dtype, keys))

    def run_layers(
        self, embeds: torch.Tensor, context: CallContext, *encoder_hidden_states: torch.Tensor
    ) -> torch.Tensor:
        """Runs figure 1 from the embeddings up: positions, the layers, the final norm."""
        if context.positions.embedding is not None:
            embeds = embeds + context.positions.embedding  # §3.5
        hidden_states = self.dropout(self.embed_norm(embeds))  # §5.4
        for layer in self.active_layers(context.cache):
            hidden_states = layer(hidden_states, context, *encoder_hidden_states)
        return cast(torch.Tensor, self.final_dropout(self.final_norm(hidden_states)))

    def active_layers(self, cache: EncoderDecoderCache | None) -> list[nn.Module]:
        """Draws the layers of one call: a training step drops some (Fan et al. 2020).

        A call with a cache uses all of them, because each writes its own part.
        """
        layers = list(self.layers)
        if not self.training or not self.layerdrop or cache is not None:
            return layers
        kept = torch.rand(len(layers), device="cpu") >= self.layerdrop
        return [layer for layer, keep in zip(layers, kept.tolist(), strict=True) if keep]


class VanillaTransformerEncoder(TransformerStack):
    """Token and position embeddings, then the stack of encoder layers."""

    main_input_name = "input_ids"
    _can_record_outputs = {  # noqa: RUF012 - the base class's own form
        "hidden_states": EncoderLayer,
        "attentions": SelfAttention,
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config, "encoder", config.vocab_size, EncoderLayer)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        layout: TokenLayout | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encodes the source.

        Args:
            layout: The layout of the result, decided by the caller. None: decided here, and the
                result is padded.
        """
        is_outermost = layout is None
        if layout is None:
            shape = batch_shape(input_ids, inputs_embeds)
            layout = self.plan_source(attention_mask, shape, cast("dict[str, Any]", kwargs))
        embeds = self.embed(input_ids, inputs_embeds, layout)  # (batch, source_len, d_model)
        context = self.make_context(embeds, attention_mask, layout, kwargs)
        states: Any = self.run_layers(embeds, context)
        return BaseModelOutput(
            last_hidden_state=layout.to_batch(states) if is_outermost else states
        )

    def make_context(
        self,
        embeds: torch.Tensor,
        attention_mask: Any,
        layout: TokenLayout,
        arguments: Mapping[str, Any],
    ) -> CallContext:
        """Makes what the layers of a call share. Masks have the padded shape."""
        config, function = choose_attention(self.config, arguments.get("output_attentions"))
        padded = layout.padded_like(embeds)
        mask = layout.padding_mask(attention_mask)
        mask = check_mask("attention_mask", mask, *padded.shape[:2])
        return CallContext(
            AttentionFunction(function, layout, layout),
            arguments,
            mask=create_bidirectional_mask(config, padded, mask),
            positions=self.make_positions(padded, mask, layout),
            layout=layout,
        )


class VanillaTransformerDecoder(TransformerStack):
    """Token and position embeddings, then the stack of decoder layers."""

    main_input_name = "input_ids"
    prefix = "decoder_"
    is_causal = True
    _can_record_outputs = {  # noqa: RUF012 - the base class's own form
        "hidden_states": DecoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(CrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config, "decoder", cast(int, config.decoder_vocab_size), DecoderLayer)

    @accepts_both_cache_names
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        layout: TokenLayout = PADDED,
        encoder_layout: TokenLayout = PADDED,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decodes the target, in `layout`, given the encoded source, in `encoder_layout`."""
        embeds = self.embed(input_ids, inputs_embeds, layout)  # (batch, target_len, d_model)
        source = cast(torch.Tensor, encoder_hidden_states)
        cache = self.make_cache(past_key_values, bool(use_cache))
        target = embeds, attention_mask, layout
        encoded = source, encoder_attention_mask, encoder_layout
        context = self.make_context(target, encoded, cache, kwargs)
        states: Any = self.run_layers(embeds, context, source)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states, cache=cache)

    def make_context(
        self,
        target: tuple[torch.Tensor, Any, TokenLayout],
        source: tuple[torch.Tensor, Any, TokenLayout],
        cache: EncoderDecoderCache | None,
        arguments: Mapping[str, Any],
    ) -> CallContext:
        """Makes what the layers of a call share, of states, mask and layout of both sides.

        Masks have the padded shape.
        """
        config, function = choose_attention(self.config, arguments.get("output_attentions"))
        target_cache = None if cache is None else cache.self_attention_cache
        past = 0 if target_cache is None else target_cache.get_seq_length()
        rows_per_source = rows_per_source_of(cache)  # beams of one source share its keys

        (states, mask, layout), (source_states, source_mask, source_layout) = target, source
        padded, padded_source = layout.padded_like(states), source_layout.padded_like(source_states)
        rows, length = padded.shape[:2]
        mask = layout.padding_mask(mask)
        mask = check_mask("decoder_attention_mask", mask, rows, length, past, is_causal=True)
        source_mask = source_layout.padding_mask(source_mask)
        source_mask = check_mask("attention_mask", source_mask, *padded_source.shape[:2])
        source_mask = create_bidirectional_mask(config, padded, source_mask, padded_source)
        return CallContext(
            AttentionFunction(function, layout, layout),
            arguments,
            mask=create_causal_mask(config, padded, mask, target_cache),
            positions=self.make_positions(padded, mask, layout, target_cache),
            cache=cache,
            layout=layout,
            source_attention=AttentionFunction(function, layout, source_layout, rows_per_source),
            source_mask=mask_per_source(source_mask, rows_per_source, length),
            source_layout=source_layout,
        )

    def make_cache(
        self, past_key_values: Cache | None, use_cache: bool
    ) -> EncoderDecoderCache | None:
        """Returns the cache of a call: the given one, a new one if wanted, or None.

        A layer that gradient checkpointing computes twice would append its keys twice.
        """
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            if past_key_values is not None:
                logger.warning_once("`past_key_values` has no effect with gradient checkpointing.")
            return None
        if past_key_values is None and not use_cache:
            return None
        if isinstance(past_key_values, EncoderDecoderCache):
            return past_key_values
        if past_key_values is None:  # not `or`: an empty cache is falsy
            past_key_values = DynamicCache(config=self.config)
        return EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))
