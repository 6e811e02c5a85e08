"""Converts models of Eole, the successor of OpenNMT-py; Eole is not needed.

A model is a directory: `config.json` holds the options that differ from Eole's defaults, weights
are in `model.00.safetensors`, words in `vocab.json`. Facts about them come from Eole 0.6.4
(`config/models`, `encoders/transformer`, `decoders/transformer`, `modules/embeddings`). Layers,
sinusoids and special tokens are as in OpenNMT-py; the default epsilon of norms is 1e-5. Scores are
multiplied by `attn_scaling` to the power of -1/2.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.interop.checkpoint_files import read_state_dict
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.opennmt import (
    NORMS,
    POSITIONS,
    SPECIAL_TOKENS,
    common_fields,
    import_with_words,
    stack_rules,
)
from vanilla_transformer.weights.match_weights import (
    Target,
    WeightRule,
    find_differences,
    find_unknown_values,
    raise_problems,
    rename_weights,
)
from vanilla_transformer.weights.sinusoids import SINUSOIDS

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

LAYER_NORMS = {**NORMS, "standardFP32": "layer_norm"}
"""The values of `norm_type` by their names in Eole."""

OF_A_STACK: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "encoder_layer_style": ("standard",),
    "layer_norm": ("standard", "standardFP32", "rms"),
    "mlp_activation_fn": tuple(ACTIVATIONS),
    "final_encoder_layer_norm": (True,),
    **dict.fromkeys(("parallel_residual", "ffn_layernorm", "q_gating"), (False,)),
    **dict.fromkeys(("query_norm", "key_norm", "value_norm"), (False,)),
    **dict.fromkeys(("num_experts", "num_mtp_heads", "sliding_window"), (0,)),
    **dict.fromkeys(("head_dim", "layer_types"), (None,)),
    "relative_positions_buckets": (0,),
}
"""The values of options of a stack that have a counterpart here."""

OF_THE_EMBEDDINGS: dict[str, tuple[Any, ...]] = {
    "embedding_type": ("standard",),
    "position_encoding_type": (*POSITIONS, "Learned", None),
    "embedding_layer_norm": (False,),
}
OF_THE_MODEL: dict[str, tuple[Any, ...]] = {
    "architecture": ("transformer", "custom"),
    "generator_function": ("softmax",),
    "add_estimator": (False,),
}
OF_THE_TRAINING: dict[str, tuple[Any, ...]] = {
    "lora_layers": ([],),
    "lora_embedding": (False,),
    "quant_layers": ([],),
}
SAME_IN_BOTH = {
    "layer_norm": "standard",
    "norm_eps": 1e-5,
    "mlp_activation_fn": "relu",
    "attn_scaling": None,
}
"""Options that must be the same in both stacks, with their defaults."""


def read_eole(source: str | Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Reads a model of Eole with a transformer encoder and decoder: see `interop.formats`."""
    folder = Path(source)
    config, vocab = (read_object(folder / name) for name in ("config.json", "vocab.json"))
    special = {**SPECIAL_TOKENS, **(vocab.get("specials") or {})}
    special = {role: special[role] for role in SPECIAL_TOKENS}
    raise_problems("The model cannot be converted", _find_unknown_options(config))
    weights = _read_weights(folder)
    fields = _read_fields(config)
    rules = _name_rules(fields["gated_ffn"])
    if (kind := fields["position_embedding_type"]) in SINUSOIDS:
        rules[r"(src|tgt)_emb\.pe\.pe"] = WeightRule(sinusoids=kind)
    tied = {}  # matrices that the file has once
    options = config.get("model") or {}
    if options.get("share_embeddings"):
        tied["tgt_emb.embeddings.weight"] = weights.get("src_emb.embeddings.weight")
    if options.get("share_decoder_embeddings"):
        tied["generator.weight"] = weights.get("tgt_emb.embeddings.weight")
    present = {name: tensor for name, tensor in tied.items() if tensor is not None}
    renamed = rename_weights({**present, **weights}, rules)
    return import_with_words(renamed, fields, vocab, special, changes)


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Reads all shards, without buffers that change nothing."""
    shards = sorted(folder.glob("model.*.safetensors"))
    weights = {name: w for shard in shards for name, w in read_state_dict(shard).items()}
    return {
        name: tensor
        for name, tensor in weights.items()
        if not (name.endswith(".layer_scalar") and bool((tensor == 1).all()))
    }


def _stack_options(config: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """Returns the options of a stack: its own ones, and the model's for both stacks."""
    model = config.get("model") or {}
    return {**model, **(model.get(stack) or {})}


