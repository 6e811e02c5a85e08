"""The names that load without torch are those of the files that a saved model carries."""

from vanilla_transformer import VanillaTransformerConfig, names
from vanilla_transformer.model import tokenization_vanilla_transformer


def test_names_are_those_of_the_model():
    assert names.TOKENIZER_KINDS == tokenization_vanilla_transformer.KINDS
    assert VanillaTransformerConfig.model_type == names.MODEL_TYPE
