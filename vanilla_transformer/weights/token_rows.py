"""The tokens of the rows of a model's matrices."""

from typing import Any

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.tokenizer_sides import vocabulary_of


def vocabularies_of(
    config: VanillaTransformerConfig, tokenizer: Any
) -> tuple[list[str], list[str]]:
    """Returns the tokens of both sides in the order of ids; rows without one get a made-up one."""
    tokens = []
    for side, name in (("source", "vocab_size"), ("target", "decoder_vocab_size")):
        size = getattr(config, name)
        by_id = {index: token for token, index in vocabulary_of(tokenizer, side).items()}
        if by_id and max(by_id) >= size:
            raise ValueError(
                f"The tokenizer has the id {max(by_id)}, but the model has {size} rows: give the "
                "tokenizer that the model was trained with."
            )
        tokens.append([by_id.get(index, f"<row{index}>") for index in range(size)])
    return tokens[0], tokens[1]
