"""The stacks of the paper's figure 1: embeddings and positions, then layers.

States are (batch, length, d_model). In padding-free training the states between the embeddings and
the final norm are packed, (1, tokens, d_model); see `packing`.

Arguments that the forwards share:

    input_ids: Tokens, (batch, length); with a cache, those that are not in it.
    attention_mask: 1 for a token, 0 for padding, (batch, length); with a cache, the past included.
    inputs_embeds: Embeddings instead of ids, (batch, length, d_model), not yet scaled.
    past_key_values: Keys and values of earlier tokens, and of the source.
    use_cache: Whether to return the keys and values of this call too.
    **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of the
        attention implementation.

Every forward raises a ValueError if the batch is empty, ids lie outside the vocabulary, both or
neither of ids and embeddings are given, or a sequence is too long for learned positions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Unpack, cast

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPast,
    BaseModelOutputWithPastAndCrossAttentions,
)
from transformers.utils.generic import TransformersKwargs, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CrossAttention, SelfAttention, config_for_attention
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .dropout import Dropout
from .layers import CausalLayer, DecoderLayer, EncoderLayer
from .normalization import make_norm
from .packing import UNPACKED, Packing, packing_of, source_places
from .position_ids import key_position_ids, query_position_ids
from .positions import (
    AlibiPositions,
    HalfSinusoidalPositions,
    LearnedPositions,
    NoPositions,
    PositionEncoding,
    SinusoidalPositions,
    rotary_positions,
)
from .pretrained_model import VanillaTransformerPreTrainedModel
from .stack_config import config_of_decoder_only
from .token_ids import check_not_empty, check_token_ids

_HINT_FOR_MISSING_IDS = {
    "decoder_input_ids": " Or give `labels`. If Trainer removes them (`label_smoothing_factor`), "
    "use `DataCollatorForSeq2Seq(tokenizer, model=model)`.",
}


def batch_shape(ids: torch.Tensor | None, embeds: torch.Tensor | None) -> tuple[int, ...]:
    """Returns (batch, length) of ids, or of the embeddings given instead; () if both are None."""
    given = embeds if ids is None else ids
    return () if given is None else tuple(given.shape[:2])


class TransformerStack(VanillaTransformerPreTrainedModel):
    """Base class of the stacks: embeddings, positions, dropout, layers and the final norm.

    Args:
        config: The model's config.
        vocab_size: Rows of the embedding.
        num_heads: Heads of self-attention.
        layerdrop: Probability of leaving a layer out of a training step.
        layers: The layers, from bottom to top.
    """

    def __init__(
        self,
        config: VanillaTransformerConfig,
        vocab_size: int,
        num_heads: int,
        layerdrop: float,
        layers: Sequence[nn.Module],
    ) -> None:
        super().__init__(config)
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = _make_positions(config, num_heads)
        self.embed_norm = _make_optional_norm(config.normalize_embedding, config)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layers)
        self.layerdrop = layerdrop
        self.final_norm = _make_optional_norm(bool(config.final_layer_norm), config)
        self.gradient_checkpointing = False
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    def embed(
        self,
        name: str,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        packing: Packing = UNPACKED,
    ) -> torch.Tensor:
        """Looks the tokens up, or takes the given embeddings, and scales them (§3.4).

        Args:
            name: Name of the ids in the caller, for messages.
            input_ids: Of shape (batch, length).
            inputs_embeds: Of shape (batch, length, d_model), not yet scaled.
            packing: The places to compute.

        Returns:
            Embeddings, packed.

        Raises:
            ValueError: If both or neither are given, or if ids lie outside the vocabulary.
        """
        embeds_name = name.replace("input_ids", "inputs_embeds")
        if (input_ids is None) == (inputs_embeds is None):
            hint = _HINT_FOR_MISSING_IDS.get(name, "") if input_ids is None else ""
            raise ValueError(f"Give exactly one of `{name}` and `{embeds_name}`.{hint}")
        if inputs_embeds is not None:
            check_not_empty(embeds_name, inputs_embeds)
            return packing.pack(inputs_embeds) * self.embed_scale
        input_ids = cast(torch.Tensor, input_ids)
        table: Any = self.embed_tokens  # an adapter's wrapper has no `num_embeddings`
        vocab_size = getattr(table, "num_embeddings", None) or len(table.weight)
        check_token_ids(name, input_ids, vocab_size)
        embeds: torch.Tensor = self.embed_tokens(packing.pack(input_ids))
        return embeds * self.embed_scale

    def add_positions(
        self, embeds: torch.Tensor, positions: PositionEncoding, packing: Packing = UNPACKED
    ) -> torch.Tensor:
        """Adds the position embeddings, normalises if configured, drops out (§3.5, §5.4).

        Args:
            embeds: Scaled token embeddings, packed.
            positions: For every place of the batch.
            packing: The places to compute.

        Returns:
            The input of the first layer, packed.
        """
        if positions.embedding is not None:
            positions = positions._replace(embedding=packing.pack(positions.embedding))
        return cast(torch.Tensor, self.dropout(self.embed_norm(positions.add_to(embeds))))

    def active_layers(self, past_key_values: Cache | None = None) -> list[nn.Module]:
        """Draws the layers of one call: a training step drops some (Fan et al. 2020).

        Args:
            past_key_values: A call with a cache uses all layers, because each writes its own part.

        Returns:
            Layers in their order; all of them outside of training.
        """
        layers = list(self.layers)
        if not self.training or not self.layerdrop or past_key_values is not None:
            return layers
        kept = torch.rand(len(layers), device="cpu") >= self.layerdrop
        return [layer for layer, keep in zip(layers, kept.tolist(), strict=True) if keep]


def _make_optional_norm(wanted: bool, config: VanillaTransformerConfig) -> nn.Module:
    if not wanted:
        return nn.Identity()
    return make_norm(config.norm_type, config.d_model, config.layer_norm_eps)


def _make_positions(config: VanillaTransformerConfig, num_heads: int) -> nn.Module:
    d_model, limit = config.d_model, config.max_position_embeddings
    schemes: dict[str, Callable[[], nn.Module]] = {
        "sinusoidal": lambda: SinusoidalPositions(d_model),
        "sinusoidal_half": lambda: HalfSinusoidalPositions(d_model),
        "learned": lambda: LearnedPositions(limit, d_model),
        "rope": lambda: rotary_positions(d_model // num_heads, limit, config.rope_parameters or {}),
        "alibi": lambda: AlibiPositions(num_heads),
        "none": NoPositions,
    }
    return schemes[config.position_embedding_type]()


class VanillaTransformerEncoder(TransformerStack):
    """Token and position embeddings, then the stack of encoder layers.

    Args:
        config: The model's config.
    """

    main_input_name = "input_ids"
    _can_record_outputs = {  # noqa: RUF012 - the base class's own form
        "hidden_states": EncoderLayer,
        "attentions": SelfAttention,
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        layers = [EncoderLayer(config, index) for index in range(config.encoder_layers)]
        heads, layerdrop = config.encoder_attention_heads, config.encoder_layerdrop
        super().__init__(config, config.vocab_size, heads, layerdrop, layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encodes the source.

        Args:
            packing: The places to compute, decided by the caller, who gets packed states. None:
                decided here, and the states are padded.

        Returns:
            `last_hidden_state` of shape (batch, source_len, d_model), and what was asked for.
        """
        is_outermost = packing is None
        if packing is None:
            packing = self._choose_packing(attention_mask, input_ids, inputs_embeds, **kwargs)
        embeds = self.embed("input_ids", input_ids, inputs_embeds, packing)
        batch = packing.outline(embeds)
        position_ids = query_position_ids(batch, attention_mask)
        positions = self.embed_positions(position_ids, embeds.dtype)
        hidden_states = self.add_positions(embeds, positions, packing)
        mask = create_bidirectional_mask(
            config=config_for_attention(self.config, bool(kwargs.get("output_attentions"))),
            inputs_embeds=batch,
            attention_mask=attention_mask,
        )
        for layer in self.active_layers():
            hidden_states = layer(
                hidden_states, mask, positions=positions, packing=packing, **kwargs
            )
        hidden_states = self.final_norm(hidden_states)
        if is_outermost:
            hidden_states = packing.unpack(hidden_states)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def _choose_packing(
        self,
        attention_mask: torch.Tensor | None,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        **kwargs: Any,
    ) -> Packing:
        if not self.active_shortcuts(**kwargs).padding_free:
            return UNPACKED
        shape = batch_shape(input_ids, inputs_embeds)
        return packing_of(source_places(attention_mask, shape))


