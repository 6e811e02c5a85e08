"""Configs for models of one stack, made from the config of a whole model."""

from copy import deepcopy
from typing import Any

from .configuration_vanilla_transformer import VanillaTransformerConfig

_SIZES_OF_A_STACK = (
    "layers",
    "attention_heads",
    "num_key_value_heads",
    "ffn_dim",
    "layerdrop",
    "residual_scale",
)


def config_with(config: VanillaTransformerConfig, **fields: Any) -> VanillaTransformerConfig:
    """Returns the config if its fields have these values already, otherwise a changed copy."""
    if all(getattr(config, name) == value for name, value in fields.items()):
        return config
    config = deepcopy(config)
    # Scales that belong to a trained model, which has a name, stay as they are.
    filled = [] if config.name_or_path else config.filled_residual_scales()
    for name, value in fields.items():
        setattr(config, name, value)
    config.fill_residual_scales(filled)
    return config


def config_of_decoder_only(config: VanillaTransformerConfig) -> VanillaTransformerConfig:
    """Returns the config of a language model: all sizes are the decoder's.

    transformers sizes caches by `num_hidden_layers` and the like, which are names of the encoder's
    fields.
    """
    sizes = {f"encoder_{name}": getattr(config, f"decoder_{name}") for name in _SIZES_OF_A_STACK}
    vocab_size = config.decoder_vocab_size or config.vocab_size
    return config_with(config, is_encoder_decoder=False, vocab_size=vocab_size, **sizes)
