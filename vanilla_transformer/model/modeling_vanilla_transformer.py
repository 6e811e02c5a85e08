"""The stacks of the paper's figure 1, the bare models, and the models with their heads."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Unpack, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation.utils import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPast,
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.generic import (
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CrossAttention, SelfAttention, StackedLinear, config_for_attention
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .dropout import Dropout
from .feed_forward import LEARNED_ACTIVATIONS
from .layers import CausalLayer, DecoderLayer, EncoderLayer
from .losses import (
    IGNORE_INDEX,
    LogitsOnDemand,
    TrainingOutput,
    check_labels,
    next_token_loss,
    problem_type_of,
    projected_token_loss,
    sequence_loss,
    token_loss,
)
from .normalization import UnbiasedStdNorm, make_norm
from .packing import UNPACKED, Packing, packing_of, source_places, target_places
from .pipeline_vanilla_transformer import (  # noqa: F401 - so that it is saved beside the weights
    Seq2SeqGenerationPipeline,
)
from .pooling import POOLINGS
from .positions import (
    AlibiPositions,
    HalfSinusoidalPositions,
    LearnedPositions,
    NoPositions,
    PositionEncoding,
    SinusoidalPositions,
    allowed_by,
    positions_from_causal_mask,
    positions_from_mask,
    rotary_positions,
)
from .sharing import push_card
from .tracing import can_be_read, is_traced

_OF_ONE_STACK = ("layers", "attention_heads", "num_key_value_heads", "ffn_dim", "layerdrop")


def shift_right(
    labels: torch.Tensor, pad_token_id: int, decoder_start_token_id: int
) -> torch.Tensor:
    """Turns the tokens to predict into the tokens that the decoder reads (Vaswani et al. §3.1).

    Args:
        labels: Of shape (batch, target_len), with -100 where there is nothing to predict; they are
            not changed.
        pad_token_id: Stands in for -100.
        decoder_start_token_id: The first token of every row.

    Returns:
        A tensor of shape (batch, target_len).
    """
    start = labels.new_full((labels.shape[0], 1), decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORE_INDEX, pad_token_id)


def check_ids(
    name: str, ids: torch.Tensor, vocab_size: int, ignore_index: int | None = None
) -> None:
    """Refuses ids that the embedding cannot hold, where looking costs no device synchronisation.

    Args:
        name: Name of the argument, for the message.
        ids: Of any shape.
        vocab_size: Ids must lie in [0, vocab_size).
        ignore_index: An id that is legal besides.

    Raises:
        ValueError: If there are no ids, or if ids on the CPU lie outside the vocabulary.
    """
    if ids.numel() == 0:
        raise _empty(name, ids)
    if not can_be_read(ids):
        return
    outside = (ids < 0) | (ids >= vocab_size)
    if ignore_index is not None:
        outside &= ids != ignore_index
    if outside.any():
        raise ValueError(
            f"`{name}` holds the id {int(ids[outside][0])}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}: use the tokenizer that the model was trained with, or resize the "
            "embeddings."
        )


def _rows(embedding: nn.Module) -> int:
    """The number of ids that an embedding holds; one that an adapter wraps tells no such number."""
    return getattr(embedding, "num_embeddings", None) or len(cast(torch.Tensor, embedding.weight))


def _empty(name: str, tensor: torch.Tensor) -> ValueError:
    shape = tuple(tensor.shape)
    return ValueError(f"`{name}` is empty (shape {shape}): give at least one token.")


class VanillaTransformerPreTrainedModel(PreTrainedModel):
    """What all models here share: initial values, and which weights are one and the same."""

    config: VanillaTransformerConfig
    config_class = VanillaTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _no_split_modules = [  # noqa: RUF012 - the base class's own form
        "EncoderLayer",
        "DecoderLayer",
        "CausalLayer",
    ]
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012 - the base class's own form

    padding_free = True

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config.check()
        super().__init__(config)

    def push_to_hub(self, repo_id: str, **kwargs: Any) -> Any:  # type: ignore[override]  # as below
        """Pushes weights, configs and code, and the card of the directory they were loaded from.

        Args:
            repo_id: Name of the repository; it is made if it does not exist.
            **kwargs: See `PreTrainedModel.push_to_hub`.

        Returns:
            What the Hub says of the commit of the weights.
        """
        push: Any = super().push_to_hub  # wrapped by the base class in a way that hides its types
        pushed = push(repo_id, **kwargs)
        options = {name: kwargs.get(name) for name in ("token", "revision")}
        push_card(str(self.name_or_path), pushed, **options)
        return pushed

    def set_padding_free(self, enabled: bool) -> None:
        """Turns training without padding on, as it is by default, or off.

        Results are the same. Off, `logits` of a training step are there at once, and a gradient of
        the gradient can be taken.

        Args:
            enabled: Whether a training step computes the real tokens alone.
        """
        for module in self.modules():
            if isinstance(module, VanillaTransformerPreTrainedModel):
                module.padding_free = enabled

    def may_pack(self, **kwargs: Any) -> bool:
        """Tells whether a call may leave padding out: in training, if no state is to be seen.

        Args:
            **kwargs: Those of the call.

        Returns:
            Whether it may.
        """
        asked = {name: kwargs.get(name) for name in _SHOWN}
        shown = any(getattr(self.config, k) if v is None else v for k, v in asked.items())
        replica = getattr(self, "_is_replica", False)  # of nn.DataParallel, which gathers outputs
        # NEFTune scales its noise by the length that it sees.
        noisy = hasattr(self.get_input_embeddings(), "neftune_noise_alpha")
        hindered = shown or replica or noisy or is_traced()
        return self.training and self.padding_free and not hindered

    def source_packing(self, attention_mask: Any, shape: tuple[int, ...], **kwargs: Any) -> Packing:
        """Finds the tokens of the source that a call computes.

        Args:
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            shape: (batch, source_len).
            **kwargs: Those of the call.

        Returns:
            The packing.
        """
        if not self.may_pack(**kwargs):
            return UNPACKED
        return packing_of(source_places(attention_mask, shape))

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, *args: Any, **kwargs: Any
    ) -> str:
        """Refuses what would leave the positions out without a word."""
        if self.config.position_embedding_type == "alibi" and "flash" in str(attn_implementation):
            raise ValueError(
                f"`attn_implementation` {attn_implementation!r} takes no bias on the scores, which "
                "`position_embedding_type='alibi'` needs: choose 'sdpa', 'flex_attention' or "
                "'eager'."
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Sets the initial value of every parameter; this is the only place that does.

        Projections are Xavier-uniform, stacked ones each by itself. Embeddings are normal with std
        d_model^-0.5, so that after the factor sqrt(d_model) of §3.4 they have the size of the
        position embeddings; learned positions have the std that sinusoids have, sqrt(1/2), or
        d_model^-0.5 where the embeddings are not scaled. Activations with parameters keep the
        values that they are made with.
        """
        std = self.config.d_model**-0.5
        if isinstance(module, nn.Linear):
            for matrix in _matrices(module):
                init.xavier_uniform_(matrix)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=std)
            if module.padding_idx is not None and not _is_loaded(module.weight):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, LearnedPositions):
            init.normal_(module.weight, std=0.5**0.5 if self.config.scale_embedding else std)
        elif isinstance(module, nn.LayerNorm | UnbiasedStdNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, nn.RMSNorm):
            init.ones_(module.weight)
        elif isinstance(module, LEARNED_ACTIVATIONS):
            for name, value in type(module)().state_dict().items():
                init.copy_(getattr(module, name), value)

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # is no constant here
        """Returns which parameter is another name of which, {target: source}, seen from here."""
        return {}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Returns {target: source} for all weights that are tied under the current config.

        The base class ties nothing when `tie_word_embeddings` is off; here source and target can
        share a matrix whether or not the output projection does.
        """
        if all_submodels:
            return cast(dict[str, str], super().get_expanded_tied_weights_keys(True))
        return self._tied_weights_keys

    def init_parallel_plans(self) -> None:
        """Gathers the plans for splitting the model over devices; called when it has been built.

        A rule is kept where it names something: the stacks, and the layouts of the embeddings,
        have different modules.
        """
        super().init_parallel_plans()
        named = itertools.chain(self.named_modules(), self.named_parameters())
        names = {re.sub(r"\.\d+(?=\.|$)", ".*", name) for name, _ in named}
        if self.config.fused_qkv or self.config.position_embedding_type == "alibi":
            # A device would need the rows, or the biases, of its own heads alone.
            names = {name for name in names if ".self_attn." not in name}
        self._tp_plan = {k: v for k, v in (self._tp_plan or {}).items() if k in names}
        self._fsdp_plan = {k: v for k, v in (self._fsdp_plan or {}).items() if k in names}

    def resize_decoder_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Resizes the target's vocabulary where it is separate: its embedding and the projection.

        `resize_token_embeddings` resizes the source's vocabulary there, and both where they share
        a matrix.

        Args:
            new_num_tokens: New number of rows.
            pad_to_multiple_of: Round that number up to a multiple of this.
            mean_resizing: Draw new rows around the mean of the old ones.

        Returns:
            The resized embedding.

        Raises:
            ValueError: If both vocabularies share a matrix, or if the model has one only.
        """
        if not self.config.is_encoder_decoder:
            raise ValueError(
                f"{type(self).__name__} has one vocabulary (`is_encoder_decoder` is False): call "
                "`resize_token_embeddings`."
            )
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError(
                "`share_encoder_decoder_embeddings` is True, so the target has no embedding of its "
                "own: call `resize_token_embeddings`, which resizes both."
            )
        untyped: Any = self  # the base class's methods have no types
        embedding: nn.Embedding = untyped.get_decoder()._resize_token_embeddings(
            new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        if (head := untyped.get_output_embeddings()) is not None:
            new_head = self._get_resized_lm_head(
                head, embedding.num_embeddings, mean_resizing=mean_resizing
            )
            untyped.set_output_embeddings(new_head.requires_grad_(head.weight.requires_grad))
        self.config.decoder_vocab_size = embedding.num_embeddings
        self.tie_weights()
        return embedding

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        """A small legal batch: two rows, the second with padding."""
        pad = self.config.pad_token_id or 0
        ids = torch.tensor([[3, 4, 5, 2], [3, 4, 2, pad]], device=self.device)
        ids = ids % min(self.config.vocab_size, cast(int, self.config.decoder_vocab_size))
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]], device=self.device)
        target = {"decoder_input_ids": ids} if self.config.is_encoder_decoder else {}
        return {"input_ids": ids, "attention_mask": mask, **target}