def _find_unknown_options(config: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each option that has no counterpart here."""
    model = config.get("model") or {}
    stacks = {stack: _stack_options(config, stack) for stack in ("encoder", "decoder")}
    groups = [
        ("model.", model, OF_THE_MODEL),
        ("embeddings.", model.get("embeddings") or {}, OF_THE_EMBEDDINGS),
        ("training.", config.get("training") or {}, OF_THE_TRAINING),
        *((f"{stack}.", options, OF_A_STACK) for stack, options in stacks.items()),
    ]
    problems = [
        problem
        for prefix, options, known in groups
        for problem in find_unknown_values(options, known, prefix)
    ]
    with_default = [{**SAME_IN_BOTH, **options} for options in stacks.values()]
    problems += find_differences(with_default, SAME_IN_BOTH)
    problems += [f"`{stack}.heads` is missing" for stack in stacks if "heads" not in stacks[stack]]
    embeddings = model.get("embeddings") or {}
    if embeddings.get("normalize") and embeddings.get("position_encoding_type") == "Learned":
        problems.append("`embeddings.normalize` multiplies learned positions too")
    return problems


def _read_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config fields that the options mean; sizes are read from the weights."""
    model, training = config.get("model") or {}, config.get("training") or {}
    embeddings = model.get("embeddings") or {}
    stacks = {stack: _stack_options(config, stack) for stack in ("encoder", "decoder")}
    decoder = {**SAME_IN_BOTH, **stacks["decoder"]}
    positions = embeddings.get("position_encoding_type", "SinusoidalInterleaved")
    kind = "none" if positions is None else {**POSITIONS, "Learned": "learned"}[positions]
    scaling = decoder["attn_scaling"]
    activation, gated = ACTIVATIONS[decoder["mlp_activation_fn"]]
    return {
        **common_fields(training, stacks),
        "activation_function": activation,
        "gated_ffn": gated,
        "norm_type": LAYER_NORMS[decoder["layer_norm"]],
        "layer_norm_eps": decoder["norm_eps"],
        "attention_scale": None if scaling is None else scaling**-0.5,
        "position_embedding_type": kind,
        "position_offset": embeddings.get("position_shift") or 0 if kind == "learned" else 0,
        "scale_embedding": kind in SINUSOIDS or bool(embeddings.get("normalize")),
    }


def _name_rules(gated: bool) -> dict[str, Target]:
    """Returns the rules for names; a gated feed-forward layer has three matrices."""
    names = {
        "input_layernorm": "self_attn_pre_norm",
        "precontext_layernorm": "encoder_attn_pre_norm",
        "post_attention_layernorm": "feed_forward_pre_norm",
        r"mlp\.gate_up_proj": f"feed_forward.{'gate' if gated else 'fc1'}",
        r"mlp\.up_proj": "feed_forward.fc1",
        r"mlp\.down_proj": "feed_forward.fc2",
    }
    return {
        r"src_emb\.embeddings\.weight": "model.encoder.embed_tokens.weight",
        r"tgt_emb\.embeddings\.weight": "model.decoder.embed_tokens.weight",
        r"src_emb\.pe\.weight": "model.encoder.embed_positions.weight",
        r"tgt_emb\.pe\.weight": "model.decoder.embed_positions.weight",
        **stack_rules(r"(encoder|decoder)\.transformer_layers\.(\d+)\.", names),
    }
