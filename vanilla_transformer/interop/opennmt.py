"""Converts checkpoints of OpenNMT-py; OpenNMT-py is not needed.

A checkpoint of version 3 holds weights (`model`, `generator`), options (`opt`) and vocabularies
(`vocab`). Facts about them come from OpenNMT-py 3.5.1 (`model_builder`, `encoders/transformer`,
`decoders/transformer`, `modules/embeddings`):

- layers are pre-norm, both stacks end with a norm, and the epsilon of norms is 1e-6;
- embeddings are multiplied by sqrt(d_model) only where sinusoids are added to them;
- a source has neither `<s>` nor `</s>`; a target begins with `<s>` and ends with `</s>`;
- "silu" and "gated-gelu" are gated: `w_1` is the gate, and `w_3` is multiplied with it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.checkpoint_files import (
    read_state_dict,
    read_training_checkpoint,
)
from vanilla_transformer.interop.funnel import Imported
from vanilla_transformer.interop.match_weights import (
    Rules,
    are_equal,
    build_model,
    find_unknown_values,
    fit_weights,
    layer_rules,
    raise_problems,
    rename_weights,
)
from vanilla_transformer.interop.sinusoids import SINUSOIDS, find_wrong_sinusoids
from vanilla_transformer.interop.tokenizers import word_backend
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "pad_token": "<blank>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
"""The special tokens by their role."""

POSITIONS = {"SinusoidalInterleaved": "sinusoidal", "SinusoidalConcat": "sinusoidal_fairseq"}
"""The values of `position_embedding_type` by their names in OpenNMT-py."""

ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("silu", True),
    "gated-gelu": ("gelu", True),
}
"""The activation, and whether it is gated, by its name in OpenNMT-py."""

NORMS = {"standard": "layer_norm", "rms": "rms_norm"}
"""The values of `norm_type` by their names in OpenNMT-py."""

EXPECTED: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "generator_function": ("softmax",),
    "pos_ffn_activation_fn": tuple(ACTIVATIONS),
    "layer_norm": tuple(NORMS),
    "position_encoding_type": (*POSITIONS, None),
    "copy_attn": (False,),
    "parallel_residual": (False,),
    "max_relative_positions": (0,),
    "relative_positions_buckets": (0,),
    "num_experts": (0,),
    "sliding_window": (0,),
    "n_src_feats": (0,),
    "lora_embedding": (False,),
    "lora_layers": ([],),
    "quant_layers": ([],),
}
"""The values of options that have a counterpart here. An option that is empty has the first."""

PROJECTIONS = {
    "linear_query": "q",
    "linear_keys": "k",
    "linear_values": "v",
    "final_linear": "out",
}
"""The projections of attention by their names in OpenNMT-py and Eole."""

OLD_NORMS: Rules = {r"(.*norm.*)\.a_2": r"\1.weight", r"(.*norm.*)\.b_2": r"\1.bias"}
"""Names of the parameters of norms in the first versions, and in The Annotated Transformer."""

_PE = r"coder\.embeddings\.make_embedding\.pe\.pe"
_REMEDY_FOR_OLD_FILES = (
    "A checkpoint of OpenNMT-py 1 or 2 holds objects of torchtext: convert it with OpenNMT-py's "
    "`tools/convertv2_v3.py` first."
)


def read_opennmt(source: str | Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Reads a checkpoint of an OpenNMT-py transformer: see `interop.formats`."""
    try:
        checkpoint = read_training_checkpoint(source)
    except ValueError as error:
        if "torchtext" not in str(error):
            raise
        raise ValueError(f"{error}. {_REMEDY_FOR_OLD_FILES}") from error
    if "model" not in checkpoint:
        checkpoint |= _read_weights_beside(Path(source))
    missing = [
        f"`{name}` is missing"
        for name in ("model", "generator", "opt", "vocab")
        if not isinstance(checkpoint.get(name), dict)
    ]
    raise_problems(f"{str(source)!r} is no checkpoint of OpenNMT-py", missing)
    output = {n.removeprefix("0."): tensor for n, tensor in checkpoint["generator"].items()}
    weights = {**checkpoint["model"], **{f"generator.{n}": tensor for n, tensor in output.items()}}
    options = checkpoint["opt"]
    vocabularies = (checkpoint["vocab"].get("src"), checkpoint["vocab"].get("tgt"))
    given = {name: value or EXPECTED.get(name, [None])[0] for name, value in options.items()}
    problems = [*find_unknown_values(given, EXPECTED), *find_vocabulary_problems(vocabularies)]
    problems += [] if options.get("heads") else ["`heads` is missing"]
    raise_problems("The model cannot be converted", problems)
    fields = {**_read_fields(options, weights, checkpoint["vocab"]), **(changes or {})}
    trained = without_sinusoids(weights, fields["position_embedding_type"], f"(en|de){_PE}")
    renamed = rename_weights(trained, OLD_NORMS, _name_rules(fields["gated_ffn"]))
    config, fitted = fit_weights(renamed, fields, absent_biases(weights))
    return Imported(
        build_model(config, fitted),
        make_tokenizer(*vocabularies),
        notes=("Its texts are segmented as for OpenNMT-py: words and subwords between spaces.",),
    )


