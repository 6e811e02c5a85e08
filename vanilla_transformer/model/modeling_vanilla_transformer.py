"""The public models: the encoder-decoder, its parts, and the models with a head for a task.

Every forward raises a ValueError if a batch is empty, ids or labels lie outside the vocabulary,
both or neither of ids and embeddings are given, a sequence is too long for learned positions, or a
mask has the wrong shape.
"""

from collections.abc import Callable
from typing import Any, Unpack, cast

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutput,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils.generic import TransformersKwargs, can_return_tuple

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .dropout import Dropout
from .generation import VanillaTransformerGeneration
from .inputs import (
    IGNORE_INDEX,
    accepts_both_cache_names,
    check_token_ids,
    hide_leading_padding,
    padding_and_start,
    problem_type_of,
    shift_right,
    tokens_of,
)
from .losses import (
    is_computed_in_chunks,
    leaves_out_logits,
    projected_token_loss,
    sequence_loss,
    token_loss,
)
from .modes import is_tracing
from .pipeline_vanilla_transformer import (  # noqa: F401 - so that it is saved beside the weights
    Seq2SeqGenerationPipeline,
)
from .pretrained_model import VanillaTransformerPreTrainedModel, config_with
from .stacks import TransformerStack, VanillaTransformerDecoder, VanillaTransformerEncoder
from .token_layout import PADDED, SequencesLayout, StepPlan, is_packed


