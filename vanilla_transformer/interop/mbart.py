"""mBART: a pre-norm model with norms of the embeddings, and learned positions from 2."""

from typing import cast

from transformers import MBartConfig, MBartForConditionalGeneration, PreTrainedModel

from vanilla_transformer.interop.bart_family import make_family
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

MBART = make_family(
    "mbart",
    MBartForConditionalGeneration,
    MBartConfig,
    pre_norm=True,
    embedding_norm=True,
    positions="learned",
    more_fields=lambda config: {"position_offset": 2},
)


def from_mbart(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts an `MBartForConditionalGeneration`; see `families.import_model`."""
    return import_model(MBART, source)


def to_mbart(model: VanillaTransformerForConditionalGeneration) -> MBartForConditionalGeneration:
    """Converts into an `MBartForConditionalGeneration`; see `families.export_model`."""
    return cast(MBartForConditionalGeneration, export_model(MBART, model))
