"""Converts directories of CTranslate2 back into models; CTranslate2 is not needed.

A directory holds `model.bin` with weights and attributes, `config.json`, and the vocabularies.
Facts about them come from `ctranslate2.specs` of CTranslate2 4.8, and from what it computes:

- weights in `int8` have a scale per row, weights in `int16` one scale: a weight is number / scale;
- projections of self-attention lie in one matrix, keys and values of cross-attention in another;
- an attribute that is missing has a default: the epsilon of norms is 1e-5, without a bias 1e-6;
  sinusoids that are not stored are those of fairseq from position 1 on;
- `start_from_zero_embedding` stands for a start token whose embedding is zero, as in Marian.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.interop.funnel import Imported
from vanilla_transformer.interop.match_weights import (
    SOURCE_TABLE,
    TARGET_TABLE,
    RenamedWeights,
    Weights,
    are_equal,
    build_model,
    fit_weights,
    raise_problems,
)
from vanilla_transformer.interop.model_bin import ModelBin, Variable, read_model_bin
from vanilla_transformer.interop.probe import SourceLogits, compute_outputs
from vanilla_transformer.interop.sinusoids import SINUSOIDS, sinusoids
from vanilla_transformer.interop.vocabularies import (
    Vocabularies,
    align_vocabularies,
    make_tokenizer,
    rearrange_rows,
)
from vanilla_transformer.model.positions import LearnedPositions

STACKS = ("encoder", "decoder")

OTHER_SPECIFICATIONS = {
    "TransformerDecoderSpec": "a language model without an encoder",
    "TransformerEncoderSpec": "an encoder without a decoder",
    "WhisperSpec": "Whisper, which reads sound",
    "Wav2Vec2Spec": "wav2vec 2.0, which reads sound",
    "Wav2Vec2BertSpec": "wav2vec 2.0 BERT, which reads sound",
}
"""What models of other specifications are."""

ACTIVATIONS = ("relu", "gelu_new", "silu", "gelu", "quick_gelu", "tanh", "sigmoid")
"""The activations by their number."""

WITHOUT_COUNTERPART = {
    r".*/relative_position_(keys|values)": "relative positions of Shaw et al. (2018)",
    r".*/relative_(asymmetric|left|right)_.*": "relative positions that are asymmetric",
    r"encoder/embeddings_[1-9].*": "more than one input per token (source features)",
    r".*/rotary_(long|short|low|high)_.*|.*/rotary_scaling_(long|short)_.*": (
        "rotary positions of the type Su or Llama 3"
    ),
    r".*/[qkv]_norm/.*": "norms of queries, keys or values",
    r".*/project_(in|out)/.*": "projections between embeddings and layers",
    r".*/(input|post_attention|pre_feedforward|post_feedforward|shared)_layer_norm/.*": (
        "norms before and after each sublayer, or sublayers side by side"
    ),
    r".*/weight_zero": "weights of 4 bits (AWQ)",
    r".*/sliding_window": "attention in a sliding window",
    r".*/final_logit_softcapping": "soft-capped logits",
    r".*/layer_scalar": "layers with a scale",
    r".*/memory_kv/.*": "cross-attention inside of self-attention",
}
"""What a variable without a counterpart belongs to, by expression for its name."""

_NEUTRAL_FLAGS = ("alibi", "alibi_use_positive_positions", "scale_alibi")
_UNREAD = re.compile(
    r"(with_(source_[be]os|target_bos)|user_decoder_start_tokens|(encoder/)?embeddings_merge"
    r"|(encoder/|decoder/)?multi_query_attention|(encoder|decoder)/embeddings(_0)?/"
    r"multiply_by_sqrt_depth|.*/(original_)?max_position_embeddings)"
)
"""Variables that change nothing here, or that are read where they are needed."""

_INT16_SCALE = 1000.0  # of weights whose scale is not stored


def read_ctranslate2(
    source: str | Path,
    tokenizer: str | Path | None = None,
    source_eos: bool | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a directory of CTranslate2: see `interop.formats`.

    Args:
        source: The directory.
        tokenizer: SentencePiece model, directory that holds one or two of them or a tokenizer of
            transformers, or name on the Hub. None: what lies in the directory, or else words and
            subwords between spaces.
        source_eos: Whether the tokenizer ends sources with the end token. None: what
            `interop.vocabularies` makes of the config and the padding token.
        changes: Config fields that differ from the model's.
    """
    folder = Path(source)
    file = read_specification(folder)
    settings = read_settings(folder, file)
    stored = _Stored(file)
    fields, weights = _read_model(stored, settings)
    zero_start = stored.flag("decoder/start_from_zero_embedding", False)
    raise_problems("The model cannot be converted", list(stored.problems()))
    given = read_vocabularies(folder)
    sizes = tuple(len(weights[table]) for table in (SOURCE_TABLE, TARGET_TABLE))
    for side, words, size in zip(("source", "target"), given, sizes, strict=True):
        if len(words) != size:
            raise ValueError(
                f"The {side} vocabulary in {str(folder)!r} has {len(words):,} tokens, but the "
                f"model has {size:,} rows: use the files that were written together."
            )
    vocabularies = align_vocabularies(*given, settings, zero_start)
    rearrange_rows(weights, vocabularies)
    fields = {
        **fields,
        "lm_head_bias": "lm_head.bias" in weights,
        **_sharing_fields(weights),
        **vocabularies.token_ids(),
        **(changes or {}),
    }
    renamed = RenamedWeights(weights, {name: name for name in weights})
    config, fitted = fit_weights(renamed, fields, [r".*\.(\w+_proj|fc1|fc2|gate)\.bias"])
    made = make_tokenizer(vocabularies, folder, tokenizer, source_eos)
    notes = [*vocabularies.notes, *made.notes]
    if vocabularies.start is None:
        notes.append(
            "A target begins with a token that the user of CTranslate2 gives, such as its language:"
            " set `decoder_start_token_id` or `forced_bos_token_id`."
        )
    model = build_model(config, fitted)
    logits = _logits_of_ctranslate2(folder, file, settings, given, vocabularies)
    if logits is not None and stored.rounded:
        notes.append("Its sinusoids are exact here; the file holds them in 16 bits.")
        logits = partial(_logits_with_exact_positions, logits, model, stored.rounded)
    return Imported(
        model, made.tokenizer, library="CTranslate2", source_logits=logits, notes=tuple(notes)
    )


