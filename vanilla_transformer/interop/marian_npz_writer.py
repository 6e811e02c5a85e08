"""Writes models of Marian itself, as far as it can compute them: see `interop.marian_npz`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.interop.marian_npz import (
    ACTIVATIONS,
    EPSILON,
    OPTIONS,
    PLACEMENTS,
    STACKS,
    is_transposed,
    weight_names,
)
from vanilla_transformer.interop.match_weights import (
    SOURCE_TABLE,
    TARGET_TABLE,
    Weights,
    raise_problems,
    split_self_attention,
)
from vanilla_transformer.interop.supported_fields import fields_beyond
from vanilla_transformer.interop.vocabularies import pieces_of, vocabularies_of

_VALUES = {
    "norm_placement": ("post", "pre", "none"),
    "norm_type": ("layer_norm", "rms_norm"),
    "layer_norm_eps": (EPSILON,),
    "activation_function": ("silu", "swish", "relu", "gelu", "quick_gelu"),
    "position_embedding_type": ("sinusoidal_fairseq",),
    "scale_embedding": (True,),
    "is_encoder_decoder": (True,),
}
_FREE_FIELDS = (
    *("final_layer_norm", "normalize_embedding"),
    *("attention_bias", "ffn_bias", "lm_head_bias"),
)
_VERSIONS = {"quick_gelu": "v1.12.0", "gelu": "v1.12.1"}


def problems_for_marian(model: Any) -> list[str]:
    """Lists what Marian cannot compute, one sentence for each field in the way."""
    config = model.config
    problems = fields_beyond(config, _VALUES, _FREE_FIELDS)
    heads = {
        getattr(config, f"{stack}_{name}")
        for stack in STACKS
        for name in ("attention_heads", "num_key_value_heads")
    }
    if len(heads) > 1:
        problems.append(f"The numbers of heads are {sorted(heads)}; both stacks have one number.")
    if any(config.head_dim_with(count) * count != config.d_model for count in heads):
        problems.append("`head_dim` is set; possible is d_model / heads.")
    start, pad = config.decoder_start_token_id, config.pad_token_id
    table = model.get_decoder().embed_tokens.weight
    if start is None or start != pad or bool(table[start].any()):
        problems.append(
            f"`decoder_start_token_id` is {start}; possible is a padding token whose embedding is "
            "zero, as Marian's targets begin."
        )
    return problems


def export_to_marian(
    model: Any, tokenizer: Any, folder: str | Path, source: str | Path
) -> tuple[str, ...]:
    """Writes a model of Marian: `model.npz`, `decoder.yml`, and vocabularies in YAML.

    Texts must be cut before Marian reads them, by `source.spm` and `target.spm` if those are there.

    Args:
        source: Directory of the model, which may hold models of SentencePiece.

    Returns:
        What a user must know, one sentence each.

    Raises:
        ValueError: If Marian cannot compute the model, with all fields in the way; or if the
            vocabulary lacks a token that Marian needs.
    """
    config = model.config
    raise_problems("Marian cannot compute this model", problems_for_marian(model))
    words = vocabularies_of(config, tokenizer)
    kept = [[n for n in range(len(side)) if n != config.pad_token_id] for side in words]
    for side in words:
        if side[config.eos_token_id] != "</s>" or "<unk>" not in side:
            raise ValueError("Marian needs </s> as the end token, and <unk>, in both vocabularies.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tables = [[side[n] for n in rows] for side, rows in zip(words, kept, strict=True)]
    names = ["vocab.yml"] * 2
    if tables[0] != tables[1]:
        names = ["source.vocab.yml", "target.vocab.yml"]
    for name, side in zip(names, tables, strict=True):
        write_atomic(folder / name, _as_yaml({word: index for index, word in enumerate(side)}))
    options = {**_options_of(config), "dim-vocabs": list(map(len, tables))}
    arrays = {name: values.numpy() for name, values in _arrays_of(model, kept).items()}
    arrays[OPTIONS] = np.frombuffer(_as_yaml(options).encode() + b"\0", dtype=np.int8)
    np.savez(folder / "model.npz", allow_pickle=False, **arrays)
    penalty = model.generation_config.length_penalty
    search = {
        "relative-paths": True,
        "models": ["model.npz"],
        "vocabs": names,
        "beam-size": model.generation_config.num_beams or 1,
        "normalize": 1.0 if penalty is None else penalty,
    }
    write_atomic(folder / "decoder.yml", _as_yaml(search))
    try:
        pieces, note = pieces_of(tokenizer, source)
    except ValueError as error:
        return (f"There is no model of SentencePiece, for {error}: cut texts by the tokenizer.",)
    for file, model_bytes in zip(
        ("source.spm", "target.spm"), (pieces[0], pieces[-1]), strict=True
    ):
        (folder / file).write_bytes(model_bytes)
    return (
        "Texts must be cut by source.spm before, and joined by target.spm afterwards.",
        *filter(None, [note]),
    )


def _as_yaml(content: Mapping[str, Any]) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(dict(content), Dumper=dumper, allow_unicode=True, sort_keys=False))


def _options_of(config: Any) -> dict[str, Any]:
    """Returns the options of Marian that a config means."""
    pair = (config.norm_placement, config.norm_type)
    before, after = next((ops for ops, known in PLACEMENTS.items() if known == pair), ("", "a"))
    norm = "r" if config.norm_type == "rms_norm" else "n"
    activation = {"gelu": "gelu", "swish": "swish"} | {v: k for k, v in ACTIVATIONS.items()}
    width, decoder_width = config.encoder_ffn_dim, config.decoder_ffn_dim
    return {
        "type": "transformer",
        "version": _VERSIONS.get(config.activation_function, "v1.12.0"),
        "dim-emb": config.d_model,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": config.encoder_attention_heads,
        "transformer-dim-ffn": width,
        "transformer-decoder-dim-ffn": 0 if width == decoder_width else decoder_width,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": activation[config.activation_function],
        "transformer-preprocess": before,
        "transformer-postprocess": f"d{after}",
        "transformer-postprocess-emb": norm if config.normalize_embedding else "d",
        "transformer-postprocess-top": norm if config.final_layer_norm else "",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-no-projection": False,
        "tied-embeddings": config.tie_word_embeddings
        and not config.share_encoder_decoder_embeddings,
        "tied-embeddings-src": config.share_encoder_decoder_embeddings
        and not config.tie_word_embeddings,
        "tied-embeddings-all": config.tie_word_embeddings
        and config.share_encoder_decoder_embeddings,
        "ulr": False,
        "max-length": config.max_position_embeddings,
    }


def _arrays_of(model: Any, kept: Sequence[Sequence[int]]) -> Weights:
    """Returns the weights as Marian stores them, without the row of padding."""
    config = model.config
    layers = {stack: range(1, getattr(config, f"{stack}_layers") + 1) for stack in STACKS}
    weights = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    if config.fused_qkv:
        weights = split_self_attention(weights, config.d_model)
    arrays: Weights = {}
    names = weight_names(layers, config.to_dict(), config.tie_word_embeddings)
    for ours, (name, *_) in names.items():
        if ours == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weights.get(ours)
        if values is None:  # a bias that is left out here
            values = torch.zeros(len(weights[ours.removesuffix("bias") + "weight"]))
        if ours in (SOURCE_TABLE, TARGET_TABLE):
            name = "Wemb" if config.share_encoder_decoder_embeddings else name
        if ours in (SOURCE_TABLE, TARGET_TABLE, "lm_head.weight", "lm_head.bias"):
            values = values[list(kept[0 if ours == SOURCE_TABLE else 1])]
        values = values.T if is_transposed(name) else values
        arrays[name] = (values if values.dim() == 2 else values[None]).cpu().contiguous()
    return arrays
