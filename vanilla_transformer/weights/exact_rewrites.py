"""Rewrites a model into one with other fields that computes the same function.

Other systems have fewer fields than this package. A rewrite moves the effect of a field into the
weights: a factor goes into the matrix before it, a missing bias becomes a bias of zeros, and so on.
A rewrite that does not apply to a model returns it as it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from vanilla_transformer.model.configuration_vanilla_transformer import (
    PROBABILITIES,
    VanillaTransformerConfig,
)
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.weights.match_weights import STACKS, Weights
from vanilla_transformer.weights.sinusoids import SINUSOIDS, sinusoids

ADDED_POSITIONS = (*SINUSOIDS, "learned", "none")
"""The position schemes that add a vector to each embedding, or nothing."""

WITHOUT_EFFECT_ON_OUTPUTS = (
    *PROBABILITIES,
    "alignment_heads",
    "classifier_pooling",
    "fused_qkv",
    "initializer",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    "use_cache",
)
"""Fields that training alone reads, or whose weights an export copies or splits."""

POSITION_TABLE = "model.{}.embed_positions.weight"
_INPUT_AXIS = re.compile(r"(embed_tokens|shared|lm_head|[qkv]_proj|fc1|gate)\.weight$")
_OUTPUT_AXIS = re.compile(r"((out_proj|fc2)\.(weight|bias)|(?<!\.[qk])_norm\.(weight|bias))$")
_ATTENTION = re.compile(r"model\.(encoder|decoder)\.layers\.\d+\.(self|encoder)_attn\.")


@dataclass(frozen=True)
class ModelState:
    """Fields and weights of a model that is being rewritten.

    Attributes:
        weights: Weights by name, float32 or wider. Tied matrices stand under all of their names.
    """

    fields: Mapping[str, Any]
    weights: Mapping[str, torch.Tensor]

    def with_fields(self, **fields: Any) -> "ModelState":
        """Returns a state with other values of fields."""
        return replace(self, fields={**self.fields, **fields})

    def with_weights(self, weights: Mapping[str, torch.Tensor]) -> "ModelState":
        """Returns a state with more weights, or with new values of weights."""
        return replace(self, weights={**self.weights, **weights})

    def map_weights(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> "ModelState":
        """Returns a state whose weights are changed by a function of name and value."""
        return replace(self, weights={name: change(name, w) for name, w in self.weights.items()})

    def heads_of(self, stack: str) -> int:
        """Returns the number of attention heads of a stack."""
        return int(self.fields[f"{stack}_attention_heads"])

    def head_dim_of(self, stack: str) -> int:
        """Returns the width of an attention head of a stack."""
        return int(self.fields["head_dim"] or self.fields["d_model"] // self.heads_of(stack))


Rewrite = Callable[[ModelState], ModelState]


def state_of(model: VanillaTransformerForConditionalGeneration) -> ModelState:
    """Returns the fields of a model, and copies of its weights, with separate projections."""
    config = model.config
    fields = {
        name: getattr(config, name, None) for name in VanillaTransformerConfig.__annotations__
    }
    weights: Weights = {}
    for name, value in model.state_dict().items():
        wide = torch.promote_types(value.dtype, torch.float32)  # factors lose nothing in it
        weight = value.detach().cpu().to(wide, copy=True)
        if "qkv_proj" not in name:
            weights[name] = weight
            continue
        heads: int = getattr(config, f"{name.split('.')[1]}_attention_heads")
        queries = heads * config.head_dim_with(heads)
        keys = (len(weight) - queries) // 2  # rows: queries, keys, values
        parts = weight.split((queries, keys, keys))
        weights |= {name.replace("qkv", x): part for x, part in zip("qkv", parts, strict=True)}
    return ModelState({**fields, "fused_qkv": False}, weights)


def fields_with_effect(config: VanillaTransformerConfig) -> dict[str, Any]:
    """Returns the fields that change outputs; None becomes the value that it means."""
    hidden = {*WITHOUT_EFFECT_ON_OUTPUTS, "is_encoder_decoder"}
    names = set(VanillaTransformerConfig.__annotations__) - hidden
    if config.position_embedding_type != "learned":
        names -= {"max_position_embeddings"}
    if config.position_embedding_type != "relative":
        names -= {"relative_attention_num_buckets", "relative_attention_max_distance"}
    fields = {name: getattr(config, name, None) for name in names}
    widths = {config.head_dim_with(getattr(config, f"{stack}_attention_heads")) for stack in STACKS}
    fields["head_dim"] = sorted(widths)
    if len(widths) == 1:
        fields["attention_scale"] = config.attention_scale or widths.pop() ** -0.5
    return fields


def repeat_key_value_heads(state: ModelState) -> ModelState:
    """Gives each query head keys and values of its own, as copies of the shared ones."""
    groups = {
        stack: state.heads_of(stack) // state.fields[f"{stack}_num_key_value_heads"]
        for stack in STACKS
    }

    def repeat(name: str, tensor: torch.Tensor) -> torch.Tensor:
        stack = name.split(".")[1]
        if not _ATTENTION.match(name) or not re.search(r"\.[kv]_proj\.", name):
            return tensor
        by_head: torch.Tensor = tensor.unflatten(0, (-1, state.head_dim_of(stack)))
        return by_head.repeat_interleave(groups[stack], dim=0).flatten(0, 1)

    heads = {f"{stack}_num_key_value_heads": state.heads_of(stack) for stack in STACKS}
    return state.map_weights(repeat).with_fields(**heads)


def reorder_cross_attention(state: ModelState, layer: int, order: Sequence[int]) -> ModelState:
    """Puts the heads of a decoder layer's cross-attention into an order.

    Heads that share keys and values must stay together.
    """
    module, width = f"model.decoder.layers.{layer}.encoder_attn", state.head_dim_of("decoder")
    groups = state.heads_of("decoder") // state.fields["decoder_num_key_value_heads"]
    shared = [head // groups for head in order[::groups]]  # the order of keys and values
    changed = {}
    for part, heads in (("q", order), ("k", shared), ("v", shared)):
        for name in (f"{module}.{part}_proj.weight", f"{module}.{part}_proj.bias"):
            if name in state.weights:
                # (heads · head_dim, ...) to (heads, head_dim, ...)
                by_head = state.weights[name].unflatten(0, (-1, width))
                changed[name] = by_head[heads].flatten(0, 1)
    # The output projection reads the heads side by side: (d_model, heads, head_dim).
    output = f"{module}.out_proj.weight"
    columns = state.weights[output].unflatten(1, (-1, width))
    return state.with_weights({**changed, output: columns[:, order].flatten(1, 2)})


def fold_residual_scale(state: ModelState) -> ModelState:
    """Moves the factor on a sublayer's output into its last projection."""
    factor = state.fields["residual_scale"]
    last = re.compile(r".*(_attn\.out_proj|feed_forward\.fc2)\.(weight|bias)")

    def scale(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * factor if last.fullmatch(name) else tensor

    return state.map_weights(scale).with_fields(residual_scale=1.0)


def fold_attention_scale(state: ModelState, target: float | None) -> ModelState:
    """Moves a factor on the scores into the queries, but for a target.

    None is 1/sqrt(width of a head), as for the field.
    """

    def scale(name: str, tensor: torch.Tensor) -> torch.Tensor:
        stack = name.split(".")[1]
        if not _ATTENTION.match(name) or ".q_proj." not in name:
            return tensor
        plain = state.head_dim_of(stack) ** -0.5
        factor: float = (state.fields["attention_scale"] or plain) / (target or plain)
        return tensor * factor

    if state.fields["attention_scale"] == target:
        return state
    return state.map_weights(scale).with_fields(attention_scale=target)


def fold_logit_scale(state: ModelState) -> ModelState:
    """Moves the factor on the logits into the last norm of the decoder, which the output reads."""
    # The output projection reads the last norm: a factor on gain and bias is one on the logits.
    scale, last = state.fields["logit_scale"], state.fields["decoder_layers"] - 1
    post = f"model.decoder.layers.{last}.feed_forward_post_norm."
    final = "model.decoder.final_norm."
    norm = final if state.fields["final_layer_norm"] else post  # the last norm before the output
    norms = {name: w * scale for name, w in state.weights.items() if name.startswith(norm)}
    return state.with_weights(norms).with_fields(logit_scale=1.0) if norms else state


def fold_embedding_scale(state: ModelState) -> ModelState:
    """Moves the factor on the embeddings into their matrices; a tied output divides by it."""
    if not state.fields["scale_embedding"]:
        return state
    # Where the output projection is an embedding, it grows with it: the logits must shrink again.
    width, tied = state.fields["d_model"], state.fields["tie_word_embeddings"]
    names = ["shared", "encoder.embed_tokens", "decoder.embed_tokens"]
    tables = {f"model.{name}.weight" for name in names} | ({"lm_head.weight"} if tied else set())
    scaled = state.map_weights(lambda name, w: w * width**0.5 if name in tables else w)
    logit_scale = state.fields["logit_scale"] * (width**-0.5 if tied else 1.0)
    return scaled.with_fields(scale_embedding=False, logit_scale=logit_scale)


def add_zero_biases(state: ModelState) -> ModelState:
    """Gives every projection of attention and feed-forward sublayers a bias."""
    ends = r"(_attn\.(q|k|v|out)_proj|feed_forward\.(fc1|fc2|gate))\.weight$"
    biases = {
        name.removesuffix("weight") + "bias": w.new_zeros(len(w))
        for name, w in state.weights.items()
        if re.search(ends, name)
    }
    fields = {"attention_bias": True, "ffn_bias": True}
    return ModelState({**state.fields, **fields}, biases | dict(state.weights))  # own ones stay


def split_waves(state: ModelState) -> ModelState:
    """Turns interleaved sinusoids into sines before cosines, by a permutation of the features.

    A norm commutes with a permutation of its axis, so every matrix that reads or writes the
    residual stream is permuted, and nothing else changes.
    """
    if state.fields["position_embedding_type"] != "sinusoidal":
        return state
    width = state.fields["d_model"]
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])

    def permute(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if _INPUT_AXIS.search(name):
            return tensor[:, order]
        return tensor[order] if _OUTPUT_AXIS.search(name) else tensor

    return state.map_weights(permute).with_fields(position_embedding_type="sinusoidal_half")


def tabulate_positions(state: ModelState, offset: int) -> ModelState:
    """Stores the vectors of all positions in a table, as learned ones are.

    Before them are `offset` rows: the rows that a table already has there, or zeros.
    """
    if state.fields["position_embedding_type"] not in ADDED_POSITIONS:
        return state
    tables = {}
    for stack in STACKS:
        unused, used = rows_of_positions(state, stack)
        if len(unused) != offset:
            unused = used.new_zeros(offset, used.shape[1])
        tables[POSITION_TABLE.format(stack)] = torch.cat([unused, used])
    fields = {"position_embedding_type": "learned", "position_offset": offset}
    return state.with_weights(tables).with_fields(**fields)


def rows_of_positions(state: ModelState, stack: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the unused first rows, and the vectors of all positions, each (rows, d_model)."""
    limit, width = state.fields["max_position_embeddings"], state.fields["d_model"]
    scheme, offset = state.fields["position_embedding_type"], state.fields["position_offset"]
    if scheme == "learned":
        table = state.weights[POSITION_TABLE.format(stack)]
        return table[:offset], table[offset:]
    nothing = torch.zeros(0, width)
    if scheme == "none":
        return nothing, torch.zeros(limit, width)
    return nothing, sinusoids(scheme, limit, width, offset)
