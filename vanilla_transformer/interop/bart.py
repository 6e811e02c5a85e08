"""BART: a post-norm model with a norm of the embeddings and learned positions from 2."""

from typing import cast

from transformers import BartConfig, BartForConditionalGeneration, PreTrainedModel

from vanilla_transformer.interop.bart_family import make_family
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

BART = make_family(
    "bart",
    BartForConditionalGeneration,
    BartConfig,
    pre_norm=False,
    embedding_norm=True,
    positions="learned",
    more_fields=lambda config: {"position_offset": 2},
)


def from_bart(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a `BartForConditionalGeneration`; see `families.import_model`."""
    return import_model(BART, source)


def to_bart(model: VanillaTransformerForConditionalGeneration) -> BartForConditionalGeneration:
    """Converts into a `BartForConditionalGeneration`; see `families.export_model`."""
    return cast(BartForConditionalGeneration, export_model(BART, model))