def _with_fields(config: VanillaTransformerConfig, **fields: Any) -> VanillaTransformerConfig:
    """Gives the config if it has these values already, otherwise a copy that has them."""
    if all(getattr(config, name) == value for name, value in fields.items()):
        return config
    config = deepcopy(config)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def _matrices(module: nn.Linear) -> tuple[torch.Tensor, ...]:
    """The matrices to initialise one by one; part of a matrix cannot tell that it was loaded."""
    if not isinstance(module, StackedLinear):
        return (module.weight,)
    return () if _is_loaded(module.weight) else module.weight.split(module.part_sizes)


def _is_loaded(parameter: torch.Tensor) -> bool:
    return getattr(parameter, "_is_hf_initialized", False)


_SHOWN = ("output_attentions", "output_hidden_states")
_INSTEAD_OF_IDS = {
    "decoder_input_ids": " Or give `labels`; where Trainer keeps these to itself "
    "(`label_smoothing_factor`), use `DataCollatorForSeq2Seq(tokenizer, model=model)`.",
}


def _shape(ids: torch.Tensor | None, embeds: torch.Tensor | None) -> tuple[int, ...]:
    """(batch, length) of ids, or of the embeddings that stand for them."""
    given = embeds if ids is None else ids
    return () if given is None else tuple(given.shape[:2])


