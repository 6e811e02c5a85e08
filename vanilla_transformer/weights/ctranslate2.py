"""Exports a model to CTranslate2, an inference engine in C++ with int8 weights.

This module needs the extra `ctranslate2`. Source of the layout: `ctranslate2.specs` of CTranslate2
4.8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from ctranslate2.specs import common_spec, transformer_spec
from ctranslate2.specs.model_spec import index_spec
from transformers.utils import logging

from vanilla_transformer.model.configuration_vanilla_transformer import (
    SIZES,
    VanillaTransformerConfig,
    aligning_layer,
)
from vanilla_transformer.model.inputs import end_tokens_of
from vanilla_transformer.tokenizer_sides import unnamed_ids, vocabularies_of
from vanilla_transformer.weights.ctranslate2_variables import ACTIVATIONS, PARAMETERS, module_paths
from vanilla_transformer.weights.exact_rewrites import (
    POSITION_TABLE,
    WITHOUT_EFFECT_ON_OUTPUTS,
    ModelState,
    fold_residual_scale,
    reorder_cross_attention,
    rows_of_positions,
    state_of,
)
from vanilla_transformer.weights.match_weights import STACKS, raise_problems
from vanilla_transformer.weights.sinusoids import SINUSOIDS

logger = logging.get_logger(__name__)

POSITIONS = 2048
"""Default number of positions that are stored; sinusoids have no limit here, but one there."""

LAYOUT = 7
"""Grows when the export of the same model changes; a cache of exports keeps it in its names."""

_ANY = (
    "gated_ffn",
    "layer_norm_eps",
    "final_layer_norm",
    "normalize_embedding",
    "attention_bias",
    "ffn_bias",
    "lm_head_bias",
    "residual_scale",
    "scale_embedding",
    "attention_scale",
    "logit_scale",
    "position_offset",
    "rope_parameters",
)
"""Fields of which CTranslate2 computes every value."""

_VALUES: dict[str, tuple[Any, ...]] = {
    "norm_placement": ("post", "pre"),
    "norm_type": ("layer_norm", "rms_norm"),
    "position_embedding_type": (*SINUSOIDS, "learned", "rope", "relative", "none"),
    "activation_function": tuple(ACTIVATIONS),
    "qk_norm": ("none", "self"),  # it reads norms of cross-attention, and does not compute them
    "is_encoder_decoder": (True,),
}
"""The values that CTranslate2 computes, by field."""


def problems_for_ctranslate2(
    config: VanillaTransformerConfig, holds_start: bool = True
) -> list[str]:
    """Lists the settings that CTranslate2 cannot compute; see `convert_to_ctranslate2`.

    A field that is named nowhere, for example a new one, must have its default value.
    """
    default, problems = VanillaTransformerConfig(), []
    for name in VanillaTransformerConfig.__annotations__:
        if name in (*WITHOUT_EFFECT_ON_OUTPUTS, *SIZES, *_ANY) or name.endswith("_token_id"):
            continue
        possible = _VALUES.get(name, (getattr(default, name, None),))
        if (value := getattr(config, name, None)) not in possible:
            known = " or ".join(map(repr, possible))
            problems.append(f"`{name}` is {value!r}; possible is {known}.")
    problems += [
        f"`{name}` is None, but an export holds that token."
        for name in ("decoder_start_token_id", "eos_token_id")[not holds_start :]
        if getattr(config, name) is None
    ]
    return problems


def convert_to_ctranslate2(
    model: Any,
    tokenizer: Any,
    output_dir: str | Path,
    quantization: str | None = None,
    positions: int | None = None,
    holds_start: bool = True,
) -> None:
    """Writes a model in the format of CTranslate2.

    Args:
        positions: Longest source and target in tokens. None: `POSITIONS`, but for learned positions
            as many as there are.
        holds_start: Whether the export holds the token that targets begin with. If not, each call
            names it, as the first one of `target_prefix`.
    """
    with torch.no_grad():
        spec = make_specification(model, positions, holds_start)
        set_vocabularies(spec, model.config, tokenizer, holds_start)
        spec.validate()
        spec.optimize(quantization=quantization)
    Path(output_dir).mkdir(parents=True)
    spec.save(str(output_dir))


def make_specification(model: Any, positions: int | None = None, holds_start: bool = True) -> Any:
    """Copies the weights of a model into a specification, which has no vocabularies yet."""
    config = model.config
    problems = problems_for_ctranslate2(config, holds_start)
    raise_problems("CTranslate2 cannot compute this model", problems)
    options = _spec_options(config, "decoder")
    if (aligning := aligning_heads(config)) is not None:
        options |= {"alignment_layer": aligning.layer, "alignment_heads": aligning.number}
    else:
        logger.warning(
            f"The export leaves out `alignment_heads` {config.alignment_heads}: CTranslate2 "
            "averages heads of one layer, and whole groups of heads that share their keys."
        )
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(**_spec_options(config, "encoder")),
        transformer_spec.TransformerDecoderSpec(**options),
    )
    state = fold_residual_scale(state_of(model))  # copies, which CTranslate2 quantises in place
    if aligning is not None and aligning.order is not None:
        state = reorder_cross_attention(state, aligning.layer, aligning.order)
    for name in STACKS:
        stack_spec = getattr(spec, name)
        stack_spec.pre_norm = config.norm_placement == "pre"
        stack_spec.scale_embeddings = getattr(model.model, name).embed_scale
        for layer in stack_spec.layer:
            _set_attentions(layer, config)
        _set_positions(stack_spec, name, state, positions)
        layers = len(stack_spec.layer)
        paths = module_paths(name, layers, config.norm_placement, config.gated_ffn)
        for path, modules in paths.items():
            _set_weights(spec, path, modules, state.weights)
    spec.decoder.scale_outputs = np.float32(config.logit_scale)
    return spec


def set_vocabularies(
    spec: Any, config: VanillaTransformerConfig, tokenizer: Any, holds_start: bool = True
) -> None:
    """Sets both vocabularies and the special tokens; ids without a token are never chosen."""
    source, target = vocabularies_of(config, tokenizer)
    if unnamed := unnamed_ids(tokenizer, len(target)):
        projection = spec.decoder.projection
        if not isinstance(projection.bias, torch.Tensor):
            projection.bias = torch.zeros(len(target))
        projection.bias[unnamed] = -torch.inf
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    settings = spec.config
    settings.eos_token = target[end_tokens_of(config)[0]]
    settings.bos_token = tokenizer.bos_token or settings.eos_token
    settings.unk_token = tokenizer.unk_token or settings.eos_token
    start = config.decoder_start_token_id
    settings.decoder_start_token = target[cast(int, start)] if holds_start else None
    settings.layer_norm_epsilon = config.layer_norm_eps


def _set_attentions(layer: Any, config: VanillaTransformerConfig) -> None:
    """Sets the options of attention that the constructor of a layer's specification lacks."""
    own, cross = layer.self_attention, getattr(layer, "attention", None)
    if config.attention_scale is not None:
        for attention in filter(None, (own, cross)):
            attention.queries_scale = np.float32(config.attention_scale)
    for name in ("q_norm", "k_norm") if config.qk_norm != "none" else ():
        setattr(own, name, common_spec.LayerNormSpec(rms_norm=config.norm_type == "rms_norm"))
        if cross is not None:
            delattr(cross, name)


