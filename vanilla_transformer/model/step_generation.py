"""Makes `generate()` fast where it makes the cache itself: see `decoding_step`.

Greedy search, sampling and beam search take this way on a CPU. All else, such as a cache that the
caller passes, goes through the model's forward at every step.
"""

from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation.utils import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import CausalLMOutputWithPast, Seq2SeqLMOutput

from .attention import AttentionCore, CrossAttention, FusedSelfAttention, SelfAttention
from .decoding_cache import DecodingCache
from .decoding_step import ATTENTION_STEPS, DecodingStep
from .dropout import Dropout
from .layers import CausalLayer, DecoderLayer
from .position_ids import positions_from_mask
from .pretrained_model import VanillaTransformerPreTrainedModel
from .stacks import VanillaTransformerCausalDecoder, VanillaTransformerDecoder
from .tracing import is_tracing

_KNOWN_ARGUMENTS = {
    "attention_mask",
    "decoder_attention_mask",
    "encoder_outputs",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "use_cache",
    # Of the loops themselves.
    "generation_config",
    "logits_processor",
    "stopping_criteria",
    "streamer",
    "synced_gpus",
}
_DRAWING = (Dropout, AttentionCore, VanillaTransformerPreTrainedModel)  # in training mode
_COPIES = "copies_of_source"
_RECORDER = "transformers.utils.output_capturing"  # its hooks do nothing unless they are asked

Forward = TypeVar("Forward", bound=Callable[..., Any])