def read_specification(folder: Path) -> ModelBin:
    """Reads `model.bin` of an encoder-decoder.

    Raises:
        FileNotFoundError: If the directory holds none.
        ValueError: If it is damaged, or holds another kind of model.
    """
    if not (folder / "model.bin").is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no model.bin: give the directory of a CTranslate2 model."
        )
    file = read_model_bin(folder / "model.bin")
    if file.specification != "TransformerSpec":
        what = OTHER_SPECIFICATIONS.get(file.specification, "unknown here")
        raise ValueError(
            f"{str(folder)!r} holds a model of the kind {file.specification!r}, which is {what}: "
            "only encoder-decoders ('TransformerSpec') can be converted."
        )
    return file


def read_settings(folder: Path, file: ModelBin) -> dict[str, Any]:
    """Reads the special tokens and the epsilon; version 5 stores them as attributes."""
    defaults = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    if (folder / "config.json").is_file():
        return {**defaults, "decoder_start_token": "<s>", **read_object(folder / "config.json")}

    def flag(name: str, default: bool) -> bool:
        return bool(file.tensor(name).item()) if name in file.variables else default

    start = defaults["bos_token" if flag("with_target_bos", True) else "eos_token"]
    return {
        **defaults,
        "add_source_bos": flag("with_source_bos", False),
        "add_source_eos": flag("with_source_eos", False),
        "decoder_start_token": None if flag("user_decoder_start_tokens", False) else start,
    }


