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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.checkpoint_files import read_training_checkpoint
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.vocabularies import (
    align_vocabularies,
    build_with_vocabularies,
    make_tokenizer,
)
from vanilla_transformer.weights.match_weights import (
    RenamedWeights,
    Rules,
    Target,
    WeightRule,
    fields_of_parts,
    find_unknown_values,
    layer_rules,
    raise_problems,
    rename_weights,
    with_defaults,
)

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
    **dict.fromkeys(("copy_attn", "parallel_residual", "lora_embedding"), (False,)),
    **dict.fromkeys(("max_relative_positions", "relative_positions_buckets"), (0,)),
    **dict.fromkeys(("num_experts", "sliding_window", "n_src_feats"), (0,)),
    **dict.fromkeys(("lora_layers", "quant_layers"), ([],)),
}
"""The values of options that have a counterpart here. An option that is empty has the first."""

PROJECTIONS = {"linear_query": "q", "linear_keys": "k", "linear_values": "v", "final_linear": "out"}
"""The projections of attention by their names in OpenNMT-py and Eole."""

OLD_NORMS: Rules = {r"(.*norm.*)\.a_2": r"\1.weight", r"(.*norm.*)\.b_2": r"\1.bias"}
"""Names of the parameters of norms in the first versions, and in The Annotated Transformer."""


def read_opennmt(source: str | Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Reads a checkpoint of an OpenNMT-py transformer: see `interop.formats`."""
    checkpoint = read_training_checkpoint(source)
    missing = [
        f"`{name}` is missing"
        for name in ("model", "generator", "opt", "vocab")
        if not isinstance(checkpoint.get(name), dict)
    ]
    raise_problems(f"{str(source)!r} is no checkpoint of OpenNMT-py", missing)
    output = {n.removeprefix("0."): tensor for n, tensor in checkpoint["generator"].items()}
    weights = {**checkpoint["model"], **{f"generator.{n}": tensor for n, tensor in output.items()}}
    options = with_defaults(checkpoint["opt"], EXPECTED)
    problems = find_unknown_values(options, EXPECTED)
    problems += [] if options.get("heads") else ["`heads` is missing"]
    raise_problems("The model cannot be converted", problems)
    both = {"heads": options["heads"], "heads_kv": options.get("num_kv")}
    activation, gated = ACTIVATIONS[options.get("pos_ffn_activation_fn", "relu")]
    has_positions = bool(options.get("position_encoding"))
    kind = POSITIONS[options.get("position_encoding_type") or "SinusoidalInterleaved"]
    fields = {
        **common_fields(options, {"encoder": both, "decoder": both}),
        "activation_function": activation,
        "gated_ffn": gated,
        "norm_type": NORMS[options.get("layer_norm", "standard")],
        "layer_norm_eps": options.get("norm_eps") or 1e-6,
        "position_embedding_type": kind if has_positions else "none",
        "scale_embedding": has_positions,
    }
    rules = _name_rules(gated)
    if has_positions:
        rules[r"(en|de)coder\.embeddings\.make_embedding\.pe\.pe"] = WeightRule(sinusoids=kind)
    renamed = rename_weights(weights, OLD_NORMS, rules)
    return import_with_words(renamed, fields, checkpoint["vocab"], SPECIAL_TOKENS, changes)


def import_with_words(
    renamed: RenamedWeights,
    fields: Mapping[str, Any],
    vocab: Mapping[str, Any],
    special: Mapping[str, str],
    changes: Mapping[str, Any] | None,
) -> Imported:
    """Builds the model and its tokenizer, whose sources have no `</s>`.

    Args:
        fields: Config fields, without the fields of biases.
        vocab: The words "src" and "tgt" by id, and perhaps a "decoder_start_token".
    """
    parts = fields_of_parts(renamed.weights)
    fields = {**fields, **{name: parts[name] for name in ("attention_bias", "ffn_bias")}}
    start = vocab.get("decoder_start_token") or special["bos_token"]
    settings = {**special, "decoder_start_token": start}
    aligned = align_vocabularies(vocab["src"], vocab["tgt"], settings)
    zeros = _absent_biases(renamed.weights)
    model = build_with_vocabularies(renamed, fields, aligned, changes, zeros)
    tokenizer, about = make_tokenizer(aligned, source_eos=False)
    return Imported(model, tokenizer, notes=(*aligned.notes, *about))


def common_fields(
    training: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the config fields that OpenNMT-py and Eole express alike."""
    dropout = _first_value(training.get("dropout"))
    keys = {name: stack.get("heads_kv") or stack["heads"] for name, stack in stacks.items()}
    return {
        **{f"{name}_attention_heads": stack["heads"] for name, stack in stacks.items()},
        **{f"{name}_num_key_value_heads": count for name, count in keys.items()},
        "norm_placement": "pre",
        "final_layer_norm": True,
        "dropout": dropout,
        "activation_dropout": dropout,
        "attention_dropout": _first_value(training.get("attention_dropout")),
        "label_smoothing": training.get("label_smoothing") or 0.0,
    }


def _first_value(value: Any) -> float:
    """Returns a rate, or the first of the rates that a schedule lists; 0 if there is none."""
    values = value if isinstance(value, list) else [value]
    return float(values[0] or 0.0) if values else 0.0


def _absent_biases(weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns expressions for biases of attention that the source has in no layer of a stack."""
    expressions = (
        rf"model\.{stack}\..*_attn\.{letter}_proj\.bias"
        for stack in ("encoder", "decoder")
        for letter in PROJECTIONS.values()
    )
    return [each for each in expressions if not any(re.fullmatch(each, name) for name in weights)]


def _name_rules(gated: bool) -> dict[str, Target]:
    """Returns the rules for names; a gated feed-forward layer has three matrices."""
    inner = {"w_1": "gate", "w_2": "fc2", "w_3": "fc1"} if gated else {"w_1": "fc1", "w_2": "fc2"}
    names = {
        "layer_norm(?:_1)?": "self_attn_pre_norm",
        "layer_norm_2": "encoder_attn_pre_norm",
        r"feed_forward\.layer_norm": "feed_forward_pre_norm",
        **{rf"feed_forward\.{theirs}": f"feed_forward.{ours}" for theirs, ours in inner.items()},
    }
    table = r"(encoder|decoder)\.embeddings\.make_embedding\.emb_luts\.0\.weight"
    return {
        table: r"model.\1.embed_tokens.weight",
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