class _Stack(VanillaTransformerPreTrainedModel):
    """What both stacks share: embeddings, positions, dropout, layers and the final norm."""

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
        self.embed_norm = _norm_if(config.normalize_embedding, config)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layers)
        self.layerdrop = layerdrop
        self.final_norm = _norm_if(bool(config.final_layer_norm), config)
        self.gradient_checkpointing = False
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    def embed(
        self,
        name: str,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        packing: Packing = UNPACKED,
    ) -> torch.Tensor:
        """Looks the tokens up, or takes the embeddings given, and scales them (§3.4).

        Args:
            name: What the caller names the ids, for messages.
            input_ids: Of shape (batch, length).
            inputs_embeds: Of shape (batch, length, d_model), not yet scaled.
            packing: Where the tokens to look up stand.

        Returns:
            A tensor of shape (batch, length, d_model), or packed.

        Raises:
            ValueError: If both or neither are given, or if the ids are outside the vocabulary.
        """
        embeds_name = name.replace("input_ids", "inputs_embeds")
        if (input_ids is None) == (inputs_embeds is None):
            hint = _INSTEAD_OF_IDS.get(name, "") if input_ids is None else ""
            raise ValueError(f"Give exactly one of `{name}` and `{embeds_name}`.{hint}")
        if inputs_embeds is None:
            input_ids = cast(torch.Tensor, input_ids)
            check_ids(name, input_ids, _rows(self.embed_tokens))
            inputs_embeds = self.embed_tokens(packing.pack(input_ids))
            return inputs_embeds * self.embed_scale
        if inputs_embeds.numel() == 0:
            raise _empty(embeds_name, inputs_embeds)
        return packing.pack(inputs_embeds) * self.embed_scale

    def add_positions(
        self, embeds: torch.Tensor, positions: PositionEncoding, packing: Packing = UNPACKED
    ) -> torch.Tensor:
        """Adds the position embeddings, normalises where asked for, drops out (§3.5, §5.4).

        Args:
            embeds: Scaled token embeddings, of shape (batch, length, d_model), or packed.
            positions: Of every place of the batch.
            packing: Where the tokens stand, if they are packed.

        Returns:
            The input of the first layer, shaped as the embeddings.
        """
        if positions.embedding is not None:
            positions = positions._replace(embedding=packing.pack(positions.embedding))
        return cast(torch.Tensor, self.dropout(self.embed_norm(positions.add_to(embeds))))

    def active_layers(self, past_key_values: Cache | None = None) -> list[nn.Module]:
        """Draws the layers of one call: in training each is left out by chance (Fan et al. 2020).

        Args:
            past_key_values: A call with a cache uses all layers, each of which has a row in it.

        Returns:
            Layers in their order; all of them outside of training.
        """
        layers = list(self.layers)
        if not self.training or not self.layerdrop or past_key_values is not None:
            return layers
        kept = torch.rand(len(layers), device="cpu") >= self.layerdrop
        return [layer for layer, keep in zip(layers, kept.tolist(), strict=True) if keep]


def _norm_if(wanted: bool, config: VanillaTransformerConfig) -> nn.Module:
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