def read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Reads the tokens of the source and of the target, in the order of their ids."""
    if shared := _read_vocabulary(folder, "shared"):
        return shared, shared
    source, target = (_read_vocabulary(folder, side) for side in ("source", "target"))
    if not source or not target:
        raise FileNotFoundError(
            f"{str(folder)!r} holds no vocabularies: shared_vocabulary.json, or "
            "source_vocabulary.json and target_vocabulary.json (or .txt) are missing."
        )
    return source, target


def _read_vocabulary(folder: Path, side: str) -> list[str]:
    """Reads one vocabulary; it is empty if there is no file."""
    path = folder / f"{side}_vocabulary.json"
    try:
        if path.is_file():
            words = json.loads(path.read_text(encoding="utf-8"))
        elif (path := path.with_suffix(".txt")).is_file():
            words = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        else:
            return []
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no vocabulary ({error}): copy it again.") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{str(path)!r} is no list of tokens: copy it again.")
    return words


# Variables ----------------------------------------------------------------------------------------


class _Stored:
    """The variables of a file; those that nobody asks for have no counterpart here."""

    def __init__(self, file: ModelBin) -> None:
        self.file = file
        self.asked: set[str] = set()
        self.found: list[str] = []  # problems
        self.rounded: dict[str, torch.Tensor] = {}  # tables of sinusoids in 16 bits, by stack

    def number(self, name: str, default: float | None = None) -> float | None:
        """Returns an attribute, also of a model that has one for both stacks."""
        names = [name, name.partition("/")[2]]
        place = next((each for each in names if each in self.file.variables), None)
        if place is None:
            return default
        self.asked.add(place)
        if self.file.variables[place].count != 1:
            raise ValueError(f"`{place}` must be one number: copy the model again.")
        return float(self.file.tensor(place).reshape(()).item())

    def flag(self, name: str, default: bool) -> bool:
        """Returns an attribute that is true or false."""
        return bool(self.number(name, default))

    def has(self, name: str) -> bool:
        """Returns whether there is a variable."""
        return name in self.file.variables

    def weight(self, name: str, axes: int) -> torch.Tensor:
        """Returns a weight with a number of axes; numbers in 8 or 16 bits become floats.

        Raises:
            ValueError: If it is missing, or has another number of axes.
        """
        variable = self.file.variables.get(name)
        if variable is None or len(variable.shape) != axes:
            found = "is missing" if variable is None else f"has the shape {variable.shape}"
            raise ValueError(f"`{name}` {found}: copy the model again.")
        self.asked.update((name, f"{name}_scale"))
        values = self.file.tensor(name)
        if values.is_floating_point():
            return values
        return values.float() / self._scale_of(name, variable)

    def _scale_of(self, name: str, variable: Variable) -> torch.Tensor:
        scale = torch.tensor(_INT16_SCALE)
        if self.has(f"{name}_scale"):
            scale = self.file.tensor(f"{name}_scale").float()
        elif variable.dtype != torch.int16:
            raise ValueError(f"`{name}` has no scale: copy the model again.")
        if scale.numel() not in (1, variable.shape[0]):
            raise ValueError(f"`{name}` of shape {variable.shape} has {scale.numel()} scales.")
        return scale.reshape(-1, *[1] * (len(variable.shape) - 1))

    def problems(self) -> Iterator[str]:
        """Yields what has no counterpart here, one sentence for each kind of variable."""
        yield from self.found
        left = [n for n in self.file.variables if n not in self.asked and not _UNREAD.fullmatch(n)]
        for expression, meaning in WITHOUT_COUNTERPART.items():
            names = [name for name in left if re.fullmatch(expression, name)]
            left = [name for name in left if name not in names]
            if names:
                yield f"`{names[0]}`: {meaning} have no counterpart"
        yield from (f"`{name}` is not known" for name in left)


# Fields and weights -------------------------------------------------------------------------------


def _read_model(
    stored: _Stored, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Returns the config fields that the variables mean, and the weights by our names."""
    read = [_Stack(stored, stack) for stack in STACKS]
    weights: Weights = {}
    for stack in read:
        weights |= stack.weights()
    encoder, decoder = read
    for name, value in encoder.common.items():
        other = decoder.common[name]
        if value != other:
            stored.found.append(
                f"`{name}` is {value!r} in the encoder and {other!r} in the decoder"
            )
    for name in _NEUTRAL_FLAGS:
        if stored.flag(f"decoder/{name}", False):
            stored.found.append(f"`decoder/{name}` is set: it has no counterpart in a decoder")
    weights["lm_head.weight"] = stored.weight("decoder/projection/weight", 2)
    if stored.has("decoder/projection/bias"):
        weights["lm_head.bias"] = stored.weight("decoder/projection/bias", 1)
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
        "attention_bias": any("_attn." in name for name in biased),
        "ffn_bias": any(".fc" in name or ".gate." in name for name in biased),
        "logit_scale": stored.number("decoder/scale_outputs", 1.0),
        "alignment_heads": _aligning_heads(stored, decoder),
        **_read_positions(stored, encoder, decoder, weights),
    }
    return fields, weights


