"""Converts models that people build from scratch after a tutorial.

Most code follows one of two layouts, which `read_layout` finds by the names of the weights:

- bentrevett's pytorch-seq2seq (https://github.com/bentrevett/pytorch-seq2seq): post-norm, learned
  positions, and the ids 0 to 3 for `<unk>`, `<pad>`, `<sos>` and `<eos>`;
- The Annotated Transformer (https://nlp.seas.harvard.edu/annotated-transformer): pre-norm with the
  sample standard deviation, sinusoids, and the ids 0 to 3 for `<s>`, `</s>`, `<blank>` and `<unk>`.

Weights do not show the number of heads. Five more tutorials are known as systems A to E, each with
a preset; `docs/converting.md` names them. People who follow a tutorial choose their own names for
modules, so rules turn them into the names that this page lists. The rows of the fused projections
of systems B and C lie head by head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from vanilla_transformer.interop.checkpoint_files import read_rename_rules, read_state_dict
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.model.configuration_vanilla_transformer import (
    SIZES,
    VanillaTransformerConfig,
)
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerModel
from vanilla_transformer.model.presets import PRESETS
from vanilla_transformer.weights.match_weights import (
    NORM_SPELLINGS,
    SOURCE_TABLE,
    TARGET_TABLE,
    RenamedWeights,
    Rules,
    WeightRule,
    Weights,
    attention_names,
    build_model,
    fit_weights,
    layer_rules,
    rename_weights,
    sharing_fields,
)

_SINUSOIDS: Rules = {r"(.*\.)?positions\..*": None}  # the model computes them itself
_ENCODER_ONLY: Rules = {r"((?:layers|norm)\..*)": r"encoder.\1"}
_IN_LAYERS = r"(encoder|decoder)\.layers\.(\d+)\."
# An encoder-only system becomes a whole model. Its other parts are as small as possible.
_SMALLEST_REST = {
    "vocab_size": 3,
    "decoder_layers": 1,
    "decoder_attention_heads": 1,
    "decoder_ffn_dim": 1,
}
_PER_HEAD = ("system-b", "system-c")
"""The systems with fused projections, whose rows are [q_0, k_0, v_0, q_1, ...]."""

ENCODER_ONLY = "system-b"
"""The system without embeddings, decoder and output projection."""


def read_tutorial(
    source: str | Path,
    system: str,
    heads: int,
    rename: str | Path | None = None,
    key: str | None = None,
    source_pad: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a file of weights of a published system: see `interop.formats`, `convert_tutorial`.

    Of system B, only the encoder is converted.
    """
    rules = {} if rename is None else read_rename_rules(rename)
    config, weights = convert_tutorial(
        system, read_state_dict(source, key), heads, rules, source_pad, **(changes or {})
    )
    if system != ENCODER_ONLY:
        return Imported(build_model(config, weights))
    with torch.random.fork_rng():
        torch.manual_seed(0)  # every conversion of B gets the same untrained decoder
        model = VanillaTransformerModel(config)
    model.load_state_dict(weights, strict=False)
    model.train(False)
    note = (
        "Only the encoder is trained: `AutoModel.from_pretrained(...).encoder`; it takes "
        "`inputs_embeds`."
    )
    return Imported(model, notes=(note,))


