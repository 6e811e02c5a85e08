"""Converts models of OpenNMT-py, and of Eole, its successor; neither is needed.

A checkpoint of OpenNMT-py 3 holds weights (`model`, `generator`), options (`opt`) and vocabularies
(`vocab`). A model of Eole is a directory: `config.json` holds the options that differ from Eole's
defaults, weights are in `model.00.safetensors`, words in `vocab.json`. Facts about them come from
OpenNMT-py 3.5.1 (`model_builder`, `encoders/transformer`, `decoders/transformer`,
`modules/embeddings`) and Eole 0.6.4 (the same files, and `config/models`):

- layers are pre-norm, both stacks end with a norm, and the epsilon of norms is 1e-6 in OpenNMT-py
  and 1e-5 in Eole, unless it is given;
- embeddings are multiplied by sqrt(d_model) only where sinusoids are added to them;
- a source has neither `<s>` nor `</s>`; a target begins with `<s>` and ends with `</s>`;
- "silu" and "gated-gelu" of OpenNMT-py are gated: `w_1` is the gate, and `w_3` is multiplied with
  it;
- Eole multiplies scores by `attn_scaling` to the power of -1/2.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.interop.checkpoint_files import read_state_dict, read_training_checkpoint
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.vocabularies import (
    align_vocabularies,
    build_with_vocabularies,
    make_tokenizer,
)
from vanilla_transformer.weights.match_weights import (
    LETTERS,
    NORM_SPELLINGS,
    STACKS,
    RenamedWeights,
    Rules,
    WeightRule,
    attention_names,
    fields_of_parts,
    find_differences,
    find_unknown_values,
    layer_rules,
    raise_problems,
    rename_weights,
    with_defaults,
)
from vanilla_transformer.weights.sinusoids import SINUSOIDS

SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "pad_token": "<blank>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}

POSITIONS = {"SinusoidalInterleaved": "sinusoidal", "SinusoidalConcat": "sinusoidal_fairseq"}
"""The values of `position_embedding_type` by their names in both systems."""

ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu-tanh": ("gelu_pytorch_tanh", False),
    "quick_gelu": ("quick_gelu", False),
    "silu": ("silu", False),
    "gated-gelu": ("gelu", True),
    "gated-gelu-tanh": ("gelu_pytorch_tanh", True),
    "gated-silu": ("silu", True),
}
"""The activation, and whether it is gated, by its name in Eole."""

ACTIVATIONS_OF_OPENNMT = {**{n: n for n in ("relu", "gelu", "gated-gelu")}, "silu": "gated-silu"}
"""The names in Eole by those in OpenNMT-py; an empty option stands for the first one."""

NORMS = {"standard": "layer_norm", "standardFP32": "layer_norm", "rms": "rms_norm"}
"""The values of `norm_type` by their names in Eole; OpenNMT-py has no "standardFP32"."""

# The values that both systems have counterparts of here.
_OF_A_STACK: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("encoder_type", "decoder_type"), ("transformer",)),
    **dict.fromkeys(("num_experts", "sliding_window", "relative_positions_buckets"), (0,)),
    "parallel_residual": (False,),
}
_OF_THE_TRAINING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("lora_layers", "quant_layers"), ([],)),
    "lora_embedding": (False,),
}
EXPECTED: dict[str, tuple[Any, ...]] = {
    **_OF_A_STACK,
    **_OF_THE_TRAINING,
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "generator_function": ("softmax",),
    "pos_ffn_activation_fn": tuple(ACTIVATIONS_OF_OPENNMT),
    "layer_norm": ("standard", "rms"),
    "position_encoding_type": (*POSITIONS, None),
    **dict.fromkeys(("max_relative_positions", "n_src_feats"), (0,)),
    "copy_attn": (False,),
}
"""The values of OpenNMT-py's options that have a counterpart here; empty ones have the first."""

_OF_A_STACK_OF_EOLE: dict[str, tuple[Any, ...]] = {
    **_OF_A_STACK,
    "encoder_layer_style": ("standard",),
    "layer_norm": tuple(NORMS),
    "mlp_activation_fn": tuple(ACTIVATIONS),
    "final_encoder_layer_norm": (True,),
    **dict.fromkeys(("ffn_layernorm", "q_gating"), (False,)),
    **dict.fromkeys(("query_norm", "key_norm", "value_norm"), (False,)),
    **dict.fromkeys(("head_dim", "layer_types"), (None,)),
    "num_mtp_heads": (0,),
}
EXPECTED_OF_EOLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "model": {
        "architecture": ("transformer", "custom"),
        "generator_function": ("softmax",),
        "add_estimator": (False,),
    },
    "embeddings": {
        "embedding_type": ("standard",),
        "position_encoding_type": (*POSITIONS, "Learned", None),
        "embedding_layer_norm": (False,),
    },
    "training": _OF_THE_TRAINING,
    **dict.fromkeys(STACKS, _OF_A_STACK_OF_EOLE),
}
"""The values of Eole's options that have a counterpart here, by group."""