def _sharing_fields(weights: Mapping[str, torch.Tensor]) -> dict[str, bool]:
    """Returns whether tables are the same: a file has aliases, or equal values."""
    source, target, output = (weights[n] for n in (SOURCE_TABLE, TARGET_TABLE, "lm_head.weight"))
    return {
        "share_encoder_decoder_embeddings": are_equal(source, target),
        "tie_word_embeddings": are_equal(target, output),
    }


def _aligning_heads(stored: _Stored, decoder: "_Stack") -> list[list[int]] | None:
    """Returns the heads whose attention CTranslate2 returns, unless that is a default.

    The converters name the first head of the last layer if no head was trained to align.
    """
    layer = int(stored.number("decoder/alignment_layer", -1) or 0)
    count = int(stored.number("decoder/alignment_heads", 1) or 0)
    layers = decoder.layers
    is_default = (layer, count) == (-1, 1) or (layer % layers, count) == (max(layers - 2, 0), 0)
    if is_default or not 0 <= count <= decoder.heads or layer not in range(-layers, layers):
        return None
    return [[layer % layers, head] for head in range(count or decoder.heads)]


@dataclass
class _Stack:
    """Reads the layers of a stack.

    Attributes:
        stored: The variables.
        name: "encoder" or "decoder".
        fields: Config fields of this stack, once its weights are read.
        common: Config fields that must be the same in both stacks.
        head_dim: Width of an attention head.
    """

    stored: _Stored
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    head_dim: int = 0
    _scales: set[float | None] = field(default_factory=set)
    _key_heads: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Reads the attributes."""
        stored, name = self.stored, self.name
        self.heads = int(stored.number(f"{name}/num_heads", 8) or 0)
        pattern = re.compile(rf"{name}/layer_(\d+)/.*")
        found = {int(m[1]) for n in stored.file.variables if (m := pattern.fullmatch(n))}
        self.layers = len(found)
        if self.heads < 1 or not found or found != set(range(self.layers)):
            raise ValueError(
                f"`{name}` has {self.heads} heads and the layers {sorted(found)[:9]}: the model is "
                "damaged, copy it again."
            )
        self.is_pre_norm = stored.flag(f"{name}/pre_norm", True)
        place = f"{name}/embeddings"
        self.table = f"{place}_0" if stored.has(f"{place}_0/weight") else place
        number = int(stored.number(f"{name}/activation", 0) or 0)
        if number not in range(len(ACTIVATIONS)):
            stored.found.append(f"`{name}/activation` has the unknown number {number}")
            number = 0
        self.activation = ACTIVATIONS[number]

    def weights(self) -> Weights:
        """Reads embeddings, layers and final norms, and fills in the fields."""
        stored, ours = self.stored, f"model.{self.name}"
        table = stored.weight(f"{self.table}/weight", 2)
        found: Weights = {f"{ours}.embed_tokens.weight": table}
        for name, our_name in (("layernorm_embedding", "embed_norm"), ("layer_norm", "final_norm")):
            if stored.has(f"{self.name}/{name}/gamma"):
                found |= self._norm_weights(f"{self.name}/{name}", f"{ours}.{our_name}")
        for number in range(self.layers):
            found |= self._layer_weights(f"{self.name}/layer_{number}", f"{ours}.layers.{number}")
        first = f"{self.name}/layer_0"
        for values, what in ((self._scales, "queries_scale"), (self._key_heads, "num_heads_kv")):
            if len(values) > 1:
                stored.found.append(f"`{self.name}`: the layers differ in `{what}`: {values}")
        width = self.head_dim
        self.fields = {
            f"{self.name}_attention_heads": self.heads,
            f"{self.name}_num_key_value_heads": min(self._key_heads),
        }
        self.common = {
            "activation_function": self.activation,
            "gated_ffn": stored.has(f"{first}/ffn/linear_0_noact/weight"),
            "norm_placement": "pre" if self.is_pre_norm else "post",
            "final_layer_norm": f"{ours}.final_norm.weight" in found,
            "normalize_embedding": f"{ours}.embed_norm.weight" in found,
            "scale_embedding": self._scales_embedding(table.shape[1]),
            "head_dim": None if width * self.heads == table.shape[1] else width,
            "attention_scale": min(self._scales, key=str),
        }
        return found

    def _scales_embedding(self, d_model: int) -> bool:
        """Returns whether embeddings are multiplied by the root of d_model."""
        flag = self.stored.number(f"{self.table}/multiply_by_sqrt_depth", 1.0)
        scale = self.stored.number(f"{self.name}/scale_embeddings")
        variable = self.stored.file.variables.get(f"{self.name}/scale_embeddings")
        if scale is None or variable is None or variable.dtype == torch.int8:
            return bool(flag if scale is None else scale)
        if scale != 1 and not math.isclose(scale, math.sqrt(d_model), rel_tol=1e-3):
            self.stored.found.append(
                f"`{self.name}/scale_embeddings` is {scale:g}: only 1 and the root of d_model, "
                f"{math.sqrt(d_model):g}, have a counterpart"
            )
        return scale != 1

    def _layer_weights(self, place: str, ours: str) -> Weights:
        """Reads a layer."""
        slot = "pre" if self.is_pre_norm else "post"
        found: Weights = {}
        parts = (("self_attention", "self_attn"), ("attention", "encoder_attn"))
        for name, our_name in parts[: 1 if self.name == "encoder" else 2]:
            found |= self._attention_weights(f"{place}/{name}", f"{ours}.{our_name}")
            found |= self._norm_weights(
                f"{place}/{name}/layer_norm", f"{ours}.{our_name}_{slot}_norm"
            )
        inner = {"linear_0": "fc1", "linear_1": "fc2"}
        if self.stored.has(f"{place}/ffn/linear_0_noact/weight"):
            inner = {"linear_0": "gate", "linear_0_noact": "fc1", "linear_1": "fc2"}
        for name, our_name in inner.items():
            found |= self._linear_weights(
                f"{place}/ffn/{name}", [f"{ours}.feed_forward.{our_name}"]
            )
        found |= self._norm_weights(f"{place}/ffn/layer_norm", f"{ours}.feed_forward_{slot}_norm")
        return found

    def _attention_weights(self, place: str, ours: str) -> Weights:
        """Reads an attention, and notes its scale and its number of keys."""
        stored, is_self = self.stored, ours.endswith("self_attn")
        last = f"{place}/linear_{1 if is_self else 2}"
        width = stored.weight(f"{last}/weight", 2).shape[1]
        joined = stored.weight(f"{place}/linear_{0 if is_self else 1}/weight", 2)
        keys = (len(joined) - (width if is_self else 0)) // 2
        self.head_dim = width // self.heads
        if width % self.heads or self.head_dim < 1 or keys < 1 or keys % self.head_dim:
            raise ValueError(
                f"`{place}` of width {width} has no {self.heads} heads: copy it again."
            )
        self._key_heads.add(keys // self.head_dim)
        self._scales.add(stored.number(f"{place}/queries_scale"))
        stored.asked.update((f"{place}/num_heads_kv", f"{place}/head_dim"))
        query, key, value, out = (f"{ours}.{part}_proj" for part in ("q", "k", "v", "out"))
        found = self._linear_weights(last, [out])
        if is_self:
            found |= self._linear_weights(
                f"{place}/linear_0", [query, key, value], [width, keys, keys]
            )
        else:
            found |= self._linear_weights(f"{place}/linear_0", [query])
            found |= self._linear_weights(f"{place}/linear_1", [key, value], [keys, keys])
        return found

    def _linear_weights(
        self, place: str, ours: Sequence[str], rows: Sequence[int] | None = None
    ) -> Weights:
        """Reads a matrix and its bias; `rows` tells how many of them each name gets."""
        found: Weights = {}
        for part, axes in (("weight", 2), ("bias", 1)):
            if part == "weight" or self.stored.has(f"{place}/bias"):
                values = self.stored.weight(f"{place}/{part}", axes)
                if rows is not None and sum(rows) != len(values):
                    raise ValueError(f"`{place}/{part}` has {len(values)} rows, not {sum(rows)}.")
                cut = [values] if rows is None else values.split(list(rows))
                found |= {f"{name}.{part}": one for name, one in zip(ours, cut, strict=True)}
        return found

    def _norm_weights(self, place: str, ours: str) -> Weights:
        """Reads a norm, which may have no bias."""
        found = {f"{ours}.weight": self.stored.weight(f"{place}/gamma", 1)}
        if self.stored.has(f"{place}/beta"):
            found[f"{ours}.bias"] = self.stored.weight(f"{place}/beta", 1)
        return found


# Positions ----------------------------------------------------------------------------------------


def _read_positions(
    stored: _Stored, encoder: _Stack, decoder: _Stack, weights: Weights
) -> dict[str, Any]:
    """Returns the fields of the positions; learned ones are added to the weights."""
    both = [_positions_of(stored, stack, weights) for stack in (encoder, decoder)]
    if both[0] != both[1]:
        stored.found.append(
            f"the positions of the encoder are {both[0]}, and those of the decoder {both[1]}"
        )
    return both[0]


def _positions_of(stored: _Stored, stack: _Stack, weights: Weights) -> dict[str, Any]:
    """Returns the fields of the positions of one stack."""
    first = f"{stack.name}/layer_0/self_attention"
    ours = f"model.{stack.name}.embed_positions.weight"
    attentions = [f"{stack.name}/layer_{n}/self_attention" for n in range(stack.layers)]
    if stored.has(f"{first}/relative_attention_bias"):
        tables = [stored.weight(f"{each}/relative_attention_bias", 2) for each in attentions]
        distances = {
            stored.number(f"{each}/relative_attention_max_distance") for each in attentions
        }
        if len(distances) > 1 or not all(torch.equal(tables[0], table) for table in tables):
            stored.found.append(f"`{stack.name}`: relative positions differ from layer to layer")
        weights[ours] = tables[0]
        return {
            "position_embedding_type": "relative",
            "relative_attention_num_buckets": len(tables[0]),
            "relative_attention_max_distance": int(min(distances, key=str) or 128),
        }
    if stored.has(f"{first}/rotary_dim"):
        found = [_rope_of(stored, each, stack.head_dim) for each in attentions]
        if any(each != found[0] for each in found):
            stored.found.append(f"`{stack.name}`: rotary positions differ from layer to layer")
        # The table of a stack with rotary positions is all zeros, if it is there.
        stored.asked.add(f"{stack.name}/position_encodings/encodings")
        return {"position_embedding_type": "rope", "rope_parameters": found[0]}
    name = f"{stack.name}/position_encodings/encodings"
    if not stored.has(name):
        return {"position_embedding_type": "sinusoidal_fairseq", "position_offset": 1}
    table = stored.weight(name, 2)
    if known := recognise_positions(table):
        if table.dtype != torch.float32 and known["position_embedding_type"] in SINUSOIDS:
            stored.rounded[stack.name] = table
        return known
    weights[ours] = table
    return {"position_embedding_type": "learned", "max_position_embeddings": len(table)}


def _rope_of(stored: _Stored, place: str, head_dim: int) -> dict[str, Any]:
    """Returns the parameters of RoPE in one attention."""
    width = int(stored.number(f"{place}/rotary_dim", 0) or 0) or head_dim
    if stored.flag(f"{place}/rotary_interleave", True):
        stored.found.append(f"`{place}/rotary_interleave` is set: only halves have a counterpart")
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": stored.number(f"{place}/rotary_base", 10000.0),
    }
    if width != head_dim:
        rope["partial_rotary_factor"] = width / head_dim
    kind = stored.number(f"{place}/rotary_scaling_type")
    factor = stored.number(f"{place}/rotary_scaling_factor", 1.0)
    if kind == 0:
        rope |= {"rope_type": "linear", "factor": factor}
    elif kind is not None:
        stored.found.append(f"`{place}/rotary_scaling_type` is {kind:g}: only 0 has a counterpart")
    return rope


def recognise_positions(table: torch.Tensor) -> dict[str, Any] | None:
    """Returns the fields of positions that a model here computes itself; None: they are learned.

    Args:
        table: A stored table, of shape (positions, d_model), perhaps in half precision.
    """
    if not table.any():
        return {"position_embedding_type": "none"}
    rounding = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(table.dtype, 0.0)
    exact = 2e-7 * len(table) + 1e-5  # angles are computed in float32
    for scheme in SINUSOIDS:
        for offset in range(4):  # a table may begin behind the position of padding
            head, whole = (min(16, len(table)), len(table))
            if all(
                torch.allclose(
                    table[:length].float(),
                    sinusoids(scheme, length, table.shape[1], offset),
                    rtol=0,
                    atol=exact + rounding,
                )
                for length in (head, whole)
            ):
                return {"position_embedding_type": scheme, "position_offset": offset}
    return None


# The source, run by its own engine ----------------------------------------------------------------


def _logits_of_ctranslate2(
    folder: Path,
    file: ModelBin,
    settings: Mapping[str, Any],
    given: tuple[list[str], list[str]],
    vocabularies: Vocabularies,
) -> SourceLogits | None:
    """Returns a function that computes logits with CTranslate2, or None if that cannot be.

    The targets are forced as prefixes. Rows that were added to the vocabulary have no logits there;
    they get the bias that they have here.
    """
    try:
        import ctranslate2
        import numpy as np
    except ImportError:
        return None
    repeats = any(len(set(words)) < len(words) for words in given)
    if file.version < 6 or repeats or vocabularies.adds_sources:
        return None

    def compute(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        source, target = (vocabularies.source, vocabularies.target)
        end = str(settings["eos_token"])
        known = set(given[1])
        rows = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        sources = [[source[index] for index in ids[mask.bool()].tolist()] for ids, mask in rows]
        words = [[target[i] for i in row] for row in inputs["decoder_input_ids"].tolist()]
        # A start token that was added stands for a zero embedding, which any token gets.
        prefixes = [[word if word in known else end for word in row] for row in words]
        length = inputs["decoder_input_ids"].shape[1]
        plain = {"add_source_bos": False, "add_source_eos": False, "decoder_start_token": None}
        config = json.dumps({**settings, **plain})
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            intra_threads=1,
            compute_type="float32",
            files={**files, "config.json": config.encode()},
        )
        results = translator.translate_batch(
            sources,
            target_prefix=prefixes,
            beam_size=1,
            max_decoding_length=length,
            min_decoding_length=0,
            return_logits_vocab=True,
        )
        logits = np.stack([[np.array(step).ravel() for step in each.logits[0]] for each in results])
        return vocabularies.spread_logits(torch.from_numpy(logits))

    return compute


def _logits_with_exact_positions(
    logits: SourceLogits,
    model: Any,
    tables: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """Computes the logits of the source as if it held its sinusoids in float32.

    Args:
        logits: Computes the logits of the source.
        model: The model that it became.
        tables: The rounded sinusoids by stack.
        inputs: See `interop.probe.SourceLogits`.
    """
    exact = compute_outputs(model, inputs)
    stacks = {name: getattr(model.model, name) for name in tables}
    kept = {name: stack.embed_positions for name, stack in stacks.items()}
    for name, table in tables.items():
        stacks[name].embed_positions = LearnedPositions(*table.shape)
        stacks[name].embed_positions.weight.data = table.float()
    rounded = compute_outputs(model, inputs)
    for name, positions in kept.items():
        stacks[name].embed_positions = positions
    return logits(inputs) + exact - rounded
