"""FSMT, fairseq's models of WMT 2019: post-norm, two vocabularies, fairseq's sinusoids."""

from dataclasses import replace
from typing import Any, cast

from transformers import FSMTConfig, FSMTForConditionalGeneration, PreTrainedModel

from vanilla_transformer.interop.bart_family import IGNORED, OPTIONS, make_family
from vanilla_transformer.interop.fairseq_positions import offset_of
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

_GENERATION = {"early_stopping", "length_penalty", "max_length", "num_beams"}


def _read_fields(config: Any) -> dict[str, Any]:
    return {"share_encoder_decoder_embeddings": False, "position_offset": offset_of(config)}


_POST_NORM = make_family(
    "fsmt",
    FSMTForConditionalGeneration,
    FSMTConfig,
    pre_norm=False,
    embedding_norm=False,
    positions="sinusoidal_fairseq",
    more_fields=_read_fields,
)
FSMT = replace(
    _POST_NORM,
    options={**OPTIONS, "vocab_size": "src_vocab_size", "decoder_vocab_size": "tgt_vocab_size"},
    names={r"model\.decoder\.output_projection\.weight": "lm_head.weight", **_POST_NORM.names},
    ignored={*IGNORED, *_GENERATION, "langs"},
)


def from_fsmt(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts an `FSMTForConditionalGeneration`; see `families.import_model`."""
    return import_model(FSMT, source)


def to_fsmt(model: VanillaTransformerForConditionalGeneration) -> FSMTForConditionalGeneration:
    """Converts into an `FSMTForConditionalGeneration`; see `families.export_model`."""
    return cast(FSMTForConditionalGeneration, export_model(FSMT, model))