SAME_IN_BOTH = {
    "layer_norm": "standard",
    "norm_eps": 1e-5,
    "mlp_activation_fn": "relu",
    "attn_scaling": None,
}
"""Options of Eole that must be the same in both stacks, with their defaults."""

PROJECTIONS = ("linear_query", "linear_keys", "linear_values", "final_linear")
"""The projections of attention by their names in both systems."""

Options = dict[str, Mapping[str, Any]]
"""Options by name, in Eole's groups: "model", "embeddings", "training", "encoder", "decoder"."""


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
    fields = _read_fields(_as_in_eole(options))
    renamed = rename_weights(weights, NORM_SPELLINGS, _rules_of_opennmt(fields))
    return _import_with_words(renamed, fields, checkpoint["vocab"], SPECIAL_TOKENS, changes)


def read_eole(source: str | Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Reads a model of Eole with a transformer encoder and decoder: see `interop.formats`."""
    folder = Path(source)
    config, vocab = (read_object(folder / name) for name in ("config.json", "vocab.json"))
    special = {**SPECIAL_TOKENS, **(vocab.get("specials") or {})}
    special = {role: special[role] for role in SPECIAL_TOKENS}
    options = _group_options(config)
    raise_problems("The model cannot be converted", _find_unknown_options(options))
    weights = _read_weights(folder)
    fields = _read_fields(options)
    tied = {}  # matrices that the file has once
    if options["model"].get("share_embeddings"):
        tied["tgt_emb.embeddings.weight"] = weights.get("src_emb.embeddings.weight")
    if options["model"].get("share_decoder_embeddings"):
        tied["generator.weight"] = weights.get("tgt_emb.embeddings.weight")
    present = {name: tensor for name, tensor in tied.items() if tensor is not None}
    renamed = rename_weights({**present, **weights}, _rules_of_eole(fields))
    return _import_with_words(renamed, fields, vocab, special, changes)


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Reads all shards, without buffers that change nothing."""
    shards = sorted(folder.glob("model.*.safetensors"))
    weights = {name: w for shard in shards for name, w in read_state_dict(shard).items()}
    return {
        name: tensor
        for name, tensor in weights.items()
        if not (name.endswith(".layer_scalar") and bool((tensor == 1).all()))
    }


# Options -----------------------------------------------------------------------------------------


def _as_in_eole(options: Mapping[str, Any]) -> Options:
    """Returns the options of OpenNMT-py by their groups and names in Eole."""
    scheme = options.get("position_encoding_type") or "SinusoidalInterleaved"
    both = {
        "heads": options["heads"],
        "heads_kv": options.get("num_kv"),
        "mlp_activation_fn": ACTIVATIONS_OF_OPENNMT[options.get("pos_ffn_activation_fn", "relu")],
        "layer_norm": options.get("layer_norm", "standard"),
        "norm_eps": options.get("norm_eps") or 1e-6,
        "attn_scaling": None,
    }
    positions = {"position_encoding_type": scheme if options.get("position_encoding") else None}
    return {"embeddings": positions, "training": options, "encoder": both, "decoder": both}


def _group_options(config: Mapping[str, Any]) -> Options:
    """Returns the options of Eole; those of the model hold for both stacks, unless a stack's do."""
    model = config.get("model") or {}
    return {
        "model": model,
        "embeddings": model.get("embeddings") or {},
        "training": config.get("training") or {},
        **{stack: {**SAME_IN_BOTH, **model, **(model.get(stack) or {})} for stack in STACKS},
    }


def _find_unknown_options(options: Options) -> list[str]:
    """Returns a sentence for each option of Eole that has no counterpart here."""
    problems = [
        problem
        for group, known in EXPECTED_OF_EOLE.items()
        for problem in find_unknown_values(options[group], known, f"{group}.")
    ]
    problems += find_differences([options[stack] for stack in STACKS], SAME_IN_BOTH)
    problems += [f"`{stack}.heads` is missing" for stack in STACKS if "heads" not in options[stack]]
    embeddings = options["embeddings"]
    if embeddings.get("normalize") and embeddings.get("position_encoding_type") == "Learned":
        problems.append("`embeddings.normalize` multiplies learned positions too")
    return problems


def _read_fields(options: Options) -> dict[str, Any]:
    """Returns the config fields that the options mean; sizes are read from the weights."""
    training, embeddings, decoder = (options[n] for n in ("training", "embeddings", "decoder"))
    positions = embeddings.get("position_encoding_type", "SinusoidalInterleaved")
    kind = "none" if positions is None else {**POSITIONS, "Learned": "learned"}[positions]
    scaling, dropout = decoder["attn_scaling"], _first_value(training.get("dropout"))
    activation, gated = ACTIVATIONS[decoder["mlp_activation_fn"]]
    heads = {stack: options[stack]["heads"] for stack in STACKS}
    return {
        **{f"{stack}_attention_heads": count for stack, count in heads.items()},
        **{
            f"{stack}_num_key_value_heads": options[stack].get("heads_kv") or count
            for stack, count in heads.items()
        },
        "activation_function": activation,
        "gated_ffn": gated,
        "norm_placement": "pre",
        "final_layer_norm": True,
        "norm_type": NORMS[decoder["layer_norm"]],
        "layer_norm_eps": decoder["norm_eps"],
        "attention_scale": None if scaling is None else scaling**-0.5,
        "position_embedding_type": kind,
        "position_offset": embeddings.get("position_shift") or 0 if kind == "learned" else 0,
        "scale_embedding": kind in SINUSOIDS or bool(embeddings.get("normalize")),
        "dropout": dropout,
        "activation_dropout": dropout,
        "attention_dropout": _first_value(training.get("attention_dropout")),
        "label_smoothing": training.get("label_smoothing") or 0.0,
    }


def _first_value(value: Any) -> float:
    """Returns a rate, or the first of the rates that a schedule lists; 0 if there is none."""
    values = value if isinstance(value, list) else [value]
    return float(values[0] or 0.0) if values else 0.0


# Names and words ----------------------------------------------------------------------------------


def _rules_of_opennmt(fields: Mapping[str, Any]) -> Rules:
    """Returns the rules for names; a gated feed-forward layer has three matrices."""
    inner = {"w_1": "fc1", "w_2": "fc2"}
    if fields["gated_ffn"]:
        inner = {"w_1": "gate", "w_2": "fc2", "w_3": "fc1"}
    names = {
        "layer_norm(?:_1)?": "self_attn_pre_norm",
        "layer_norm_2": "encoder_attn_pre_norm",
        r"feed_forward\.layer_norm": "feed_forward_pre_norm",
        **{rf"feed_forward\.{theirs}": f"feed_forward.{ours}" for theirs, ours in inner.items()},
    }
    table = r"(encoder|decoder)\.embeddings\.make_embedding\."
    return {
        rf"{table}emb_luts\.0\.weight": r"model.\1.embed_tokens.weight",
        **_common_rules(r"(encoder|decoder)\.transformer(?:_layers)?\.(\d+)\.", names),
        **_rules_of_sinusoids(rf"{table}pe\.pe", fields),
    }


def _rules_of_eole(fields: Mapping[str, Any]) -> Rules:
    """Returns the rules for names; a gated feed-forward layer has three matrices."""
    names = {
        "input_layernorm": "self_attn_pre_norm",
        "precontext_layernorm": "encoder_attn_pre_norm",
        "post_attention_layernorm": "feed_forward_pre_norm",
        r"mlp\.gate_up_proj": f"feed_forward.{'gate' if fields['gated_ffn'] else 'fc1'}",
        r"mlp\.up_proj": "feed_forward.fc1",
        r"mlp\.down_proj": "feed_forward.fc2",
    }
    return {
        r"src_emb\.embeddings\.weight": "model.encoder.embed_tokens.weight",
        r"tgt_emb\.embeddings\.weight": "model.decoder.embed_tokens.weight",
        r"src_emb\.pe\.weight": "model.encoder.embed_positions.weight",
        r"tgt_emb\.pe\.weight": "model.decoder.embed_positions.weight",
        **_common_rules(r"(encoder|decoder)\.transformer_layers\.(\d+)\.", names),
        **_rules_of_sinusoids(r"(src|tgt)_emb\.pe\.pe", fields),
    }


def _common_rules(layer: str, names: Mapping[str, str]) -> Rules:
    """Returns the rules for stacks and output projection, which both systems name alike."""
    attentions = attention_names("self_attn", "context_attn", PROJECTIONS)
    return {
        **layer_rules(layer, {**attentions, **names}),
        r"(encoder|decoder)\.layer_norm\.(\w+)": r"model.\1.final_norm.\2",
        r"generator\.(\w+)": r"lm_head.\1",
    }


def _rules_of_sinusoids(expression: str, fields: Mapping[str, Any]) -> Rules:
    """Returns the rule for tables of sinusoids; a model with other positions has none."""
    kind = fields["position_embedding_type"]
    return {expression: WeightRule(sinusoids=kind)} if kind in SINUSOIDS else {}


def _import_with_words(
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


def _absent_biases(weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns expressions for biases of attention that the source has in no layer of a stack."""
    expressions = (
        rf"model\.{stack}\..*_attn\.{letter}_proj\.bias" for stack in STACKS for letter in LETTERS
    )
    return [each for each in expressions if not any(re.fullmatch(each, name) for name in weights)]
