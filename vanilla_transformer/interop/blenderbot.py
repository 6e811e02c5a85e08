"""Blenderbot: a pre-norm model with learned positions.

Blenderbot-small is another class: its decoder normalises the embeddings before it adds the
positions, which no config here expresses.
"""

from dataclasses import replace
from typing import cast

from transformers import BlenderbotConfig, BlenderbotForConditionalGeneration, PreTrainedModel

from vanilla_transformer.interop.bart_family import IGNORED, make_family
from vanilla_transformer.interop.families import export_model, import_model
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

BLENDERBOT = replace(
    make_family(
        "blenderbot",
        BlenderbotForConditionalGeneration,
        BlenderbotConfig,
        pre_norm=True,
        embedding_norm=False,
        positions="learned",
    ),
    ignored={*IGNORED, "encoder_no_repeat_ngram_size"},  # part of the generation config
)


def from_blenderbot(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a `BlenderbotForConditionalGeneration`; see `families.import_model`."""
    return import_model(BLENDERBOT, source)


def to_blenderbot(
    model: VanillaTransformerForConditionalGeneration,
) -> BlenderbotForConditionalGeneration:
    """Converts into a `BlenderbotForConditionalGeneration`; see `families.export_model`."""
    return cast(BlenderbotForConditionalGeneration, export_model(BLENDERBOT, model))