def _set_positions(spec: Any, stack: str, state: ModelState, positions: int | None) -> None:
    """Sets the tables and options of a stack's positions."""
    scheme, most = (state.fields[n] for n in ("position_embedding_type", "max_position_embeddings"))
    if scheme == "relative":
        for layer in spec.layer:  # all share the table of the stack
            attention, table = layer.self_attention, state.weights[POSITION_TABLE.format(stack)]
            attention.relative_attention_bias = table.to(torch.float32, copy=True)
            distance = state.fields["relative_attention_max_distance"]
            attention.relative_attention_max_distance = np.int32(distance)
    elif scheme != "rope":
        limit = min(positions or most, most) if scheme == "learned" else positions or POSITIONS
        _, table = rows_of_positions(state.with_fields(max_position_embeddings=limit), stack)
        spec.position_encodings.encodings = table[:limit].float()


@dataclass(frozen=True)
class AligningHeads:
    """The heads whose mean weights CTranslate2 returns as its attention.

    Attributes:
        number: How many heads, the first ones of the export; 0: all heads.
        order: Our heads in the order of the export. None: in our order.
    """

    layer: int
    number: int
    order: list[int] | None


def aligning_heads(config: VanillaTransformerConfig) -> AligningHeads | None:
    """Chooses the heads whose attention CTranslate2 returns: the heads that align here.

    CTranslate2 averages the first heads of one layer, so the heads of `config.alignment_heads`
    become the first ones. Heads that share keys and values stay together. None: it cannot average
    them.
    """
    if config.alignment_heads is None:
        return AligningHeads(aligning_layer(config.decoder_layers), 0, None)
    layers = {layer for layer, _ in config.alignment_heads}
    wanted = {head for _, head in config.alignment_heads}
    heads = config.decoder_attention_heads
    groups = heads // cast(int, config.decoder_num_key_value_heads)
    parts = [range(first, first + groups) for first in range(0, heads, groups)]
    parts.sort(key=lambda part: -len(wanted & set(part)))  # stable
    order = [head for part in parts for head in sorted(part, key=lambda head: head not in wanted)]
    if len(layers) > 1 or set(order[: len(wanted)]) != wanted:
        return None
    return AligningHeads(layers.pop(), len(wanted), order)


def _spec_options(config: VanillaTransformerConfig, stack: str) -> dict[str, Any]:
    heads = getattr(config, f"{stack}_attention_heads")
    key_value_heads = getattr(config, f"{stack}_num_key_value_heads")
    options: dict[str, Any] = {
        "num_layers": getattr(config, f"{stack}_layers"),
        "num_heads": heads,
        # Only this makes room for a final norm; `pre_norm` is set afterwards.
        "pre_norm": bool(config.final_layer_norm),
        "activation": common_spec.Activation(ACTIVATIONS[config.activation_function]),
        "layernorm_embedding": config.normalize_embedding,
        "ffn_glu": config.gated_ffn,
        "rms_norm": config.norm_type == "rms_norm",
        "num_heads_kv": None if key_value_heads == heads else key_value_heads,
        "head_dim": (head_dim := config.head_dim_with(heads)),
        "relative_attention_bias": config.position_embedding_type == "relative",
    }
    if config.qk_norm != "none":
        options["qk_norm"] = True
    if config.position_embedding_type == "rope":
        rope = cast(dict[str, Any], config.rope_parameters)
        width = int(head_dim * rope.get("partial_rotary_factor", 1.0))
        options |= {
            "rotary_dim": width,
            "rotary_interleave": False,
            "rotary_base": rope["rope_theta"],
        }
    return options


def _set_weights(
    spec: Any, path: str, modules: Sequence[str], weights: Mapping[str, torch.Tensor]
) -> None:
    """Sets a norm, an embedding, or linear maps whose rows lie one after the other."""
    for theirs, ours in PARAMETERS.items():
        values = [weights[name] for m in modules if (name := f"{m}.{ours}") in weights]
        if values and hasattr(target := index_spec(spec, path), theirs):
            setattr(target, theirs, torch.cat(values).float())
