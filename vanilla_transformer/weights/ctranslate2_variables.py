"""The variables of a CTranslate2 model: the paths of our modules, and the meaning of the others.

Facts about them come from `ctranslate2.specs` of CTranslate2 4.8, and from its outputs:

- weights in `int8` have a scale per row, weights in `int16` one scale: a weight is number / scale;
- projections of self-attention lie in one matrix, keys and values of cross-attention in another;
- an attribute that is missing has a default: the epsilon of norms is 1e-5, without a bias 1e-6;
  sinusoids that are not stored are fairseq's from position 1 on.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from vanilla_transformer.model.configuration_vanilla_transformer import aligning_layer
from vanilla_transformer.weights.match_weights import (
    STACKS,
    Weights,
    fields_of_parts,
    find_differences,
    raise_problems,
)
from vanilla_transformer.weights.model_bin import ModelBin
from vanilla_transformer.weights.sinusoids import SINUSOIDS, holds_sinusoids

PARAMETERS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
"""Our parameters of a module by their names in a file."""

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
    r"(with_(source_[be]os|target_bos)|user_decoder_start_tokens|decoder/start_from_zero_embedding|(encoder/)?embeddings_merge"
    r"|(encoder/|decoder/)?multi_query_attention|(encoder|decoder)/embeddings(_0)?/"
    r"multiply_by_sqrt_depth|.*/(original_)?max_position_embeddings"
    r"|.*attention/(num_heads_kv|head_dim|queries_scale))"
)
"""Variables that change nothing here, or that are read where they are needed."""


def module_paths(
    stack: str, layers: int, norm_placement: str, gated_ffn: bool
) -> dict[str, tuple[str, ...]]:
    """Returns our modules of a stack by their path in a file; rows of several lie in this order.

    A model may lack norms that are named here.
    """
    attentions = {"self_attention": ("self_attn", "qkv"), "attention": ("encoder_attn", "q", "kv")}
    inner: dict[str, tuple[str, ...]] = {
        "ffn/linear_0": ("feed_forward.gate" if gated_ffn else "feed_forward.fc1",),
        "ffn/linear_1": ("feed_forward.fc2",),
        "ffn/layer_norm": (f"feed_forward_{norm_placement}_norm",),
        "self_attention/q_norm": ("self_attn.q_norm",),
        "self_attention/k_norm": ("self_attn.k_norm",),
    }
    if gated_ffn:
        inner["ffn/linear_0_noact"] = ("feed_forward.fc1",)
    for theirs in list(attentions)[: 1 if stack == "encoder" else 2]:
        ours, *groups = attentions[theirs]
        for number, letters in enumerate(groups):
            names = tuple(f"{ours}.{letter}_proj" for letter in letters)
            inner[f"{theirs}/linear_{number}"] = names
        inner[f"{theirs}/linear_{len(groups)}"] = (f"{ours}.out_proj",)
        inner[f"{theirs}/layer_norm"] = (f"{ours}_{norm_placement}_norm",)
    table = "embeddings_0" if stack == "encoder" else "embeddings"
    here = {
        table: ("embed_tokens",),
        "layernorm_embedding": ("embed_norm",),
        "layer_norm": ("final_norm",),
        **{
            f"layer_{layer}/{path}": tuple(f"layers.{layer}.{name}" for name in names)
            for layer in range(layers)
            for path, names in inner.items()
        },
    }
    paths = {
        f"{stack}/{path}": tuple(f"model.{stack}.{name}" for name in names)
        for path, names in here.items()
    }
    return paths if stack == "encoder" else {**paths, "decoder/projection": ("lm_head",)}


# Fields and weights -------------------------------------------------------------------------------


def read_model(file: ModelBin, settings: Mapping[str, Any]) -> tuple[dict[str, Any], Weights, bool]:
    """Reads fields and weights; one error lists all that has no counterpart here.

    Returns:
        Fields of the config, weights by our names, and whether sinusoids are stored in 16 bits.
    """
    stacks = [_Stack(file, name) for name in STACKS]
    weights = {name: w for stack in stacks for name, w in stack.weights.items()}
    problems = [problem for stack in stacks for problem in stack.problems]
    problems += find_differences([stack.common for stack in stacks], stacks[0].common)
    for name in _NEUTRAL_FLAGS:
        if file.integer(f"decoder/{name}", 0):
            problems.append(f"`decoder/{name}` is set: it has no counterpart in a decoder")
    has_norm_bias = any("_norm.bias" in name for name in weights)
    epsilon = settings.get("layer_norm_epsilon")
    default = 1e-5 if has_norm_bias else 1e-6
    fields = {
        **{name: value for stack in stacks for name, value in stack.fields.items()},
        **stacks[0].common,
        **fields_of_parts(weights),
        "norm_type": "layer_norm" if has_norm_bias else "rms_norm",
        "layer_norm_eps": default if epsilon is None else epsilon,
        "logit_scale": file.number("decoder/scale_outputs", 1.0),
        "alignment_heads": _aligning_heads(file, stacks[1]),
    }
    # Of many layers, a variable is named once.
    left = [name for name in file.variables.keys() - file.asked if not _UNREAD.fullmatch(name)]
    kinds = sorted({re.sub(r"layer_\d+", "layer_N", name) for name in left})
    problems += [f"`{name}` has no counterpart" for name in kinds]
    raise_problems("The model cannot be converted", problems)
    return fields, weights, any(stack.is_rounded for stack in stacks)


def _aligning_heads(file: ModelBin, decoder: "_Stack") -> list[list[int]] | None:
    """Returns the heads whose attention CTranslate2 returns, unless that is a default.

    The converters name the first head of the last layer if no head was trained to align.
    """
    layer = file.integer("decoder/alignment_layer", -1)
    count = file.integer("decoder/alignment_heads", 1)
    layers = decoder.layers
    if (layer, count) == (-1, 1) or (layer % layers, count) == (aligning_layer(layers), 0):
        return None
    return [[layer % layers, head] for head in range(count or decoder.heads)]


class _Stack:
    """Reads a stack, whose layers are alike.

    Attributes:
        weights: Its weights by our names.
        fields: Config fields of this stack.
        common: Config fields that must be the same in both stacks.
        problems: A sentence for each option without a counterpart here.
        is_rounded: Whether the file holds its sinusoids in 16 bits.
    """

    def __init__(self, file: ModelBin, name: str) -> None:
        self.file, self.name, first = file, name, f"{name}/layer_0"
        self.problems: list[str] = []
        self.is_rounded = False
        layers = (re.match(rf"{name}/layer_(\d+)/", each) for each in file.variables)
        self.layers = len({match[1] for match in layers if match})
        self.heads = file.integer(f"{name}/num_heads", 8)
        joined, (d_model, width) = (
            file.variables[f"{first}/self_attention/linear_{number}/weight"].shape
            for number in (0, 1)
        )
        keys = (joined[0] - width) // 2  # queries first, then keys, values
        self.head_dim = width // self.heads
        placement = "pre" if file.integer(f"{name}/pre_norm", 1) else "post"
        is_gated = f"{first}/ffn/linear_0_noact/weight" in file.variables
        paths = module_paths(name, self.layers, placement, is_gated)
        self.weights: Weights = dict(self._read_weights(paths, width, keys))
        number = file.integer(f"{name}/activation", 0)
        if number not in ACTIVATIONS.values():
            self.problems.append(f"`{name}/activation` has the unknown number {number}")
        self.fields = {
            f"{name}_attention_heads": self.heads,
            f"{name}_num_key_value_heads": keys // self.head_dim,
        }
        self.common = {
            "activation_function": next((n for n, at in ACTIVATIONS.items() if at == number), None),
            "norm_placement": placement,
            "scale_embedding": self._scales_embedding(d_model),
            "head_dim": None if width == d_model else self.head_dim,
            "attention_scale": file.number(f"{first}/self_attention/queries_scale"),
            **self._read_positions(),
        }

    def _read_weights(
        self, paths: Mapping[str, Sequence[str]], queries: int, keys: int
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the weights by our names; several projections are cut out of one matrix."""
        for path, modules in paths.items():
            if f"{path}/weight" not in self.file.variables:  # an old file has one table of sources
                path = path.replace("embeddings_0", "embeddings")
            rows = [queries if module.endswith("q_proj") else keys for module in modules]
            for theirs, ours in PARAMETERS.items():
                if f"{path}/{theirs}" in self.file.variables:
                    values = self.file.weight(f"{path}/{theirs}")
                    parts = values.split(rows) if len(modules) > 1 else [values]
                    for module, part in zip(modules, parts, strict=True):
                        yield f"{module}.{ours}", part

    def _scales_embedding(self, d_model: int) -> bool:
        """Returns whether embeddings are multiplied by the root of d_model."""
        name = f"{self.name}/scale_embeddings"
        scale = self.file.number(name)
        if scale is None:
            tables = (f"{self.name}/embeddings{end}/multiply_by_sqrt_depth" for end in ("_0", ""))
            return all(self.file.integer(table, 1) for table in tables)
        if self.file.variables[name].dtype == torch.int8:  # a flag
            return bool(scale)
        if scale != 1 and not math.isclose(scale, math.sqrt(d_model), rel_tol=1e-3):
            self.problems.append(
                f"`{name}` is {scale:g}: only 1 and the root of d_model, {math.sqrt(d_model):g}, "
                "have a counterpart"
            )
        return scale != 1

    def _read_positions(self) -> dict[str, Any]:
        """Returns the fields of the positions; tables are added to the weights."""
        file, ours = self.file, f"model.{self.name}.embed_positions.weight"
        layers = [self._positions_of(layer) for layer in range(self.layers)]
        if any(each != layers[0] for each in layers):
            self.problems.append(f"`{self.name}`: positions differ from layer to layer")
        name = f"{self.name}/position_encodings/encodings"
        if layers[0]:
            file.asked.add(name)  # it is all zeros, if it is there
            if table := layers[0].pop("table", None):
                self.weights[ours] = torch.tensor(table)
            return layers[0]
        if name not in file.variables:
            return {"position_embedding_type": "sinusoidal_fairseq", "position_offset": 1}
        table = file.weight(name)
        if known := recognise_positions(table):
            has_sinusoids = known["position_embedding_type"] in SINUSOIDS
            self.is_rounded = has_sinusoids and table.dtype != torch.float32
            return known
        self.weights[ours] = table
        return {"position_embedding_type": "learned", "max_position_embeddings": len(table)}

    def _positions_of(self, layer: int) -> dict[str, Any]:
        """Returns the fields of positions in attention, and the table of relative ones."""
        file, path = self.file, f"{self.name}/layer_{layer}/self_attention"
        if f"{path}/relative_attention_bias" in file.variables:
            table = file.weight(f"{path}/relative_attention_bias")
            distance = file.integer(f"{path}/relative_attention_max_distance", 128)
            return {
                "position_embedding_type": "relative",
                "relative_attention_num_buckets": len(table),
                "relative_attention_max_distance": distance,
                "table": table.tolist(),
            }
        if f"{path}/rotary_dim" not in file.variables:
            return {}
        width = file.integer(f"{path}/rotary_dim", 0) or self.head_dim
        if file.integer(f"{path}/rotary_interleave", 1):
            self.problems.append(
                f"`{path}/rotary_interleave` is set: only halves have a counterpart"
            )
        rope: dict[str, Any] = {
            "rope_type": "default",
            "rope_theta": file.number(f"{path}/rotary_base", 10000.0),
        }
        if width != self.head_dim:
            rope["partial_rotary_factor"] = width / self.head_dim
        return {"position_embedding_type": "rope", "rope_parameters": rope}


def recognise_positions(table: torch.Tensor) -> dict[str, Any] | None:
    """Returns the fields of positions that a model here computes itself; None: they are learned.

    The table, (positions, d_model), may be in half precision.
    """
    if not table.any():
        return {"position_embedding_type": "none"}
    rounding = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(table.dtype, 0.0)
    for scheme in SINUSOIDS:
        for offset in range(4):  # a table may begin behind the position of padding
            if all(holds_sinusoids(rows, scheme, offset, rounding) for rows in (table[:16], table)):
                return {"position_embedding_type": scheme, "position_offset": offset}
    return None
