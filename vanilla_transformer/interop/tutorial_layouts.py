"""Converts models in the two layouts that most from-scratch code follows, found by their names.

- bentrevett's pytorch-seq2seq (https://github.com/bentrevett/pytorch-seq2seq): post-norm, learned
  positions, and the ids 0 to 3 for `<unk>`, `<pad>`, `<sos>` and `<eos>`;
- The Annotated Transformer (https://nlp.seas.harvard.edu/annotated-transformer): pre-norm with the
  sample standard deviation, sinusoids, and the ids 0 to 3 for `<s>`, `</s>`, `<blank>` and `<unk>`.

Weights do not show the number of heads.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.interop.checkpoint_files import read_rename_rules, read_state_dict
from vanilla_transformer.interop.funnel import Imported
from vanilla_transformer.interop.match_weights import (
    SOURCE_TABLE,
    TARGET_TABLE,
    Rules,
    are_equal,
    build_model,
    fit_weights,
    raise_problems,
    rename_weights,
)
from vanilla_transformer.interop.sinusoids import find_wrong_sinusoids

_LAYER = r"model.\1.layers.\2."


@dataclass(frozen=True)
class Layout:
    """Describes the models of a tutorial.

    Attributes:
        sign: A weight that only its models have.
        names: Rules for the names of its weights.
    """

    title: str
    sign: str
    names: Rules
    fields: Mapping[str, Any]


_PROJECTIONS = {"q": "q", "k": "k", "v": "v", "o": "out"}
_LINEARS = {"0": "q", "1": "k", "2": "v", "3": "out"}

SEQ2SEQ = Layout(
    "bentrevett's pytorch-seq2seq",
    "encoder.layers.0.self_attention.fc_q.weight",
    {
        r"(encoder|decoder)\.tok_embedding\.weight": r"model.\1.embed_tokens.weight",
        r"(encoder|decoder)\.pos_embedding\.weight": r"model.\1.embed_positions.weight",
        r"decoder\.fc_out\.(\w+)": r"lm_head.\1",
        **{
            rf"(\w+)\.layers\.(\d+)\.{theirs}_layer_norm\.(\w+)": rf"{_LAYER}{ours}_post_norm.\3"
            for theirs, ours in (
                ("self_attn", "self_attn"),
                ("enc_attn", "encoder_attn"),
                ("ff", "feed_forward"),
            )
        },
        **{
            rf"(\w+)\.layers\.(\d+)\.{theirs}\.fc_{part}\.(\w+)": rf"{_LAYER}{ours}.{our}_proj.\3"
            for theirs, ours in (
                ("self_attention", "self_attn"),
                ("encoder_attention", "encoder_attn"),
            )
            for part, our in _PROJECTIONS.items()
        },
        r"(\w+)\.layers\.(\d+)\.positionwise_feedforward\.fc_(\d)\.(\w+)": (
            rf"{_LAYER}feed_forward.fc\3.\4"
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
        r"(src|tgt)_embed\.1\.pe": None,  # compared with the sinusoids before
        r"generator\.proj\.(\w+)": r"lm_head.\1",
        **{
            rf"{place}norm\.{theirs}": rf"{ours}.{part}"
            for theirs, part in (("a_2", "weight"), ("b_2", "bias"))
            for place, ours in (
                (r"(encoder|decoder)\.", r"model.\1.final_norm"),
                (r"(\w+)\.layers\.(\d+)\.sublayer\.0\.", f"{_LAYER}self_attn_pre_norm"),
                (r"(encoder)\.layers\.(\d+)\.sublayer\.1\.", f"{_LAYER}feed_forward_pre_norm"),
                (r"(decoder)\.layers\.(\d+)\.sublayer\.1\.", f"{_LAYER}encoder_attn_pre_norm"),
                (r"(decoder)\.layers\.(\d+)\.sublayer\.2\.", f"{_LAYER}feed_forward_pre_norm"),
            )
        },
        **{
            rf"(\w+)\.layers\.(\d+)\.{theirs}\.linears\.{part}\.(\w+)": (
                rf"{_LAYER}{ours}.{our}_proj.\3"
            )
            for theirs, ours in (("self_attn", "self_attn"), ("src_attn", "encoder_attn"))
            for part, our in _LINEARS.items()
        },
        r"(\w+)\.layers\.(\d+)\.feed_forward\.w_(\d)\.(\w+)": rf"{_LAYER}feed_forward.fc\3.\4",
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

    Args:
        source: File of weights, as `read_state_dict` takes it. The prefix `module.` of a wrapper is
            left out.
        heads: Number of attention heads; 8 in both tutorials.
        rename: YAML file of rules that are applied first.
        key: Entry of the file that holds the weights.

    Raises:
        ValueError: If the weights are of neither tutorial, or do not fit.
    """
    given = {} if rename is None else read_rename_rules(rename)
    renamed = rename_weights(read_state_dict(source, key), given, {r"module\.(.*)": r"\1"})
    layout = next((each for each in LAYOUTS if each.sign in renamed.weights), None)
    if layout is None:
        signs = " nor ".join(f"`{each.sign}` ({each.title})" for each in LAYOUTS)
        raise ValueError(
            f"{str(source)!r} holds neither {signs}: give `rename` rules that lead to their names, "
            "or use --from table."
        )
    stored = {
        n: w for n, w in renamed.weights.items() if re.fullmatch(r"(src|tgt)_embed\.1\.pe", n)
    }
    raise_problems("The positions are of another kind", find_wrong_sinusoids(stored, "sinusoidal"))
    ours = rename_weights(renamed.weights, layout.names)
    tables = [ours.weights.get(name) for name in (SOURCE_TABLE, TARGET_TABLE, "lm_head.weight")]
    fields = {
        **layout.fields,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "lm_head_bias": "lm_head.bias" in ours.weights,
        "share_encoder_decoder_embeddings": are_equal(tables[0], tables[1]),
        "tie_word_embeddings": are_equal(tables[1], tables[2]),
        **(changes or {}),
    }
    note = f"The layout is that of {layout.title}; its token ids are {_ids_of(fields)}."
    return Imported(build_model(*fit_weights(ours, fields)), notes=(note,))


def _ids_of(fields: Mapping[str, Any]) -> str:
    """Returns the ids of the special tokens as a text."""
    names = ("unk", "pad", "bos", "eos")
    return ", ".join(f"{name} {fields[f'{name}_token_id']}" for name in names)