def _position_ids(
    embeds: torch.Tensor,
    attention_mask: Any,
    past_len: int | torch.Tensor = 0,
    is_causal: bool = False,
) -> torch.Tensor:
    """Positions of the current tokens, of shape (batch or 1, length), counted over real tokens.

    `generate()` with a static cache gives the decoder no padding mask but the causal mask made of
    it: there, a token's position is the number of tokens before it that it may attend to.
    """
    length = embeds.shape[1]
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    if dims == 2:
        return positions_from_mask(attention_mask)[:, -length:].to(embeds.device)
    position_ids = torch.arange(length, device=embeds.device)[None] + past_len
    if dims == 4 and is_causal:
        return torch.minimum(positions_from_causal_mask(attention_mask), position_ids)
    return position_ids


def _key_position_ids(
    embeds: torch.Tensor, attention_mask: Any, cache: Cache | None
) -> torch.Tensor:
    """Positions of all keys of the decoder, of shape (batch or 1, length with the past).

    A static cache has room for keys to come: these get some position, and are masked.
    """
    length = embeds.shape[1]
    if cache is not None:
        length, _ = cache.get_mask_sizes(length, 0)
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    if dims == 4:
        return positions_from_mask(allowed_by(attention_mask)[:, 0, -1])
    if dims == 2:
        position_ids = positions_from_mask(attention_mask).to(embeds.device)
        return F.pad(position_ids, (0, length - position_ids.shape[1]))
    return torch.arange(length, device=embeds.device)[None]


