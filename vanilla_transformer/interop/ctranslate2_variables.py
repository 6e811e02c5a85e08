"""Reads weights and config fields out of the variables of a CTranslate2 model.

Facts about them come from `ctranslate2.specs` of CTranslate2 4.8, and from what it computes:

- weights in `int8` have a scale per row, weights in `int16` one scale: a weight is number / scale;
- projections of self-attention lie in one matrix, keys and values of cross-attention in another;
- an attribute that is missing has a default: the epsilon of norms is 1e-5, without a bias 1e-6;
  sinusoids that are not stored are those of fairseq from position 1 on.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from vanilla_transformer.data.word_alignment import aligning_layer
from vanilla_transformer.interop.match_weights import Weights, find_differences
from vanilla_transformer.interop.model_bin import ModelBin
from vanilla_transformer.interop.sinusoids import SINUSOIDS, holds_sinusoids

STACKS = ("encoder", "decoder")

ACTIVATIONS = {
    "relu": 0,
    "gelu_new": 1,
    "gelu_fast": 1,
    "gelu_pytorch_tanh": 1,
    "silu": 2,
    "swish": 2,
    "gelu": 3,
    "gelu_python": 3,
    "quick_gelu": 4,
    "tanh": 5,
    "sigmoid": 6,
}
"""The numbers of activations in a file; of several names, a reader takes the first."""

_NEUTRAL_FLAGS = ("alibi", "alibi_use_positive_positions", "scale_alibi")
_UNREAD = re.compile(
    r"(with_(source_[be]os|target_bos)|user_decoder_start_tokens|(encoder/)?embeddings_merge"
    r"|(encoder/|decoder/)?multi_query_attention|(encoder|decoder)/embeddings(_0)?/"
    r"multiply_by_sqrt_depth|.*/(original_)?max_position_embeddings"
    r"|.*attention/(num_heads_kv|head_dim|queries_scale))"
)
"""Variables that change nothing here, or that are read where they are needed."""


def layer_parts(
    stack: str, is_gated: bool, slot: str, has_qk_norm: bool
) -> dict[str, tuple[str, ...]]:
    """Returns our modules in a layer by their place there; rows of several lie in this order."""
    parts: dict[str, tuple[str, ...]] = {}
    attentions = {"self_attention": ("self_attn", "qkv"), "attention": ("encoder_attn", "q", "kv")}
    for theirs in list(attentions)[: 1 if stack == "encoder" else 2]:
        ours, *groups = attentions[theirs]
        for number, letters in enumerate(groups):
            names = tuple(f"{ours}.{letter}_proj" for letter in letters)
            parts[f"{theirs}/linear_{number}"] = names
        parts[f"{theirs}/linear_{len(groups)}"] = (f"{ours}.out_proj",)
        parts[f"{theirs}/layer_norm"] = (f"{ours}_{slot}_norm",)
    gated = {"linear_0": "gate", "linear_0_noact": "fc1", "linear_1": "fc2"}
    for theirs, ours in (gated if is_gated else {"linear_0": "fc1", "linear_1": "fc2"}).items():
        parts[f"ffn/{theirs}"] = (f"feed_forward.{ours}",)
    for name in ("q_norm", "k_norm") if has_qk_norm else ():
        parts[f"self_attention/{name}"] = (f"self_attn.{name}",)
    return {**parts, "ffn/layer_norm": (f"feed_forward_{slot}_norm",)}


# Variables ----------------------------------------------------------------------------------------


class StoredVariables:
    """The variables of a file; those that nobody asks for have no counterpart here."""

    def __init__(self, file: ModelBin) -> None:
        self.file = file
        self.asked: set[str] = set()
        self.conflicts: list[str] = []  # what has no counterpart, a sentence each
        self.rounded: dict[str, torch.Tensor] = {}  # tables of sinusoids in 16 bits, by stack

    def number(self, name: str, default: float | None = None) -> float | None:
        """Returns an attribute, also of a model that has one for both stacks."""
        names = [name, name.partition("/")[2]]
        place = next((each for each in names if each in self.file.variables), None)
        if place is None:
            return default
        self.asked.add(place)
        return float(self.file.tensor(place).reshape(()).item())

    def flag(self, name: str, default: bool) -> bool:
        """Returns an attribute that is true or false."""
        return bool(self.number(name, default))

    def has(self, name: str) -> bool:
        """Returns whether there is a variable."""
        return name in self.file.variables

    def weight(self, name: str) -> torch.Tensor:
        """Returns a weight; numbers in 8 or 16 bits become floats."""
        self.asked.update((name, f"{name}_scale"))
        values = self.file.tensor(name)
        if values.is_floating_point():
            return values
        scale = self.file.tensor(f"{name}_scale").float()  # one of each row, or one of all
        return values.float() / scale.reshape(-1, *[1] * (values.dim() - 1))

    def problems(self) -> Iterator[str]:
        """Yields what has no counterpart here: of many layers, a variable is named once."""
        yield from self.conflicts
        left = [n for n in self.file.variables if n not in self.asked and not _UNREAD.fullmatch(n)]
        for name in dict.fromkeys(re.sub(r"layer_\d+", "layer_N", name) for name in left):
            yield f"`{name}` has no counterpart"


# Fields and weights -------------------------------------------------------------------------------


def read_model(
    stored: StoredVariables, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Returns the config fields that the variables mean, and the weights by our names."""
    encoder, decoder = (_Stack(stored, stack) for stack in STACKS)
    weights = encoder.weights | decoder.weights
    stored.conflicts += find_differences((encoder.common, decoder.common), encoder.common)
    for name in _NEUTRAL_FLAGS:
        if stored.flag(f"decoder/{name}", False):
            stored.conflicts.append(f"`decoder/{name}` is set: it has no counterpart in a decoder")
    weights["lm_head.weight"] = stored.weight("decoder/projection/weight")
    if stored.has("decoder/projection/bias"):
        weights["lm_head.bias"] = stored.weight("decoder/projection/bias")
    biased = [name for name in weights if name.endswith(".bias")]
    norm_type = "layer_norm" if any("_norm." in name for name in biased) else "rms_norm"
    epsilon = settings.get("layer_norm_epsilon")
    default = 1e-5 if norm_type == "layer_norm" else 1e-6
    fields = {
        **encoder.common,
        **encoder.fields,
        **decoder.fields,
        "norm_type": norm_type,
        "layer_norm_eps": default if epsilon is None else epsilon,
        "attention_bias": any("_proj." in name for name in biased),
        "ffn_bias": any(".fc" in name or ".gate." in name for name in biased),
        "logit_scale": stored.number("decoder/scale_outputs", 1.0),
        "alignment_heads": _aligning_heads(stored, decoder),
        **_read_positions(stored, encoder, decoder, weights),
    }
    return fields, weights


