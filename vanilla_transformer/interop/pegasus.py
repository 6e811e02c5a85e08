"""Pegasus: a pre-norm model with half-split sinusoids."""

from typing import cast

from transformers import PegasusConfig, PegasusForConditionalGeneration, PreTrainedModel

from vanilla_transformer.interop.bart_family import make_family
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

PEGASUS = make_family(
    "pegasus",
    PegasusForConditionalGeneration,
    PegasusConfig,
    pre_norm=True,
    embedding_norm=False,
    positions="sinusoidal_half",
)


def from_pegasus(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a `PegasusForConditionalGeneration`; see `families.import_model`."""
    return import_model(PEGASUS, source)


def to_pegasus(
    model: VanillaTransformerForConditionalGeneration,
) -> PegasusForConditionalGeneration:
    """Converts into a `PegasusForConditionalGeneration`; see `families.export_model`."""
    return cast(PegasusForConditionalGeneration, export_model(PEGASUS, model))