def _read_weights_beside(path: Path) -> dict[str, Any]:
    """Reads weights that are in safetensors beside the options (`save_format: safetensors`)."""
    shards = [path.with_suffix(".safetensors"), *sorted(path.parent.glob(f"{path.stem}.*.safet*"))]
    found = {n: w for shard in dict.fromkeys(shards) if shard.is_file()
             for n, w in read_state_dict(shard).items()}  # fmt: skip
    parts: dict[str, Any] = {"model": {}, "generator": {}}
    for name, tensor in found.items():
        part = "generator" if name.startswith("generator.") else "model"
        parts[part][name.removeprefix("generator.")] = tensor
    return parts if found else {}


def find_vocabulary_problems(
    vocabularies: Sequence[Any], special: Mapping[str, str] = SPECIAL_TOKENS
) -> list[str]:
    """Returns a sentence for each way in which two vocabularies cannot be used."""
    problems = []
    for side, words in zip(("src", "tgt"), vocabularies, strict=True):
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            problems.append(f"`vocab` holds no list of words `{side}`")
            continue
        lost = [token for token in special.values() if token not in words]
        if lost and side == "tgt":
            problems.append(f"the vocabulary `tgt` lacks {lost}")
        if len(set(words)) < len(words):
            problems.append(f"the vocabulary `{side}` repeats words")
    if not problems:
        pad = special["pad_token"]
        pads = {words.index(pad) for words in vocabularies if pad in words}
        if len(pads) > 1:
            problems.append(f"`{pad}` has the ids {sorted(pads)} in the two vocabularies")
    return problems