class CausalStack(TransformerStack):
    """Base class of both decoders: how a call begins.

    Args:
        config: The model's config.
        layers: The layers, from bottom to top.
    """

    def __init__(self, config: VanillaTransformerConfig, layers: Sequence[nn.Module]) -> None:
        vocab_size = cast(int, config.decoder_vocab_size)
        heads, layerdrop = config.decoder_attention_heads, config.decoder_layerdrop
        super().__init__(config, vocab_size, heads, layerdrop, layers)

    def begin(
        self,
        embeds: torch.Tensor,
        attention_mask: Any,
        cache: Cache | None,
        mask_config: VanillaTransformerConfig,
        packing: Packing = UNPACKED,
    ) -> tuple[torch.Tensor, Any, PositionEncoding]:
        """Adds the positions, and makes the mask that hides padding and later tokens.

        Args:
            embeds: Scaled token embeddings, packed.
            attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len with the
                past).
            cache: Keys and values of earlier tokens, for self-attention.
            mask_config: Names the attention implementation that the mask is for.
            packing: The places to compute.

        Returns:
            The input of the first layer, the causal mask, and the positions.
        """
        batch = packing.outline(embeds)
        past_len = 0 if cache is None else cache.get_seq_length()
        positions = self.embed_positions(
            query_position_ids(batch, attention_mask, past_len, is_causal=True),
            embeds.dtype,
            key_position_ids(batch, attention_mask, cache),
        )
        causal_mask = create_causal_mask(
            config=mask_config,
            inputs_embeds=batch,
            attention_mask=attention_mask,
            past_key_values=cache,
        )
        return self.add_positions(embeds, positions, packing), causal_mask, positions