class VanillaTransformerEncoder(_Stack):
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
            input_ids: Of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            inputs_embeds: Instead of ids, of shape (batch, source_len, d_model), not yet scaled.
            packing: Where the tokens to compute stand. None: found here.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `last_hidden_state` of shape (batch, source_len, d_model), and what was asked for.

        Raises:
            ValueError: On an empty batch, ids outside the vocabulary, both or neither of ids and
                embeddings, or a source too long for learned positions.
        """
        if packing is None:
            shape = _shape(input_ids, inputs_embeds)
            packing = self.source_packing(attention_mask, shape, **kwargs)
        embeds = self.embed("input_ids", input_ids, inputs_embeds, packing)
        batch = packing.outline(embeds)
        positions = self.embed_positions(_position_ids(batch, attention_mask), embeds.dtype)
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
        return BaseModelOutput(last_hidden_state=packing.unpack(self.final_norm(hidden_states)))


class _CausalStack(_Stack):
    """What both kinds of decoder share: how a call begins."""

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
        """Adds the positions and hides padding and the tokens to come.

        Args:
            embeds: Scaled token embeddings, of shape (batch, target_len, d_model),
                or packed.
            attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len with the
                past).
            cache: Keys and values of earlier tokens, for self-attention alone.
            mask_config: Names the attention implementation that the mask is for.
            packing: Where the tokens to compute stand.

        Returns:
            The input of the first layer, the causal mask, and the positions.
        """
        batch = packing.outline(embeds)
        past_len = 0 if cache is None else cache.get_seq_length()
        position_ids = _position_ids(batch, attention_mask, past_len, is_causal=True)
        key_position_ids = _key_position_ids(batch, attention_mask, cache)
        positions = self.embed_positions(position_ids, embeds.dtype, key_position_ids)
        causal_mask = create_causal_mask(
            config=mask_config,
            inputs_embeds=batch,
            attention_mask=attention_mask,
            past_key_values=cache,
        )
        return self.add_positions(embeds, positions, packing), causal_mask, positions


class VanillaTransformerDecoder(_CausalStack):
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decodes the target given the encoded source.

        Args:
            input_ids: The target's tokens that are not in the cache, of shape (batch, target_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len with the
                past).
            encoder_hidden_states: Of shape (batch, source_len, d_model).
            encoder_attention_mask: Of shape (batch, source_len).
            past_key_values: Keys and values of earlier tokens and of the source.
            inputs_embeds: Instead of ids, of shape (batch, target_len, d_model), not yet scaled.
            use_cache: Return the keys and values of this call too.
            packing: Where the tokens to compute stand.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `last_hidden_state` of shape (batch, target_len, d_model), `past_key_values`, and what
            was asked for.

        Raises:
            ValueError: As the encoder's forward.
        """
        embeds = self.embed("decoder_input_ids", input_ids, inputs_embeds, packing)
        batch = packing.outline(embeds)
        cache = _as_cache(past_key_values, bool(use_cache), self.config)
        self_cache = None if cache is None else cache.self_attention_cache
        mask_config = config_for_attention(self.config, bool(kwargs.get("output_attentions")))
        hidden_states, causal_mask, positions = self.begin(
            embeds, attention_mask, self_cache, mask_config, packing
        )
        source_mask = create_bidirectional_mask(
            config=mask_config,
            inputs_embeds=batch,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        if encoder_hidden_states is not None:
            encoder_hidden_states = packing.source.pack(encoder_hidden_states)
        for layer in self.active_layers(cache):
            hidden_states = layer(
                hidden_states,
                causal_mask,
                encoder_hidden_states,
                encoder_attention_mask=source_mask,
                past_key_values=cache,
                positions=positions,
                packing=packing,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=packing.unpack(self.final_norm(hidden_states)), past_key_values=cache
        )


class VanillaTransformerCausalDecoder(_CausalStack):
    """Token and position embeddings, then a stack of layers that see no source.

    Args:
        config: The model's config, of which the decoder's sizes count.
    """

    main_input_name = "input_ids"
    _can_record_outputs = {  # noqa: RUF012 - the base class's own form
        "hidden_states": CausalLayer,
        "attentions": SelfAttention,
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = _of_decoder_alone(config)
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

        Args:
            input_ids: The tokens that are not in the cache, of shape (batch, target_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len with the
                past).
            past_key_values: Keys and values of earlier tokens.
            inputs_embeds: Instead of ids, of shape (batch, target_len, d_model), not yet scaled.
            use_cache: Return the keys and values of this call too.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `last_hidden_state` of shape (batch, target_len, d_model), `past_key_values`, and what
            was asked for.

        Raises:
            ValueError: As the encoder's forward.
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


def _of_decoder_alone(config: VanillaTransformerConfig) -> VanillaTransformerConfig:
    """Gives the config of a model whose only stack is the decoder: all sizes are the decoder's.

    transformers sizes caches by `num_hidden_layers` and the like, other names of the encoder's.
    """
    sizes = {f"encoder_{name}": getattr(config, f"decoder_{name}") for name in _OF_ONE_STACK}
    vocab_size = config.decoder_vocab_size or config.vocab_size
    return _with_fields(config, is_encoder_decoder=False, vocab_size=vocab_size, **sizes)


def _as_cache(
    past_key_values: Cache | None, use_cache: bool, config: VanillaTransformerConfig
) -> EncoderDecoderCache | None:
    """Makes a cache where one is wanted, and completes a self-attention cache to a pair."""
    if isinstance(past_key_values, EncoderDecoderCache):
        return past_key_values
    if past_key_values is None and not use_cache:
        return None
    if past_key_values is None:  # an empty cache is falsy
        past_key_values = DynamicCache(config=config)
    return EncoderDecoderCache(past_key_values, DynamicCache(config=config))


class VanillaTransformerModel(VanillaTransformerPreTrainedModel):
    """The encoder-decoder without an output projection.

    Args:
        config: The model's config.
    """

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = _with_fields(config, is_encoder_decoder=True)
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.encoder = VanillaTransformerEncoder(config)
        self.decoder = VanillaTransformerDecoder(config)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # is no constant here
        if not self.config.share_encoder_decoder_embeddings:
            return {}
        return {
            "encoder.embed_tokens.weight": "shared.weight",
            "decoder.embed_tokens.weight": "shared.weight",
        }

    def get_input_embeddings(self) -> nn.Module:
        """Returns the source's embedding: the shared one where it is shared."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the source's embedding; a shared one in all its places."""
        embedding = cast(nn.Embedding, value)
        self.encoder.embed_tokens = embedding
        if self.config.share_encoder_decoder_embeddings:
            self.shared = embedding
            self.decoder.embed_tokens = embedding

    def get_decoder_input_embeddings(self) -> nn.Module:
        """Returns the target's embedding: the shared one where it is shared."""
        return self.decoder.embed_tokens

    def set_decoder_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the target's embedding; a shared one in all its places."""
        if self.config.share_encoder_decoder_embeddings:
            self.set_input_embeddings(value)
        else:
            self.decoder.embed_tokens = cast(nn.Embedding, value)

    def find_packing(
        self,
        attention_mask: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        **inputs: Any,
    ) -> Packing:
        """Finds the tokens that a call computes, in source and target: all unless it trains.

        Args:
            attention_mask: As in the call.
            decoder_attention_mask: As in the call.
            labels: Of shape (batch, target_len), -100 where there is nothing to predict.
            past_key_values: As in the call; a cache holds every place.
            use_cache: As in the call.
            **inputs: The other arguments of the call.

        Returns:
            The packing of the target, which holds that of the source.
        """
        caches = self.config.use_cache if use_cache is None else use_cache
        if past_key_values is not None or caches or not self.may_pack(**inputs):
            return UNPACKED
        encoded = inputs.get("encoder_outputs")
        embeds = inputs.get("inputs_embeds") if encoded is None else encoded[0]
        shape = _shape(inputs.get("input_ids") if encoded is None else None, embeds)
        source = packing_of(source_places(attention_mask, shape))
        shape = _shape(inputs.get("decoder_input_ids"), inputs.get("decoder_inputs_embeds"))
        return packing_of(target_places(labels, decoder_attention_mask, shape), source)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Encodes the source and decodes the target.

        Args:
            input_ids: The source, of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            decoder_input_ids: The target, starting with `decoder_start_token_id`, of shape
                (batch, target_len).
            decoder_attention_mask: Of shape (batch, target_len with the past).
            encoder_outputs: The encoder's output of an earlier call, instead of the source.
            past_key_values: Keys and values of earlier target tokens and of the source.
            inputs_embeds: Instead of `input_ids`, of shape (batch, source_len, d_model).
            decoder_inputs_embeds: Instead of `decoder_input_ids`, of shape (batch, target_len,
                d_model).
            use_cache: Return the keys and values of this call too.
            packing: Where the tokens to compute stand. None: found here, from the masks.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `last_hidden_state` of shape (batch, target_len, d_model), `past_key_values`, the
            encoder's output, and what was asked for.

        Raises:
            ValueError: On an empty batch, ids outside the vocabulary, both or neither of ids and
                embeddings, or a sequence too long for learned positions.
        """
        if packing is None:
            packing = self.find_packing(
                input_ids=input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                decoder_attention_mask=decoder_attention_mask,
                encoder_outputs=encoder_outputs,
                past_key_values=past_key_values,
                inputs_embeds=inputs_embeds,
                decoder_inputs_embeds=decoder_inputs_embeds,
                use_cache=use_cache,
                **kwargs,
            )
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                packing=packing.source,
                return_dict=True,
                **kwargs,
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            names = ("last_hidden_state", "hidden_states", "attentions")
            given: dict[str, Any] = dict(zip(names, encoder_outputs, strict=False))
            encoder_outputs = BaseModelOutput(**given)

        encoded = cast(BaseModelOutput, encoder_outputs)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            packing=packing,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


class VanillaTransformerForConditionalGeneration(
    VanillaTransformerPreTrainedModel, GenerationMixin
):
    """The encoder-decoder with a projection to the target's vocabulary: translation and the like.

    Args:
        config: The model's config.
    """

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012 - the base class's own form

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = _with_fields(config, is_encoder_decoder=True)
        super().__init__(config)
        self.model = VanillaTransformerModel(config)
        self.lm_head = nn.Linear(
            config.d_model, cast(int, config.decoder_vocab_size), bias=config.lm_head_bias
        )
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # is no constant here
        shared = self.config.share_encoder_decoder_embeddings
        tied = {f"model.{k}": f"model.{v}" for k, v in self.model._tied_weights_keys.items()}
        if self.config.tie_word_embeddings:
            source = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
            tied["lm_head.weight"] = source
        return tied

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shifts labels right; `DataCollatorForSeq2Seq` calls this.

        Args:
            labels: Of shape (batch, target_len).

        Returns:
            The decoder's input, of shape (batch, target_len).
        """
        pad, start = self.config.pad_token_id, self.config.decoder_start_token_id
        if pad is None or start is None:
            raise ValueError(
                "`pad_token_id` and `decoder_start_token_id` are needed to make the decoder's "
                f"input from labels, got {pad} and {start}: set them in the config."
            )
        return shift_right(labels, pad, start)

    def _resize_token_embeddings(
        self,
        new_num_tokens: int | None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Module:
        """Leaves the output projection alone where the source has a vocabulary of its own."""
        shared = self.config.share_encoder_decoder_embeddings
        resize: Callable[..., nn.Module] = (
            super()._resize_token_embeddings if shared else self.model._resize_token_embeddings
        )
        return resize(new_num_tokens, pad_to_multiple_of, mean_resizing)

    @can_return_tuple
    def forward(  # type: ignore[misc]  # `num_items_in_batch` is named to be documented
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Predicts the target's next tokens, and the loss where labels are given.

        Args:
            input_ids: The source, of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            decoder_input_ids: The target, starting with `decoder_start_token_id`, of shape
                (batch, target_len). None with labels: the labels, shifted right.
            decoder_attention_mask: Of shape (batch, target_len with the past).
            encoder_outputs: The encoder's output of an earlier call, instead of the source.
            past_key_values: Keys and values of earlier target tokens and of the source.
            inputs_embeds: Instead of `input_ids`, of shape (batch, source_len, d_model).
            decoder_inputs_embeds: Instead of `decoder_input_ids`, of shape (batch, target_len,
                d_model).
            labels: Tokens to predict, of shape (batch, target_len), -100 where there is none; not
                shifted, and not changed here.
            use_cache: Return the keys and values of this call too. Off by default with labels.
            num_items_in_batch: Number of tokens to predict over all steps of gradient accumulation,
                which the loss is divided by; Trainer passes it. None: those in `labels`.
            logits_to_keep: Without labels: project the last so many positions only, or those of the
                given indices, of shape (kept,); 0: all.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `loss` in nats per token (with `config.label_smoothing`), `logits` of shape (batch,
            target_len or kept, vocab), `past_key_values`, the encoder's output, and what was asked
            for. In training the loss needs no padding and not all the logits: these are made when
            they are read, and states at padding are zeros.

        Raises:
            ValueError: As the bare model, and for labels outside the vocabulary.
        """
        if labels is not None:
            check_ids("labels", labels, self.lm_head.out_features, ignore_index=IGNORE_INDEX)
            use_cache, logits_to_keep = bool(use_cache), 0
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)

        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "past_key_values": past_key_values,
            "inputs_embeds": inputs_embeds,
            "decoder_inputs_embeds": decoder_inputs_embeds,
            "use_cache": use_cache,
            **kwargs,
        }
        packing = self.model.find_packing(labels=labels, **inputs)
        outputs = self.model(**inputs, packing=packing, return_dict=True)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        loss, logits = self._loss_and_logits(
            outputs.last_hidden_state[:, kept], labels, packing, num_items_in_batch, **kwargs
        )
        output_class: Any = (
            TrainingOutput if isinstance(logits, LogitsOnDemand) else Seq2SeqLMOutput
        )
        output: Seq2SeqLMOutput = output_class(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )
        return output

    def _loss_and_logits(
        self,
        hidden_states: torch.Tensor,
        labels: torch.Tensor | None,
        packing: Packing,
        num_items_in_batch: torch.Tensor | int | None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor | None, torch.Tensor | LogitsOnDemand]:
        if labels is None or not self.may_pack(**kwargs):
            logits = self.lm_head(hidden_states)
            if labels is None:
                return None, logits
            smoothing = self.config.label_smoothing
            return token_loss(logits, labels, smoothing, num_items_in_batch), logits
        loss = projected_token_loss(
            packing.pack(hidden_states),
            self.lm_head,
            packing.pack(labels),
            self.config.label_smoothing,
            num_items_in_batch,
        )
        return loss, LogitsOnDemand(self.lm_head, hidden_states)


class _OneStackModel(VanillaTransformerPreTrainedModel):
    """What the bare models of one stack share: embeddings under the names of the whole model."""

    stack_name: str

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # is no constant here
        if not self.config.share_encoder_decoder_embeddings:
            return {}
        return {f"{self.stack_name}.embed_tokens.weight": "shared.weight"}

    def get_input_embeddings(self) -> nn.Module:
        """Returns the embedding of the stack."""
        return cast(_Stack, getattr(self, self.stack_name)).embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the embedding, under both names where the config calls it shared."""
        embedding = cast(nn.Embedding, value)
        cast(_Stack, getattr(self, self.stack_name)).embed_tokens = embedding
        if self.config.share_encoder_decoder_embeddings:
            self.shared = embedding


class VanillaTransformerEncoderModel(_OneStackModel):
    """The encoder alone; `from_pretrained` lifts it out of a whole model's directory.

    Args:
        config: The model's config. The model keeps a copy with `is_encoder_decoder=False`.
    """

    stack_name = "encoder"
    _keys_to_ignore_on_load_unexpected = [  # noqa: RUF012 - the base class's own form
        r"^(model\.)?decoder\.",
        r"^lm_head\.",
    ]

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = _with_fields(config, is_encoder_decoder=False)
        super().__init__(config)
        self.encoder = VanillaTransformerEncoder(config)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encodes sequences.

        Args:
            input_ids: Of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            inputs_embeds: Instead of ids, of shape (batch, source_len, d_model), not yet scaled.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `last_hidden_state` of shape (batch, source_len, d_model), and what was asked for.

        Raises:
            ValueError: On an empty batch, ids outside the vocabulary, both or neither of ids and
                embeddings, or a sequence too long for learned positions.
        """
        output: BaseModelOutput = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        return output


class _Classifier(VanillaTransformerPreTrainedModel):
    """What both classifiers share: the encoder, dropout, and a linear map to the labels."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = _with_fields(config, is_encoder_decoder=False)
        super().__init__(config)
        self.num_labels = cast(int, config.num_labels)
        self.model = VanillaTransformerEncoderModel(config)
        own = config.classifier_dropout
        self.dropout = Dropout(config.dropout if own is None else own)
        self.classifier = nn.Linear(config.d_model, self.num_labels)


class VanillaTransformerForSequenceClassification(_Classifier):
    """The encoder with a label, several labels or numbers for each sequence.

    One linear map on the vector that `config.classifier_pooling` chooses. `from_pretrained` takes
    the encoder out of a whole model's directory; the map alone is new then.

    Args:
        config: The model's config, of which `num_labels` (or `id2label`) counts the outputs, and
            `problem_type` names the loss; None: told by the first labels, and kept.
    """

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        self.pooling = POOLINGS[config.classifier_pooling]()
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @can_return_tuple
    def forward(  # type: ignore[misc]  # `num_items_in_batch` is named to be documented
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Classifies sequences, and computes the loss where labels are given.

        Args:
            input_ids: Of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            inputs_embeds: Instead of ids, of shape (batch, source_len, d_model), not yet scaled.
            labels: A class each, of shape (batch,), -100 where there is none; for
                "multi_label_classification" 0 or 1, for "regression" numbers, of shape (batch,
                labels).
            num_items_in_batch: Number of labels over all steps of gradient accumulation, which the
                loss is divided by; Trainer passes it. None: those in `labels`.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `loss` (cross-entropy with `config.label_smoothing`, binary cross-entropy, or squared
            error), `logits` of shape (batch, labels), and what was asked for.

        Raises:
            ValueError: As the encoder, and for labels that do not fit.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, return_dict=True, **kwargs)
        pooled = self.pooling(outputs.last_hidden_state, attention_mask)
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self._loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None,
    ) -> torch.Tensor:
        if self.config.problem_type is None:
            self.config.problem_type = problem_type_of(labels, self.num_labels)
        kind = self.config.problem_type
        check_labels(labels, logits, kind)
        return sequence_loss(logits, labels, kind, self.config.label_smoothing, num_items_in_batch)


class VanillaTransformerForTokenClassification(_Classifier):
    """The encoder with a label for each token: tagging, named entities.

    `from_pretrained` takes the encoder out of a whole model's directory; the map to the labels
    alone is new then.

    Args:
        config: The model's config, of which `num_labels` (or `id2label`) counts the labels.
    """

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @can_return_tuple
    def forward(  # type: ignore[misc]  # `num_items_in_batch` is named to be documented
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        """Classifies tokens, and computes the loss where labels are given.

        Args:
            input_ids: Of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
            inputs_embeds: Instead of ids, of shape (batch, source_len, d_model), not yet scaled.
            labels: A class each, of shape (batch, source_len), -100 where there is none.
            num_items_in_batch: Number of labelled tokens over all steps of gradient accumulation,
                which the loss is divided by; Trainer passes it. None: those in `labels`.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `loss` in nats per labelled token (with `config.label_smoothing`), `logits` of shape
            (batch, source_len, labels), and what was asked for.

        Raises:
            ValueError: As the encoder, and for labels that do not fit.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            check_labels(labels, logits, "single_label_classification")
            loss = token_loss(logits, labels, self.config.label_smoothing, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class _DecoderAloneModel(_OneStackModel):
    """The stack of a language model, under the names that it has in the whole model."""

    stack_name = "decoder"
    _keys_to_ignore_on_load_unexpected = [  # noqa: RUF012 - the base class's own form
        r"^(model\.)?encoder\.",
    ]

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        self.decoder = VanillaTransformerCausalDecoder(config)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    def forward(self, *args: Any, **kwargs: Any) -> BaseModelOutputWithPast:
        """Runs the stack, whose forward it is."""
        output: BaseModelOutputWithPast = self.decoder(*args, **kwargs)
        return output


class VanillaTransformerForCausalLM(VanillaTransformerPreTrainedModel, GenerationMixin):
    """The decoder without an encoder and without cross-attention: a language model.

    Args:
        config: The model's config, of which the decoder's sizes count. The model keeps a copy with
            `is_encoder_decoder=False`, in which the encoder's sizes are the decoder's.
    """

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012 - the base class's own form

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = _of_decoder_alone(config)
        super().__init__(config)
        self.model = _DecoderAloneModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # is no constant here
        shared = self.config.share_encoder_decoder_embeddings
        tied = {f"model.{k}": f"model.{v}" for k, v in self.model._tied_weights_keys.items()}
        if self.config.tie_word_embeddings:
            source = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
            tied["lm_head.weight"] = source
        return tied

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Resizes the vocabulary: the embedding and the projection.

        Args:
            new_num_tokens: New number of rows.
            pad_to_multiple_of: Round that number up to a multiple of this.
            mean_resizing: Draw new rows around the mean of the old ones.

        Returns:
            The resized embedding.
        """
        embedding = super().resize_token_embeddings(
            new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        self.config.decoder_vocab_size = self.config.vocab_size
        return embedding

    @can_return_tuple
    def forward(  # type: ignore[misc]  # `num_items_in_batch` is named to be documented
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        shift_labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """Predicts the next tokens, and computes the loss where labels are given.

        Args:
            input_ids: The tokens that are not in the cache, of shape (batch, target_len).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len with the
                past).
            past_key_values: Keys and values of earlier tokens.
            inputs_embeds: Instead of ids, of shape (batch, target_len, d_model), not yet scaled.
            labels: The tokens themselves, of shape (batch, target_len), -100 where there is nothing
                to predict; the loss shifts them. They are not changed here.
            shift_labels: With labels: what the loss takes in place of the shifted labels, of the
                same shape; collators that pack or split rows make them.
            use_cache: Return the keys and values of this call too. Off by default with labels.
            logits_to_keep: Without labels: project the last so many positions only, or those of
                these indices; 0: all.
            num_items_in_batch: Number of tokens to predict over all steps of gradient accumulation,
                which the loss is divided by; Trainer passes it. None: those in `labels`.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `loss` in nats per token (with `config.label_smoothing`), `logits` of shape (batch,
            target_len, vocab), `past_key_values`, and what was asked for.

        Raises:
            ValueError: As the encoder's forward, and for labels outside the vocabulary.
        """
        if labels is not None:
            check_ids("labels", labels, self.lm_head.out_features, ignore_index=IGNORE_INDEX)
            use_cache, logits_to_keep = bool(use_cache), 0
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        last = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, last])
        loss = None
        if labels is not None:
            loss = next_token_loss(
                logits, labels, self.config.label_smoothing, num_items_in_batch, shift_labels
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


# By this table of names, Trainer's `label_smoothing_factor` knows whose labels it must shift; it
# would teach any other class to copy. Set here, it holds for code from a saved directory too.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.setdefault(
    VanillaTransformerConfig.model_type, VanillaTransformerForCausalLM.__name__
)