def _read_fields(
    options: Mapping[str, Any], weights: Mapping[str, torch.Tensor], vocab: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the config fields that the options mean; sizes are read from the weights."""
    has_positions = bool(options.get("position_encoding"))
    kind = POSITIONS[options.get("position_encoding_type") or "SinusoidalInterleaved"]
    heads = options["heads"]
    both = {"heads": heads, "heads_kv": options.get("num_kv")}
    return {
        **common_fields(
            options,
            options,
            {"encoder": both, "decoder": both},
            weights,
            ACTIVATIONS[options.get("pos_ffn_activation_fn") or "relu"],
            [_embedding_of("encoder"), _embedding_of("decoder"), "generator.weight"],
        ),
        "norm_type": NORMS[options.get("layer_norm") or "standard"],
        "layer_norm_eps": options.get("norm_eps") or 1e-6,
        "position_embedding_type": kind if has_positions else "none",
        "scale_embedding": has_positions,
        "ffn_bias": any(".w_1.bias" in name for name in weights),
        "alignment_heads": guided_heads(options, options, heads, weights),
        **token_ids(vocab, SPECIAL_TOKENS),
    }


def common_fields(
    model: Mapping[str, Any],
    training: Mapping[str, Any],
    stacks: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, torch.Tensor],
    activation: tuple[str, bool],
    tables: Sequence[str],
) -> dict[str, Any]:
    """Returns the config fields that OpenNMT-py and Eole express alike.

    Args:
        stacks: `heads` and perhaps `heads_kv` of both stacks.
        tables: Names of the source's and the target's embedding, and of the output projection.
    """
    source, target, output = (weights.get(name) for name in tables)
    dropout = _first_value(training.get("dropout"))
    keys = {name: one.get("heads_kv") or one["heads"] for name, one in stacks.items()}
    return {
        **{f"{name}_attention_heads": one["heads"] for name, one in stacks.items()},
        **{f"{name}_num_key_value_heads": count for name, count in keys.items()},
        "activation_function": activation[0],
        "gated_ffn": activation[1],
        "norm_placement": "pre",
        "final_layer_norm": True,
        "attention_bias": any("_attn." in name and name.endswith(".bias") for name in weights),
        "lm_head_bias": "generator.bias" in weights,
        "share_encoder_decoder_embeddings": bool(model.get("share_embeddings"))
        or are_equal(source, target),
        "tie_word_embeddings": bool(model.get("share_decoder_embeddings"))
        or are_equal(target, output),
        "dropout": dropout,
        "activation_dropout": dropout,
        "attention_dropout": _first_value(training.get("attention_dropout")),
        "label_smoothing": training.get("label_smoothing") or 0.0,
    }


def token_ids(vocab: Mapping[str, Any], special: Mapping[str, str]) -> dict[str, Any]:
    """Returns the ids of the special tokens, and of the token that a target begins with.

    Args:
        vocab: The vocabularies, "tgt" among them, and perhaps a "decoder_start_token".
    """
    words = vocab["tgt"]
    start = vocab.get("decoder_start_token") or special["bos_token"]
    ids = {f"{role}_id": words.index(token) for role, token in special.items()}
    return {**ids, "decoder_start_token_id": words.index(start) if start in words else None}


def _embedding_of(stack: str) -> str:
    return f"{stack}.embeddings.make_embedding.emb_luts.0.weight"


def guided_heads(
    training: Mapping[str, Any],
    decoder: Mapping[str, Any],
    heads: int,
    weights: Mapping[str, torch.Tensor],
) -> list[list[int]] | None:
    """Returns the heads that a training with `lambda_align` has taught to align.

    Returns:
        Pairs [layer, head]. None: no head was taught, or with a view of the whole target, which
        decoding does not have.
    """
    if not training.get("lambda_align") or decoder.get("full_context_alignment"):
        return None
    prefix = "decoder.transformer_layers."
    layers = len({name.split(".")[2] for name in weights if name.startswith(prefix)})
    layer = decoder.get("alignment_layer", -3)
    if layer not in range(-layers, layers):
        return None
    return [[layer % layers, head] for head in range(decoder.get("alignment_heads") or heads)]


def without_sinusoids(
    weights: Mapping[str, torch.Tensor], scheme: str, tables: str
) -> dict[str, torch.Tensor]:
    """Leaves out stored tables of sinusoids, which the model computes itself.

    Args:
        scheme: The `position_embedding_type`. Tables of learned positions are kept.
        tables: Expression for the names of the tables.
    """
    if scheme not in SINUSOIDS:
        return dict(weights)
    stored = {name: tensor for name, tensor in weights.items() if re.fullmatch(tables, name)}
    wrong = find_wrong_sinusoids(stored, scheme)
    raise_problems("The positions of the checkpoint are of another kind", wrong)
    return {name: tensor for name, tensor in weights.items() if name not in stored}


def _first_value(value: Any) -> float:
    """Returns a rate, or the first of the rates that a schedule lists; 0 if there is none."""
    values = value if isinstance(value, list) else [value]
    return float(values[0] or 0.0) if values else 0.0


def absent_biases(weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns expressions for biases of attention that the source has in no layer of a stack."""
    return [
        rf"model\.{stack}\..*_attn\.{ours}_proj\.bias"
        for stack in ("encoder", "decoder")
        for theirs, ours in PROJECTIONS.items()
        if not any(n.startswith(f"{stack}.") and n.endswith(f".{theirs}.bias") for n in weights)
    ]


def _name_rules(gated: bool) -> Rules:
    """Returns the rules for names; a gated feed-forward layer has three matrices."""
    inner = {"w_1": "gate", "w_2": "fc2", "w_3": "fc1"} if gated else {"w_1": "fc1", "w_2": "fc2"}
    names = {
        "layer_norm(?:_1)?": "self_attn_pre_norm",
        "layer_norm_2": "encoder_attn_pre_norm",
        r"feed_forward\.layer_norm": "feed_forward_pre_norm",
        **{rf"feed_forward\.{theirs}": f"feed_forward.{ours}" for theirs, ours in inner.items()},
    }
    return {
        **{
            _embedding_of(stack).replace(".", r"\."): f"model.{stack}.embed_tokens.weight"
            for stack in ("encoder", "decoder")
        },
        **stack_rules(r"(encoder|decoder)\.transformer(?:_layers)?\.(\d+)\.", names),
    }


def stack_rules(layer: str, names: Mapping[str, str]) -> Rules:
    """Returns the rules for stacks and output projection, named alike by OpenNMT-py and Eole."""
    attentions = {
        rf"{theirs}\.{part}": f"{ours}.{letter}_proj"
        for theirs, ours in (("self_attn", "self_attn"), ("context_attn", "encoder_attn"))
        for part, letter in PROJECTIONS.items()
    }
    return {
        **layer_rules(layer, {**attentions, **names}),
        r"(encoder|decoder)\.layer_norm\.(\w+)": r"model.\1.final_norm.\2",
        r"generator\.(\w+)": r"lm_head.\1",
    }


def make_tokenizer(
    source: Sequence[str], target: Sequence[str], special: Mapping[str, str] = SPECIAL_TOKENS
) -> VanillaTransformerTokenizer | None:
    """Makes a tokenizer whose sources have no `</s>`, and whose targets end with it.

    Returns:
        The tokenizer; None if the special tokens have other ids in the two vocabularies.
    """
    ids = [[words.index(t) if t in words else None for t in special.values()]
           for words in (source, target)]  # fmt: skip
    if ids[0] != ids[1]:
        return None
    tokens: dict[str, Any] = {**special}
    return VanillaTransformerTokenizer(
        tokenizer_object=word_backend(source, tokens["unk_token"], None),
        target_tokenizer_object=word_backend(target, tokens["unk_token"], tokens["eos_token"]),
        **tokens,
    )
