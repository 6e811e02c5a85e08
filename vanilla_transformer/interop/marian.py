"""Marian, and the OPUS-MT models: a post-norm model with half-split sinusoids."""

from dataclasses import replace
from typing import Any, cast

from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from vanilla_transformer.interop.bart_family import IGNORED, make_family
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)


def _read_vocabularies(config: Any) -> dict[str, Any]:
    shared = config.share_encoder_decoder_embeddings
    return {
        # A shared table has one size, and the class then ignores the other one.
        "decoder_vocab_size": config.vocab_size if shared else config.decoder_vocab_size,
        "share_encoder_decoder_embeddings": shared,
    }


def _write_options(config: VanillaTransformerConfig) -> dict[str, Any]:
    # With `share_encoder_decoder_embeddings` Marian also ties the output, or else nothing.
    shared, tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
    return {
        "decoder_vocab_size": config.decoder_vocab_size,
        "share_encoder_decoder_embeddings": bool(shared and tied),
        "tie_word_embeddings": tied,
    }


MARIAN = replace(
    make_family(
        "marian",
        MarianMTModel,
        MarianConfig,
        pre_norm=False,
        embedding_norm=False,
        positions="sinusoidal_half",
        more_fields=_read_vocabularies,
    ),
    write_options=_write_options,
    ignored={*IGNORED, "decoder_vocab_size", "share_encoder_decoder_embeddings"},
)


def from_marian(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a `MarianMTModel`; see `families.import_model`."""
    return import_model(MARIAN, source)


def to_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """Converts into a `MarianMTModel`; see `families.export_model`."""
    return cast(MarianMTModel, export_model(MARIAN, model))
