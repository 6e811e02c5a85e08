"""Converts models that are built around torch's `nn.Transformer`.

`nn.Transformer` has neither embeddings nor positions nor an output projection: the caller names
them. Its encoder and its decoder always end with a norm, with `norm_first` and without it. With
`bias=False` its norms have no bias either; here they have one, which is zero.

In torch 2.13, an activation that is a module, such as `nn.GELU()`, is used by the encoder only: the
decoder's layers are copies that fall back to ReLU. Such a model has no counterpart here.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.checkpoint_files import read_rename_rules, read_state_dict
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.weights.match_weights import (
    SOURCE_TABLE,
    TARGET_TABLE,
    RenamedWeights,
    Rules,
    WeightRule,
    build_model,
    check_hidden_fields,
    fields_of_parts,
    fit_weights,
    layer_rules,
    raise_problems,
    rename_weights,
    sharing_fields,
)
from vanilla_transformer.weights.sinusoids import SINUSOIDS

_FIRST = re.compile(r"(.*?)encoder\.layers\.0\.self_attn\.in_proj_weight")

Positions = tuple[str, tuple[str, ...]]
"""The scheme ("learned", "none" or a name in `SINUSOIDS`) and the names of the stored tables: one
for both sides, or one for each; of sinusoids, there may be none."""


def read_torch(
    source: str | Path,
    heads: int,
    source_embedding: str,
    target_embedding: str,
    generator: str,
    positions: str,
    scale_embedding: bool,
    norm_first: bool = False,
    activation: str = "relu",
    key: str | None = None,
    rename: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads the state dict of a model around `nn.Transformer`: see `interop.formats`.

    Args:
        target_embedding: Name of the target's matrix. It may be the source's.
        generator: Name of the output projection, without `.weight`.
        positions: "learned:NAME", "learned:SOURCE_NAME,TARGET_NAME", "sinusoidal", "none", or
            "sinusoidal:NAME" for a table that is stored: it is compared with the sinusoids. Any
            name in `SINUSOIDS` may stand for "sinusoidal".
        scale_embedding: Whether the model multiplies embeddings by sqrt(d_model).
        activation: As in `nn.Transformer`, or the name of another function in `ACT2FN`.
        rename: YAML file of rules for names, applied first: null drops a weight.
    """
    fields = {
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "scale_embedding": scale_embedding,
        "norm_placement": "pre" if norm_first else "post",
        "activation_function": activation,
        **(changes or {}),
    }
    check_hidden_fields(fields, "Give them with --set.")
    rules = {} if rename is None else read_rename_rules(rename)
    state_dict = rename_weights(read_state_dict(source, key), rules).weights
    read = _read_positions(positions)
    names = {"source": source_embedding, "target": target_embedding, "generator": generator}
    renamed = _rename_torch(state_dict, names, "pre" if norm_first else "post", read)
    shown = {**fields_of_parts(renamed.weights), **sharing_fields(renamed.weights)}
    fields = {**shown, "position_embedding_type": read[0], **fields}
    config, weights = fit_weights(renamed, fields, [r".*norm\.bias"])
    note = "The norms of the source have no bias. The norms of this model have one, which is zero."
    return Imported(build_model(config, weights), notes=() if config.attention_bias else (note,))


def _read_positions(text: str) -> Positions:
    """Reads SCHEME, SCHEME:NAME or SCHEME:SOURCE_NAME,TARGET_NAME."""
    scheme, _, rest = text.partition(":")
    tables = tuple(name for name in rest.split(",") if name)
    most = {"learned": 2, **dict.fromkeys(SINUSOIDS, 2), "none": 0}
    if scheme not in most or len(tables) > most[scheme] or (scheme == "learned" and not tables):
        raise ValueError(
            f"`positions` is {text!r}: write learned:NAME, learned:SOURCE_NAME,TARGET_NAME, "
            f"sinusoidal, sinusoidal:NAME or none; the schemes are {list(most)}."
        )
    return scheme, tables


def _find_prefix(
    state_dict: Mapping[str, torch.Tensor], names: Mapping[str, str], positions: Positions
) -> str:
    """Checks that the named weights are there, and returns the prefix of `nn.Transformer`."""
    named = [names["source"], names["target"], f"{names['generator']}.weight", *positions[1]]
    problems = [f"`{name}` is not in it" for name in dict.fromkeys(named) if name not in state_dict]
    prefixes = [match[1] for name in state_dict if (match := _FIRST.fullmatch(name))]
    if len(prefixes) != 1:
        problems.append(
            f"it holds {len(prefixes)} weights `...encoder.layers.0.self_attn.in_proj_weight`, "
            "where one nn.Transformer has 1"
        )
    listed = ", ".join(list(state_dict)[:8])
    raise_problems("The checkpoint has other names", problems, f"Its first names are: {listed}.")
    return prefixes[0]


def _rename_torch(
    state_dict: Mapping[str, torch.Tensor],
    names: Mapping[str, str],
    slot: str,
    positions: Positions,
) -> RenamedWeights:
    """Gives the weights our names; a stored table of sinusoids is compared and left out.

    `names` has the names of the "source" and "target" embedding and of the "generator". Norms have
    the slot "pre" or "post".
    """
    scheme, stored = positions
    start = re.escape(_find_prefix(state_dict, names, positions))
    layer, here = rf"{start}(encoder|decoder)\.layers\.(\d+)\.", r"model.\1.layers.\2."
    attentions = {"self_attn": "self_attn", "multihead_attn": "encoder_attn"}
    tables: dict[str, tuple[str, ...]] = dict.fromkeys(stored, ())
    if scheme == "learned":
        for name, stack in zip((stored * 2)[:2], ("encoder", "decoder"), strict=True):
            tables[name] = (*tables[name], f"model.{stack}.embed_positions.weight")
    for side, table in (("source", SOURCE_TABLE), ("target", TARGET_TABLE)):
        tables[names[side]] = (*tables.get(names[side], ()), table)  # one may stand for both
    rules: Rules = {
        **{
            rf"{layer}{theirs}\.in_proj_(\w+)": WeightRule(
                tuple(rf"{here}{ours}.{part}_proj.\3" for part in "qkv"), is_split=True
            )
            for theirs, ours in attentions.items()
        },
        **layer_rules(
            layer,
            {
                **{rf"{name}\.out_proj": f"{ours}.out_proj" for name, ours in attentions.items()},
                "linear([12])": r"feed_forward.fc\3",
            },
            norms=("norm1", "norm2", "norm3"),
            slot=slot,
        ),
        rf"{start}(encoder|decoder)\.norm\.(\w+)": r"model.\1.final_norm.\2",
        rf"{re.escape(names['generator'])}\.(\w+)": r"lm_head.\1",
        **{
            re.escape(name): WeightRule(targets) if targets else WeightRule(sinusoids=scheme)
            for name, targets in tables.items()
        },
    }
    flat = {
        name: tensor.squeeze() if name in stored else tensor for name, tensor in state_dict.items()
    }
    return rename_weights(flat, rules)
