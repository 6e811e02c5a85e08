"""Which fields of a config another system can represent."""

from collections.abc import Mapping, Sequence
from typing import Any

from vanilla_transformer.model.configuration_vanilla_transformer import (
    PROBABILITIES,
    SIZES,
    VanillaTransformerConfig,
)

WITHOUT_EFFECT_ON_OUTPUTS = (
    *PROBABILITIES,
    "alignment_heads",
    "classifier_pooling",
    "fused_qkv",
    "initializer",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    "use_cache",
)
"""Fields that training alone reads, or whose weights an export copies or splits."""


def fields_beyond(
    config: VanillaTransformerConfig, values: Mapping[str, Sequence[Any]], free: Sequence[str] = ()
) -> list[str]:
    """Lists the fields of a config that a system cannot represent.

    A field that is named nowhere, for example a new one, must have its default value. Sizes and
    token ids, and every value of the fields in `free`, are represented.
    """
    problems = []
    default = VanillaTransformerConfig()
    for name in VanillaTransformerConfig.__annotations__:
        if name in (*WITHOUT_EFFECT_ON_OUTPUTS, *SIZES, *free) or name.endswith("_token_id"):
            continue
        value = getattr(config, name, None)
        possible = values.get(name, (getattr(default, name, None),))
        if value not in possible:
            known = " or ".join(map(repr, possible))
            problems.append(f"`{name}` is {value!r}; possible is {known}.")
    return problems


def fields_with_effect(config: VanillaTransformerConfig) -> dict[str, Any]:
    """Returns the fields that change outputs; None becomes the value that it means."""
    hidden = {*WITHOUT_EFFECT_ON_OUTPUTS, "is_encoder_decoder"}
    names = set(VanillaTransformerConfig.__annotations__) - hidden
    if config.position_embedding_type != "learned":
        names -= {"max_position_embeddings"}
    if config.position_embedding_type != "relative":
        names -= {"relative_attention_num_buckets", "relative_attention_max_distance"}
    fields = {name: getattr(config, name, None) for name in names}
    widths = {
        config.head_dim_with(getattr(config, f"{stack}_attention_heads"))
        for stack in ("encoder", "decoder")
    }
    fields["head_dim"] = sorted(widths)
    if len(widths) == 1:
        fields["attention_scale"] = config.attention_scale or widths.pop() ** -0.5
    return fields