def convert_tutorial(
    system: str,
    state_dict: Mapping[str, torch.Tensor],
    num_heads: int,
    renames: Rules | None = None,
    source_pad_token_id: int | None = None,
    **changes: Any,
) -> tuple[VanillaTransformerConfig, Weights]:
    """Converts the weights of a published system into a config and weights of this package.

    Args:
        num_heads: Number of attention heads. The weights do not show it: a wrong number gives a
            model that computes something else, without an error.
        renames: Rules that turn names of the trained model into the names that this module expects.
        source_pad_token_id: Id of the padding token in the source vocabulary, if it differs from
            the target's. A model here has one `pad_token_id` for both. The two rows of the
            source embedding are swapped, and the two tokens must be swapped in the source
            vocabulary, too. An embedding that has no row `pad_token_id` is extended with zeros.

    Returns:
        The config, and weights for a `VanillaTransformerForConditionalGeneration`. For system B,
        they are for the encoder of a `VanillaTransformerModel`, without its embedding.
    """
    is_encoder = system == ENCODER_ONLY
    stacks = ("encoder",) if is_encoder else ("encoder", "decoder")
    read = {*SIZES} - {"max_position_embeddings"}  # the sizes that the weights show
    fields = {name: value for name, value in PRESETS[system].items() if name not in read}
    fields |= _SMALLEST_REST if is_encoder else {}
    fields |= {f"{stack}_attention_heads": num_heads for stack in stacks} | changes
    renamed = rename_weights(
        state_dict,
        renames or {},
        {**NORM_SPELLINGS, **_SINUSOIDS},
        _ENCODER_ONLY if is_encoder else {},
        _names_with(PRESETS[system].get("norm_placement", "post")),
        _rules_per_head(num_heads) if system in _PER_HEAD else {},
    )
    if source_pad_token_id is not None:
        renamed = _move_padding(renamed, source_pad_token_id, fields)
    remedy = (
        f"Give `renames` that lead to the names of `{__name__}`, or change fields of the config."
    )
    separate = {**fields, "fused_qkv": False}
    config, weights = fit_weights(renamed, separate, stacks=stacks, remedy=remedy)
    if fields.get("fused_qkv"):
        config = VanillaTransformerConfig.from_dict({**config.to_dict(), "fused_qkv": True})
        weights = _fuse_self_attention(weights)
    if is_encoder:
        weights = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    return config, weights


def _names_with(slot: str) -> Rules:
    """Returns the rules for names; norms have the slot "pre" or "post"."""
    return {
        r"(\w+)\.embedding\.(\w+)": r"model.\1.embed_tokens.\2",
        r"(\w+)\.norm\.(\w+)": r"model.\1.final_norm.\2",
        r"output\.(\w+)": r"lm_head.\1",
        **layer_rules(
            _IN_LAYERS,
            {
                r"self_attention\.(\w+)": r"self_attn.\3_proj",
                r"cross_attention\.(\w+)": r"encoder_attn.\3_proj",
                r"feed_forward\.linear(\d)": r"feed_forward.fc\3",
            },
            norms=("norm1", "norm2", "norm3"),
            slot=slot,
        ),
    }


def _rules_per_head(heads: int) -> Rules:
    """Returns the rules that split fused projections."""
    return {
        rf"(.*)\.{fused}_proj\.(\w+)": WeightRule(
            tuple(rf"\1.{part}_proj.\2" for part in fused), is_split=True, heads=heads
        )
        for fused in ("qkv", "kv")
    }


def _fuse_self_attention(weights: Weights) -> Weights:
    """Joins the projections of self-attention: all queries, then all keys, then all values."""
    parts = [f"self_attn.{letter}_proj" for letter in "qkv"]
    fused = {name: w for name, w in weights.items() if not any(part in name for part in parts)}
    for name in (name for name in weights if parts[0] in name):
        rows = [weights[name.replace(parts[0], part)] for part in parts]
        fused[name.replace(parts[0], "self_attn.qkv_proj")] = torch.cat(rows)
    return fused


def _move_padding(
    renamed: RenamedWeights, source_pad: int, fields: Mapping[str, Any]
) -> RenamedWeights:
    """Exchanges the source's rows of both padding tokens; a row that is not there is zero."""
    pad = fields.get("pad_token_id", VanillaTransformerConfig().pad_token_id)
    table = renamed.weights.get(SOURCE_TABLE)
    if table is None:
        return renamed  # reported with the other problems
    if source_pad not in range(len(table)):
        raise ValueError(
            f"`source_pad_token_id` is {source_pad}, outside the vocabulary: choose 0 to "
            f"{len(table) - 1}."
        )
    order = list(range(max(len(table), pad + 1)))
    order[pad], order[source_pad] = source_pad, pad
    extended = F.pad(table, (0, 0, 0, len(order) - len(table)))
    return replace(renamed, weights={**renamed.weights, SOURCE_TABLE: extended[order]})