def or_one_step(forward: Forward) -> Forward:
    """Decorates a model's forward: a call with a `DecodingStep` for a cache takes that step."""

    @wraps(forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        step = kwargs.get("past_key_values")
        if not isinstance(step, DecodingStep):
            return forward(self, *args, **kwargs)
        ids, mask = (kwargs[name] for name in step.input_names)
        make: Any = Seq2SeqLMOutput if step.has_source else CausalLMOutputWithPast
        return make(logits=step.next_logits(ids, mask), past_key_values=step)

    return cast(Forward, wrapper)


class StepGeneration:
    """Mixin of the models that generate, before `GenerationMixin`.

    The loops are those of transformers. At their beginning it is decided whether they may take
    steps. After the first call of the decoder, which is an ordinary one, they hold a `DecodingStep`
    in the place of the cache. The caller gets the ordinary cache.
    """

    def _sample(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Runs greedy search or sampling."""
        loop: Any = super()._sample  # type: ignore[misc]  # of GenerationMixin
        return _with_plain_cache(loop(input_ids, *args, **_with_copies(self, kwargs)))

    def _beam_search(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Runs beam search."""
        loop: Any = super()._beam_search  # type: ignore[misc]  # of GenerationMixin
        return _with_plain_cache(loop(input_ids, *args, **_with_copies(self, kwargs)))

    def _update_model_kwargs_for_generation(
        self, outputs: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Makes the step after the first call, if `_with_copies` has allowed it."""
        copies = model_kwargs.pop(_COPIES, None)
        update: Any = super()._update_model_kwargs_for_generation  # type: ignore[misc]
        updated: dict[str, Any] = update(outputs, model_kwargs, *args, **kwargs)
        if copies is not None:
            updated["past_key_values"] = make_decoding_step(self, copies, updated)
        return updated

    def prepare_inputs_for_generation(self, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes the arguments of the next call."""
        kwargs.pop(_COPIES, None)
        step = kwargs.get("past_key_values")
        if not isinstance(step, DecodingStep):
            prepare: Any = super().prepare_inputs_for_generation  # type: ignore[misc]
            return prepare(input_ids, *args, **kwargs)
        ids, mask = step.input_names
        return {ids: input_ids[:, -1:], mask: kwargs.get(mask), "past_key_values": step}

    update_wrapper(  # transformers looks at the names of the arguments
        prepare_inputs_for_generation, GenerationMixin.prepare_inputs_for_generation
    )


def make_decoding_step(model: Any, copies: int, model_kwargs: dict[str, Any]) -> DecodingStep:
    """Prepares the steps that follow the first call of the decoder.

    Args:
        model: The model with its output projection.
        copies: Number of neighbouring rows that decode the same source.
        model_kwargs: The arguments of the next call. Their ordinary cache is emptied.

    Returns:
        The step, which the loop takes for the cache.
    """
    stack, cache = model.model.decoder, DecodingCache(model_kwargs["past_key_values"], copies)
    if not cache.sources:
        return DecodingStep(stack, model.lm_head, cache)
    states, mask = model_kwargs["encoder_outputs"][0], model_kwargs.get("attention_mask")
    source_mask: Any = create_bidirectional_mask(
        config=stack.config,
        inputs_embeds=states[::copies, :1],
        attention_mask=None if mask is None else mask[::copies],
        encoder_hidden_states=states[::copies],
    )
    return DecodingStep(stack, model.lm_head, cache, source_mask)


def _with_plain_cache(result: Any) -> Any:
    """Replaces the step in the result of a loop by the ordinary cache that it stands for."""
    if isinstance(getattr(result, "past_key_values", None), DecodingStep):
        result.past_key_values = result.past_key_values.cache.to_plain()
    return result


def _with_copies(model: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Adds the number of rows per source to the arguments of a loop that may take steps."""
    config = kwargs.get("generation_config")
    if config is None or not (
        _is_ordinary_call(model, config, kwargs) and _is_ordinary_model(model)
    ):
        return kwargs
    return {**kwargs, _COPIES: max(config.num_beams, config.num_return_sequences)}


def _is_ordinary_call(model: Any, config: Any, kwargs: dict[str, Any]) -> bool:
    """Returns whether a call of `generate()` asks for nothing that a step leaves out."""
    arguments = {name for name, value in kwargs.items() if value is not None}
    asks_for_records = any(
        asked.output_attentions or asked.output_hidden_states for asked in (config, model.config)
    )
    return (
        arguments <= _KNOWN_ARGUMENTS
        and bool(config.use_cache)
        and not (asks_for_records or kwargs.get("synced_gpus") or config.is_assistant)
        and config.prefill_chunk_size is None
        and _is_new_dynamic_cache(kwargs.get("past_key_values"))
        and _are_counted(kwargs.get("position_ids"), kwargs.get("attention_mask"))
        and not (torch.is_grad_enabled() or is_tracing() or torch.is_autocast_enabled("cpu"))
    )


def _are_counted(position_ids: torch.Tensor | None, attention_mask: Any) -> bool:
    """Returns whether positions are those that a step counts itself.

    For a language model, `generate()` makes them if the caller does not give others.
    """
    if position_ids is None:
        return True
    if attention_mask is None:
        counted = torch.arange(position_ids.shape[-1], device=position_ids.device)[None]
    elif attention_mask.dim() == 2:
        counted = positions_from_mask(attention_mask)
        position_ids = position_ids.where(attention_mask.bool(), counted)
    else:
        return False
    return bool((position_ids == counted).all())


def _is_new_dynamic_cache(cache: Any) -> bool:
    """Returns whether `generate()` has made this cache itself, to grow in the usual way."""
    is_pair = type(cache) is EncoderDecoderCache
    parts = [cache.self_attention_cache, cache.cross_attention_cache] if is_pair else [cache]
    return not getattr(cache, "_is_user_defined", False) and all(
        type(part) is DynamicCache
        and not part.offloading
        and all(type(layer) is DynamicLayer and not layer.is_initialized for layer in part.layers)
        for part in parts
    )


def _is_ordinary_model(model: Any) -> bool:
    """Returns whether the decoder is the one that this package builds, in evaluation mode.

    Hooks, other forwards and exchanged parts are honoured by calling the modules as usual.
    """
    is_own_class = "_decodes_in_steps" in vars(type(model))
    is_replaced = not vars(model).keys().isdisjoint(vars(GenerationMixin))
    if not is_own_class or is_replaced or not _has_known_layers(model):
        return False
    parts = [part for top in (model.model.decoder, model.lm_head) for part in top.modules()]
    has_hooks = torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks
    weights = [weight for part in parts for weight in part.parameters(recurse=False)]
    return (
        not has_hooks
        and all(map(_is_ordinary_module, (model, model.model, *parts)))
        and all(weight.device.type == "cpu" for weight in weights)
    )


def _has_known_layers(model: Any) -> bool:
    decoder = model.model.decoder
    return (
        type(model.model).__module__ == type(model).__module__
        and type(decoder) in (VanillaTransformerDecoder, VanillaTransformerCausalDecoder)
        and decoder.config._attn_implementation in ATTENTION_STEPS
        and all(type(layer) in (DecoderLayer, CausalLayer) for layer in decoder.layers)
        and all(
            type(part) in (SelfAttention, FusedSelfAttention, CrossAttention)
            for layer in decoder.layers
            for name, part in layer.named_children()
            if name.endswith("_attn")
        )
    )


def _is_ordinary_module(module: nn.Module) -> bool:
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    hooks += [*module._backward_hooks.values(), *module._backward_pre_hooks.values()]
    foreign = [hook for hook in hooks if getattr(hook, "__module__", "") != _RECORDER]
    is_replaced = "forward" in vars(module) or module._compiled_call_impl is not None
    draws = module.training and isinstance(module, _DRAWING)
    return not (foreign or is_replaced or draws)
