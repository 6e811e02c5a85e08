"""Which fields of a config another system can represent."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from vanilla_transformer.model.configuration_vanilla_transformer import (
    PROBABILITIES,
    SIZES,
    VanillaTransformerConfig,
)

_WITHOUT_EFFECT_ON_OUTPUTS = (
    *SIZES,
    *PROBABILITIES,
    "initializer",
    "fused_qkv",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    "alignment_heads",
    "classifier_pooling",
    "use_cache",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_eos_token_id",
)
"""Fields that every system represents (sizes), or that only training and generation read."""


def fields_beyond(
    config: VanillaTransformerConfig,
    values: Mapping[str, Sequence[Any]],
    free: Sequence[str] = (),
) -> list[str]:
    """Lists the fields of a config that a system cannot represent.

    A field that is named nowhere, for example a new one, must have its default value.

    Args:
        config: The model's config.
        values: The values that the system represents, by field.
        free: Fields of which the system represents every value.

    Returns:
        One sentence for each field in the way.
    """
    problems = []
    default = VanillaTransformerConfig()
    own = VanillaTransformerConfig.__annotations__
    for name in (field.name for field in fields(config) if field.name in own):
        if name in _WITHOUT_EFFECT_ON_OUTPUTS or name in free:
            continue
        value = getattr(config, name, None)
        possible = values.get(name, (getattr(default, name, None),))
        if value not in possible:
            known = " or ".join(map(repr, possible))
            problems.append(f"`{name}` is {value!r}; possible is {known}.")
    return problems