class EmbeddingModel(VanillaTransformerPreTrainedModel):
    """Base class of the models without a head: what the embeddings of their stacks share."""

    stack_names: tuple[str, ...] = ("encoder", "decoder")

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # not a constant here
        if not self.config.share_encoder_decoder_embeddings:
            return {}
        return {f"{name}.embed_tokens.weight": "shared.weight" for name in self.stack_names}

    def get_input_embeddings(self) -> nn.Module:
        """Returns the embedding of the first stack, which may be the shared one."""
        return cast(TransformerStack, getattr(self, self.stack_names[0])).embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the embedding of the first stack, under all of its names if it is shared."""
        embedding, names = cast(nn.Embedding, value), self.stack_names[:1]
        if self.config.share_encoder_decoder_embeddings:
            self.shared, names = embedding, self.stack_names
        for name in names:
            cast(TransformerStack, getattr(self, name)).embed_tokens = embedding


class VanillaTransformerModel(EmbeddingModel):
    """The encoder-decoder without an output projection."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = config_with(config, is_encoder_decoder=True)
        super().__init__(config)
        self.encoder = VanillaTransformerEncoder(config)
        self.decoder = VanillaTransformerDecoder(config)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types

    @accepts_both_cache_names
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
        plan: StepPlan | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Encodes the source and decodes the target.

        Args:
            plan: What to compute, decided by the caller, who gets states in the plan's layouts.
                None: decided here, and the states are padded.
            **kwargs: These, and the other arguments, are those of
                `VanillaTransformerForConditionalGeneration`, without labels.

        Returns:
            `last_hidden_state` of shape (batch, target_len, d_model), `cache`, the encoder's
            output, and what was asked for.
        """
        is_outermost = plan is None
        if plan is None:
            if use_cache is None:
                use_cache = self.config.use_cache and not is_packed(kwargs)
            source_inputs = encoder_outputs, input_ids, inputs_embeds
            plan = self.plan_step(
                (source_inputs, (decoder_input_ids, decoder_inputs_embeds)),
                (attention_mask, decoder_attention_mask),
                None,
                use_cache or past_key_values is not None,
                cast("dict[str, Any]", kwargs),
            )
        encoded: Any  # with `last_hidden_state` of shape (batch, source_len, d_model)
        if encoder_outputs is None:
            encoded = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                layout=plan.source,
                return_dict=True,
                **kwargs,
            )
        else:
            is_output = isinstance(encoder_outputs, BaseModelOutput)
            given: Any = encoder_outputs if is_output else BaseModelOutput(*encoder_outputs)
            states = plan.source.to_tokens(given.last_hidden_state)
            encoded = BaseModelOutput(**{**given, "last_hidden_state": states})
        decoded = self.decoder(  # with `last_hidden_state` of shape (batch, target_len, d_model)
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            layout=plan.target,
            encoder_layout=plan.source,
            return_dict=True,
            **kwargs,
        )
        # A caller that made the plan wants the states as they are: it computes on tokens alone.
        source, target = (plan.source, plan.target) if is_outermost else (PADDED, PADDED)
        return Seq2SeqModelOutput(
            last_hidden_state=cast(Any, target.to_batch(decoded.last_hidden_state)),
            cache=decoded.cache,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=cast(Any, source.to_batch(encoded.last_hidden_state)),
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


class VanillaTransformerForConditionalGeneration(
    VanillaTransformerPreTrainedModel, VanillaTransformerGeneration, GenerationMixin
):
    """The encoder-decoder with an output projection, for text-to-text tasks such as translation."""

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012 - the base class's own form
    token_loss = staticmethod(token_loss)  # a training may compile it

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = config_with(config, is_encoder_decoder=True)
        super().__init__(config)
        self.model = VanillaTransformerModel(config)
        self.model.is_submodule = True
        vocab_size = cast(int, config.decoder_vocab_size)
        self.lm_head = nn.Linear(config.d_model, vocab_size, bias=config.lm_head_bias)
        self.post_init()  # type: ignore[no-untyped-call]  # it has no types
        self.name_longest_output()

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # not a constant here
        tied = {f"model.{k}": f"model.{v}" for k, v in self.model._tied_weights_keys.items()}
        if self.config.tie_word_embeddings:
            is_shared = self.config.share_encoder_decoder_embeddings
            source = "shared" if is_shared else "decoder.embed_tokens"
            tied["lm_head.weight"] = f"model.{source}.weight"
        return tied

    def prepare_decoder_input_ids_from_labels(
        self, labels: torch.Tensor, bounds: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Shifts labels right, as `shift_right` does; `DataCollatorForSeq2Seq` calls this."""
        return shift_right(labels, *padding_and_start(self.config), bounds)

    def _resize_token_embeddings(self, *sizes: Any, **options: Any) -> nn.Module:
        """Does not resize the output projection if the source has its own vocabulary."""
        shared = self.config.share_encoder_decoder_embeddings
        resize: Any = super() if shared else self.model
        return cast(nn.Module, resize._resize_token_embeddings(*sizes, **options))

    @accepts_both_cache_names
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
        """Predicts the target's next tokens, and computes the loss if labels are given.

        A packed batch has concatenated ids and labels of shape (1, tokens), and four arguments
        under the names of `DataCollatorWithFlattening`: `cu_seq_lens_k` and
        `cu_seq_lens_q` tell where each source, and each target, begins, and where the last one
        ends, of shape (sequences + 1,); no source has more than `max_length_k` tokens, no target
        more than `max_length_q`. Masks are not read then, and all results are packed.

        Args:
            input_ids: Tokens of the source, (batch, source_len).
            attention_mask: 1 for a token, 0 for padding, (batch, source_len). Or a mask of four
                dimensions; see `inputs`.
            decoder_input_ids: Tokens of the target, starting with `decoder_start_token_id`,
                (batch, target_len); with a cache, those that are not in it. None with labels: the
                labels, shifted right.
            decoder_attention_mask: As `attention_mask`, of the target, with the cached tokens.
            encoder_outputs: The encoder's output of an earlier call, instead of a source.
            past_key_values: Keys and values of earlier target tokens, and of the source.
            inputs_embeds, decoder_inputs_embeds: Embeddings instead of ids, not yet scaled, (batch,
                source_len or target_len, d_model).
            labels: Tokens to predict, not shifted, (batch, target_len); -100: nothing to predict.
            use_cache: Whether to return keys and values. None: as the config says, but not with
                labels.
            num_items_in_batch: Number of labels over all steps of gradient accumulation, by which
                the loss is divided; Trainer passes it. None: the labels of this call.
            logits_to_keep: Without labels: compute the logits of this many last positions, or of
                the positions with the given indices, of shape (kept,); 0: all.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and arguments of
                the attention implementation.

        Returns:
            `loss` in nats per token (with `config.label_smoothing`), `logits` of shape (batch,
            target_len or kept, vocab), `cache`, the encoder's output, and what was asked for. In a
            training step padding is not computed: states at padding are zeros, and where there are
            many tokens and a large vocabulary the logits are None (see `set_padding_free`).
        """
        bounds = kwargs.get("cu_seq_lens_q")  # of packed targets
        if labels is not None:
            classes = cast(int, self.config.decoder_vocab_size)  # an adapter has no `out_features`
            check_token_ids("labels", labels, classes, ignore_index=IGNORE_INDEX)
            use_cache = bool(use_cache)
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels, bounds)
            # Each of these already says what is padding.
            knows_padding = decoder_attention_mask is not None or bounds is not None
            if decoder_input_ids is not None and not knows_padding and not is_tracing():
                decoder_attention_mask = hide_leading_padding(
                    labels, decoder_input_ids, self.config.decoder_start_token_id
                )
        elif use_cache is None:
            use_cache = self.config.use_cache and not is_packed(kwargs)
        source_inputs = encoder_outputs, input_ids, inputs_embeds
        plan = self.plan_step(
            (source_inputs, (decoder_input_ids, decoder_inputs_embeds)),
            (attention_mask, decoder_attention_mask),
            labels,
            use_cache or past_key_values is not None,
            kwargs,
        )
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            plan=plan,
            return_dict=True,
            **kwargs,
        )
        parts: dict[str, Any] = dict(outputs)
        states = parts.pop("last_hidden_state")
        if self.config.logit_scale != 1:
            states = states * self.config.logit_scale  # T5 scales before the projection
        if labels is None:
            kept: Any = logits_to_keep  # indices of positions, or the number of the last ones
            kept = slice(-kept, None) if isinstance(kept, int) else kept  # 0: all
            states = plan.target.to_batch(states)[:, kept]  # (batch, kept, d_model)
            loss, logits = None, self.lm_head(states)
        else:
            loss, logits = self._loss_and_logits(states, labels, plan, num_items_in_batch)
        encoded = plan.source.to_batch(parts.pop("encoder_last_hidden_state"))
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=encoded, **parts)

    def _loss_and_logits(
        self,
        states: torch.Tensor,
        labels: torch.Tensor,
        plan: StepPlan,
        num_items_in_batch: torch.Tensor | int | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Computes the loss from states in the plan's layout; the logits are padded, or None."""
        labels, smoothing = plan.target.to_tokens(labels), self.config.label_smoothing
        leaves_out = plan.may_leave_out_logits and leaves_out_logits(states, self.lm_head)
        if leaves_out and is_computed_in_chunks(states, self.lm_head):
            loss = projected_token_loss(states, self.lm_head, labels, smoothing, num_items_in_batch)
            return loss, None
        logits = self.lm_head(states)
        loss = self.token_loss(logits, labels, smoothing, num_items_in_batch)
        return loss, None if leaves_out else plan.target.to_batch(logits)


class VanillaTransformerEncoderModel(EmbeddingModel):
    """The encoder without a decoder; `from_pretrained` also finds it in a whole model's directory.

    The model keeps a copy of its config with `is_encoder_decoder=False`.
    """

    stack_names = ("encoder",)
    _keys_to_ignore_on_load_unexpected = [  # noqa: RUF012 - the base class's own form
        r"^(model\.)?decoder\.",
        r"^lm_head\.",
    ]

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = config_with(config, is_encoder_decoder=False)
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
        """Encodes sequences; the arguments are those of the encoder in a whole model.

        Returns:
            `last_hidden_state` of shape (batch, source_len, d_model), and what was asked for.
        """
        output: BaseModelOutput = self.encoder(
            input_ids, attention_mask, inputs_embeds, return_dict=True, **kwargs
        )
        return output


# Classifiers --------------------------------------------------------------------------------------


def mean_of_tokens(hidden_states: torch.Tensor, is_token: torch.Tensor) -> torch.Tensor:
    """(batch, length, d_model) -> (batch, d_model): the mean, computed in float32."""
    is_token = is_token[..., None]
    total = hidden_states.float().masked_fill(~is_token, 0.0).sum(dim=1)
    return (total / is_token.sum(dim=1).clamp(min=1)).to(hidden_states.dtype)


def first_token(hidden_states: torch.Tensor, is_token: torch.Tensor) -> torch.Tensor:
    """(batch, length, d_model) -> (batch, d_model): the first real token (Devlin et al. 2019)."""
    rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)
    return hidden_states[rows, is_token.int().argmax(dim=1)]