def _aligning_heads(stored: StoredVariables, decoder: "_Stack") -> list[list[int]] | None:
    """Returns the heads whose attention CTranslate2 returns, unless that is a default.

    The converters name the first head of the last layer if no head was trained to align.
    """
    layer = int(stored.number("decoder/alignment_layer", -1) or 0)
    count = int(stored.number("decoder/alignment_heads", 1) or 0)
    layers = decoder.layers
    is_default = (layer, count) == (-1, 1) or (layer % layers, count) == (aligning_layer(layers), 0)
    if is_default:
        return None
    return [[layer % layers, head] for head in range(count or decoder.heads)]


class _Stack:
    """Reads a stack, whose layers are alike.

    Attributes:
        weights: Its weights by our names.
        fields: Config fields of this stack.
        common: Config fields that must be the same in both stacks.
    """

    def __init__(self, stored: StoredVariables, name: str) -> None:
        self.stored, self.name = stored, name
        variables, first, ours = stored.file.variables, f"{name}/layer_0", f"model.{name}"
        pattern = re.compile(rf"{name}/layer_(\d+)/.*")
        self.layers = len({m[1] for n in variables if (m := pattern.fullmatch(n))})
        self.heads = int(stored.number(f"{name}/num_heads", 8) or 0)
        width = variables[f"{first}/self_attention/linear_1/weight"].shape[1]
        joined = variables[f"{first}/self_attention/linear_0/weight"].shape[0]
        keys = (joined - width) // 2  # queries first, then keys, values
        self.head_dim = width // self.heads
        self.rows = {"q_proj": width, "k_proj": keys, "v_proj": keys}
        self.is_gated = stored.has(f"{first}/ffn/linear_0_noact/weight")
        self.has_qk_norm = stored.has(f"{first}/self_attention/q_norm/gamma")
        self.slot = "pre" if stored.flag(f"{name}/pre_norm", True) else "post"
        place = f"{name}/embeddings"
        self.table = f"{place}_0" if stored.has(f"{place}_0/weight") else place
        number = int(stored.number(f"{name}/activation", 0) or 0)
        if number not in ACTIVATIONS.values():
            stored.conflicts.append(f"`{name}/activation` has the unknown number {number}")
        table = stored.weight(f"{self.table}/weight")
        self.weights: Weights = {f"{ours}.embed_tokens.weight": table}
        for norm, our_norm in (("layernorm_embedding", "embed_norm"), ("layer_norm", "final_norm")):
            if stored.has(f"{name}/{norm}/gamma"):
                self._add_module(f"{name}/{norm}", [f"{ours}.{our_norm}"])
        for layer in range(self.layers):
            self._add_layer(f"{name}/layer_{layer}", f"{ours}.layers.{layer}")
        self.fields = {
            f"{name}_attention_heads": self.heads,
            f"{name}_num_key_value_heads": keys // self.head_dim,
        }
        self.common = {
            "activation_function": next((n for n, at in ACTIVATIONS.items() if at == number), None),
            "gated_ffn": self.is_gated,
            "norm_placement": self.slot,
            "final_layer_norm": f"{ours}.final_norm.weight" in self.weights,
            "qk_norm": "self" if self.has_qk_norm else "none",
            "normalize_embedding": f"{ours}.embed_norm.weight" in self.weights,
            "scale_embedding": self._scales_embedding(table.shape[1]),
            "head_dim": None if width == table.shape[1] else self.head_dim,
            "attention_scale": stored.number(f"{first}/self_attention/queries_scale"),
        }

    def _scales_embedding(self, d_model: int) -> bool:
        """Returns whether embeddings are multiplied by the root of d_model."""
        flag = self.stored.number(f"{self.table}/multiply_by_sqrt_depth", 1.0)
        scale = self.stored.number(f"{self.name}/scale_embeddings")
        variable = self.stored.file.variables.get(f"{self.name}/scale_embeddings")
        if scale is None or variable is None or variable.dtype == torch.int8:
            return bool(flag if scale is None else scale)
        if scale != 1 and not math.isclose(scale, math.sqrt(d_model), rel_tol=1e-3):
            self.stored.conflicts.append(
                f"`{self.name}/scale_embeddings` is {scale:g}: only 1 and the root of d_model, "
                f"{math.sqrt(d_model):g}, have a counterpart"
            )
        return scale != 1

    def _add_layer(self, place: str, ours: str) -> None:
        """Reads a layer."""
        parts = layer_parts(self.name, self.is_gated, self.slot, self.has_qk_norm)
        for part, modules in parts.items():
            self._add_module(f"{place}/{part}", [f"{ours}.{module}" for module in modules])

    def _add_module(self, place: str, ours: Sequence[str]) -> None:
        """Reads a norm, or a matrix with its bias; several projections are cut out of one."""
        is_norm = "norm" in place.rpartition("/")[2]
        parts = ("gamma", "beta") if is_norm else ("weight", "bias")
        for theirs, part in zip(parts, ("weight", "bias"), strict=True):
            if part == "weight" or self.stored.has(f"{place}/{theirs}"):
                values = self.stored.weight(f"{place}/{theirs}")
                cut = [values]
                if len(ours) > 1:
                    cut = list(values.split([self.rows[name.rpartition(".")[2]] for name in ours]))
                named = zip(ours, cut, strict=True)
                self.weights |= {f"{name}.{part}": part_rows for name, part_rows in named}


