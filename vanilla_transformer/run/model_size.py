"""The size of a model in bytes, and the widest new model within a limit."""

from typing import Any

import torch

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.run.architecture_options import ARCHITECTURE_FIELDS
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.defaults import RunFacts, choose_defaults

_BYTES_OF_TOKEN = 66
_BYTES_OF_THE_REST = 43_000
"""Bytes of a token in the vocabulary and `tokenizer.json`, and of the tokenizer's other files.

Measured on the 10,000 subwords of the model of the repository.
"""
_SPECIAL_TOKENS = 32  # the largest number of them, with the stand-ins of placeholders
_WIDTH_STEP = 32  # the size of a head


def bytes_in_8_bits(model: Any) -> int:
    """Estimates the bytes of all files of an export whose weights have 8 bits.

    Matrices have a scale for each row. The names of the weights are 0.9% of 1,460,000 bytes.
    """
    weights = sum(
        weight.numel() + 4 * len(weight) if weight.dim() > 1 else 4 * weight.numel()
        for weight in model.parameters()
    )
    return int(1.01 * weights) + _BYTES_OF_TOKEN * int(model.config.vocab_size) + _BYTES_OF_THE_REST


def narrow_to_size(facts: RunFacts, arguments: RunArguments) -> RunFacts:
    """Returns the facts with the largest width whose model is within the given `size`.

    Raises:
        ValueError: If no width is narrow enough.
    """
    if (limit := arguments.model.size) is None:
        return facts
    while (width := facts.sizes.d_model) > 0:
        if bytes_in_8_bits(_untrained_model(facts, arguments)) <= limit:
            return facts
        facts = facts.narrowed(width - _WIDTH_STEP)
    raise ValueError(
        f"`size` {limit:,} is too small for {facts.characters:,} different characters and the "
        "sizes that are given."
    )


def _untrained_model(facts: RunFacts, arguments: RunArguments) -> Any:
    """Returns the model that a run would train, without memory for its weights."""
    options = {**choose_defaults(arguments.given, facts), **arguments.given}
    fields = {name: options[name] for name in ARCHITECTURE_FIELDS if name in options}
    is_shared = not arguments.tokenizer.separate_vocabularies
    fields.setdefault("share_encoder_decoder_embeddings", is_shared)
    is_of_characters = options.get("tokenizer_kind") == "char"
    usual = facts.characters if is_of_characters else arguments.tokenizer.vocab_size
    vocab_size = options.get("vocab_size", usual) + _SPECIAL_TOKENS
    config = VanillaTransformerConfig(vocab_size=vocab_size, **fields)
    with torch.device("meta"):
        return VanillaTransformerForConditionalGeneration(config)
