"""M2M100 and NLLB: pre-norm models with fairseq's sinusoids."""

from typing import cast

from transformers import M2M100Config, M2M100ForConditionalGeneration, PreTrainedModel

from vanilla_transformer.interop.bart_family import make_family
from vanilla_transformer.interop.fairseq_positions import offset_of
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

M2M100 = make_family(
    "m2m100",
    M2M100ForConditionalGeneration,
    M2M100Config,
    pre_norm=True,
    embedding_norm=False,
    positions="sinusoidal_fairseq",
    more_fields=lambda config: {"position_offset": offset_of(config)},
)


def from_m2m100(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts an `M2M100ForConditionalGeneration`, or NLLB; see `families.import_model`."""
    return import_model(M2M100, source)


def to_m2m100(
    model: VanillaTransformerForConditionalGeneration,
) -> M2M100ForConditionalGeneration:
    """Converts into an `M2M100ForConditionalGeneration`; see `families.export_model`."""
    return cast(M2M100ForConditionalGeneration, export_model(M2M100, model))