# Positions ----------------------------------------------------------------------------------------


def _read_positions(
    stored: StoredVariables, encoder: _Stack, decoder: _Stack, weights: Weights
) -> dict[str, Any]:
    """Returns the fields of the positions; learned ones are added to the weights."""
    both = [_positions_of(stored, stack, weights) for stack in (encoder, decoder)]
    stored.conflicts += find_differences(both, both[0])
    return both[0]


def _positions_of(stored: StoredVariables, stack: _Stack, weights: Weights) -> dict[str, Any]:
    """Returns the fields of the positions of one stack."""
    first = f"{stack.name}/layer_0/self_attention"
    ours = f"model.{stack.name}.embed_positions.weight"
    attentions = [f"{stack.name}/layer_{n}/self_attention" for n in range(stack.layers)]
    if stored.has(f"{first}/relative_attention_bias"):
        tables = [stored.weight(f"{each}/relative_attention_bias") for each in attentions]
        distances = {
            stored.number(f"{each}/relative_attention_max_distance") for each in attentions
        }
        if len(distances) > 1 or not all(torch.equal(tables[0], table) for table in tables):
            stored.conflicts.append(
                f"`{stack.name}`: relative positions differ from layer to layer"
            )
        weights[ours] = tables[0]
        return {
            "position_embedding_type": "relative",
            "relative_attention_num_buckets": len(tables[0]),
            "relative_attention_max_distance": int(min(distances, key=str) or 128),
        }
    if stored.has(f"{first}/rotary_dim"):
        ropes = [_rope_of(stored, each, stack.head_dim) for each in attentions]
        if any(each != ropes[0] for each in ropes):
            stored.conflicts.append(f"`{stack.name}`: rotary positions differ from layer to layer")
        # The table of a stack with rotary positions is all zeros, if it is there.
        stored.asked.add(f"{stack.name}/position_encodings/encodings")
        return {"position_embedding_type": "rope", "rope_parameters": ropes[0]}
    name = f"{stack.name}/position_encodings/encodings"
    if not stored.has(name):
        return {"position_embedding_type": "sinusoidal_fairseq", "position_offset": 1}
    table = stored.weight(name)
    if known := recognise_positions(table):
        if table.dtype != torch.float32 and known["position_embedding_type"] in SINUSOIDS:
            stored.rounded[stack.name] = table
        return known
    weights[ours] = table
    return {"position_embedding_type": "learned", "max_position_embeddings": len(table)}


def _rope_of(stored: StoredVariables, place: str, head_dim: int) -> dict[str, Any]:
    """Returns the parameters of RoPE in one attention."""
    width = int(stored.number(f"{place}/rotary_dim", 0) or 0) or head_dim
    if stored.flag(f"{place}/rotary_interleave", True):
        stored.conflicts.append(
            f"`{place}/rotary_interleave` is set: only halves have a counterpart"
        )
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": stored.number(f"{place}/rotary_base", 10000.0),
    }
    if width != head_dim:
        rope["partial_rotary_factor"] = width / head_dim
    return rope


def recognise_positions(table: torch.Tensor) -> dict[str, Any] | None:
    """Returns the fields of positions that a model here computes itself; None: they are learned.

    Args:
        table: A stored table, of shape (positions, d_model), perhaps in half precision.
    """
    if not table.any():
        return {"position_embedding_type": "none"}
    rounding = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(table.dtype, 0.0)
    for scheme in SINUSOIDS:
        for offset in range(4):  # a table may begin behind the position of padding
            if all(holds_sinusoids(rows, scheme, offset, rounding) for rows in (table[:16], table)):
                return {"position_embedding_type": scheme, "position_offset": offset}
    return None