# The two layouts that most code follows -----------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Describes the models of a tutorial.

    Attributes:
        sign: A weight that only its models have.
    """

    title: str
    sign: str
    names: Rules
    fields: Mapping[str, Any]


SEQ2SEQ = Layout(
    "bentrevett's pytorch-seq2seq",
    "encoder.layers.0.self_attention.fc_q.weight",
    {
        r"(encoder|decoder)\.tok_embedding\.weight": r"model.\1.embed_tokens.weight",
        r"(encoder|decoder)\.pos_embedding\.weight": r"model.\1.embed_positions.weight",
        r"decoder\.fc_out\.(\w+)": r"lm_head.\1",
        **layer_rules(
            _IN_LAYERS,
            {
                "self_attn_layer_norm": "self_attn_post_norm",
                "enc_attn_layer_norm": "encoder_attn_post_norm",
                "ff_layer_norm": "feed_forward_post_norm",
                r"positionwise_feedforward\.fc_(\d)": r"feed_forward.fc\3",
                **attention_names(
                    "self_attention", "encoder_attention", ("fc_q", "fc_k", "fc_v", "fc_o")
                ),
            },
        ),
    },
    {
        "norm_placement": "post",
        "position_embedding_type": "learned",
        "activation_dropout": 0.1,
        "unk_token_id": 0,
        "pad_token_id": 1,
        "bos_token_id": 2,
        "decoder_start_token_id": 2,
        "eos_token_id": 3,
    },
)

ANNOTATED = Layout(
    "The Annotated Transformer",
    "src_embed.0.lut.weight",
    {
        r"src_embed\.0\.lut\.weight": SOURCE_TABLE,
        r"tgt_embed\.0\.lut\.weight": TARGET_TABLE,
        r"(src|tgt)_embed\.1\.pe": WeightRule(sinusoids="sinusoidal"),
        r"generator\.proj\.(\w+)": r"lm_head.\1",
        r"(encoder|decoder)\.norm\.(\w+)": r"model.\1.final_norm.\2",
        **layer_rules(
            _IN_LAYERS,
            {
                r"feed_forward\.w_(\d)": r"feed_forward.fc\3",
                **attention_names("self_attn", "src_attn", [rf"linears\.{n}" for n in range(4)]),
            },
            norms=[rf"sublayer\.{number}\.norm" for number in range(3)],
        ),
    },
    {
        "norm_placement": "pre",
        "final_layer_norm": True,
        "norm_type": "unbiased_std",
        "layer_norm_eps": 1e-6,
        "position_embedding_type": "sinusoidal",
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "bos_token_id": 0,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "unk_token_id": 3,
    },
)

LAYOUTS = (SEQ2SEQ, ANNOTATED)


def read_layout(
    source: str | Path,
    heads: int,
    rename: str | Path | None = None,
    key: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a file of weights of either tutorial: see `interop.formats`.

    The prefix `module.` of a wrapper is left out.
    """
    rules = {} if rename is None else read_rename_rules(rename)
    renamed = rename_weights(read_state_dict(source, key), rules, {r"module\.(.*)": r"\1"})
    layout = next((each for each in LAYOUTS if each.sign in renamed.weights), None)
    if layout is None:
        signs = " nor ".join(f"`{each.sign}` ({each.title})" for each in LAYOUTS)
        raise ValueError(
            f"{str(source)!r} holds neither {signs}: give `rename` rules that lead to their names, "
            "or use --from table."
        )
    ours = rename_weights(renamed.weights, NORM_SPELLINGS, layout.names)
    fields = {
        **layout.fields,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        **sharing_fields(ours.weights),
        **(changes or {}),
    }
    ids = ", ".join(f"{name} {fields[f'{name}_token_id']}" for name in ("unk", "pad", "bos", "eos"))
    note = f"The layout comes from {layout.title}; its token ids are {ids}."
    return Imported(build_model(*fit_weights(ours, fields)), notes=(note,))