POOLINGS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean": mean_of_tokens,
    "first": first_token,
}
"""How to make one vector of a sequence, by `classifier_pooling`; `is_token` is False at padding."""


class VanillaTransformerForSequenceClassification(VanillaTransformerPreTrainedModel):
    """The encoder with a class, several labels or numbers for each sequence.

    The head is dropout and one linear map of the vector that `config.classifier_pooling` chooses.
    `from_pretrained` also loads the encoder of a whole model's directory; then only the map is new.
    In the config, `num_labels` (or `id2label`) sets the number of outputs, `problem_type` the loss.
    If `problem_type` is None, the first labels set it.
    """

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config = config_with(config, is_encoder_decoder=False)
        super().__init__(config)
        self.num_labels = cast(int, config.num_labels)
        self.model = VanillaTransformerEncoderModel(config)
        self.pool = POOLINGS[config.classifier_pooling]
        rate = config.classifier_dropout
        self.dropout = Dropout(config.dropout if rate is None else rate)
        self.classifier = nn.Linear(config.d_model, self.num_labels)
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
        """Classifies, and computes the loss if labels are given.

        A packed batch has an answer, and a label, for each sequence.

        Args:
            labels: A class for each sequence, (batch,); -100: none. For
                "multi_label_classification" 0 or 1, and for "regression" numbers, (batch, labels).
            **kwargs: These, and the other arguments, are those of
                `VanillaTransformerForConditionalGeneration`.

        Returns:
            `loss`, which is the cross-entropy with `config.label_smoothing`, the binary
            cross-entropy, or the squared error; `logits` of shape (batch, labels); and what was
            asked for.
        """
        bounds: Any = (kwargs.get("cu_seq_lens_q"), kwargs.get("max_length_q"))
        outputs = self.model(input_ids, attention_mask, inputs_embeds, return_dict=True, **kwargs)
        states = outputs.last_hidden_state  # (batch, source_len, d_model)
        is_token = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        if bounds[0] is not None:
            layout = SequencesLayout(bounds[0], int(bounds[1]))
            states, is_token = layout.pad_heads(states[:, None])[:, 0], layout.is_token
        elif isinstance(attention_mask, torch.Tensor):
            is_token &= tokens_of(attention_mask).to(states.device)
        pooled = self.pool(states, is_token)  # (batch, d_model)
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            if self.config.problem_type is None:
                self.config.problem_type = cast(Any, problem_type_of(labels, self.num_labels))
            kind, smoothing = cast(str, self.config.problem_type), self.config.label_smoothing
            loss = sequence_loss(logits, labels, kind, smoothing, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=cast(Any, loss),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