class VanillaTransformerDecoder(CausalStack):
    """Token and position embeddings, then the stack of decoder layers.

    Args:
        config: The model's config.
    """

    main_input_name = "input_ids"
    _can_record_outputs = {  # noqa: RUF012 - the base class's own form
        "hidden_states": DecoderLayer,
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(CrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        layers = [DecoderLayer(config, index) for index in range(config.decoder_layers)]
        super().__init__(config, layers)

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
        packing: Packing = UNPACKED,
        encoder_packing: Packing = UNPACKED,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decodes the target given the encoded source.

        Args:
            encoder_hidden_states: Of shape (batch, source_len, d_model), or packed by
                `encoder_packing`.
            encoder_attention_mask: Of shape (batch, source_len).
            packing: The places of the target to compute; the result is packed by it.
            encoder_packing: The places of the source that `encoder_hidden_states` holds.

        Returns:
            `last_hidden_state` of shape (batch, target_len, d_model), or packed,
            `past_key_values`, and what was asked for.
        """
        embeds = self.embed("decoder_input_ids", input_ids, inputs_embeds, packing)
        cache = _make_cache_pair(past_key_values, bool(use_cache), self.config)
        self_cache = None if cache is None else cache.self_attention_cache
        mask_config = config_for_attention(self.config, bool(kwargs.get("output_attentions")))
        hidden_states, causal_mask, positions = self.begin(
            embeds, attention_mask, self_cache, mask_config, packing
        )
        source_mask = create_bidirectional_mask(
            config=mask_config,
            inputs_embeds=packing.outline(embeds),
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_packing.outline(
                cast(torch.Tensor, encoder_hidden_states)
            ),
        )
        for layer in self.active_layers(cache):
            hidden_states = layer(
                hidden_states,
                causal_mask,
                encoder_hidden_states,
                encoder_attention_mask=source_mask,
                past_key_values=cache,
                positions=positions,
                packing=packing,
                encoder_packing=encoder_packing,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.final_norm(hidden_states), past_key_values=cache
        )


def _make_cache_pair(
    past_key_values: Cache | None, use_cache: bool, config: VanillaTransformerConfig
) -> EncoderDecoderCache | None:
    """Makes a cache if one is wanted, and adds a cross-attention cache to a single one."""
    if isinstance(past_key_values, EncoderDecoderCache):
        return past_key_values
    if past_key_values is None and not use_cache:
        return None
    if past_key_values is None:  # not `or`: an empty cache is falsy
        past_key_values = DynamicCache(config=config)
    return EncoderDecoderCache(past_key_values, DynamicCache(config=config))


class VanillaTransformerCausalDecoder(CausalStack):
    """Token and position embeddings, then a stack of layers without cross-attention.

    Args:
        config: A config of one stack, as `config_of_decoder_only` makes it.
    """

    main_input_name = "input_ids"
    _can_record_outputs = {  # noqa: RUF012 - the base class's own form
        "hidden_states": CausalLayer,
        "attentions": SelfAttention,
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = config_of_decoder_only(config)
        layers = [CausalLayer(config, index) for index in range(config.decoder_layers)]
        super().__init__(config, layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """Runs the stack.

        Returns:
            `last_hidden_state` of shape (batch, target_len, d_model), `past_key_values`, and what
            was asked for.
        """
        embeds = self.embed("input_ids", input_ids, inputs_embeds)
        cache = past_key_values
        if cache is None and use_cache:
            cache = DynamicCache(config=self.config)
        mask_config = config_for_attention(self.config, bool(kwargs.get("output_attentions")))
        hidden_states, mask, positions = self.begin(embeds, attention_mask, cache, mask_config)
        for layer in self.active_layers(cache):
            hidden_states = layer(
                hidden_states, mask, positions=positions, past_key_values=cache, **kwargs
            )
        return BaseModelOutputWithPast(
            last_hidden_state=self.final_norm(hidden_states), past_key_values=cache
        )
