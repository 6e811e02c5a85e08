"""The names that load without torch are those of the files that a saved model carries."""

import pytest

from vanilla_transformer import VanillaTransformerConfig, names
from vanilla_transformer.model import tokenization_vanilla_transformer


def test_names_are_those_of_the_model():
    assert names.TOKENIZER_KINDS == tokenization_vanilla_transformer.KINDS
    assert VanillaTransformerConfig.model_type == names.MODEL_TYPE


@pytest.mark.parametrize(
    ("score", "is_error_rate"),
    [
        *(("wer", True), ("eval_ter", True), ("wer_app", True), ("eval_news_wer", True)),
        *(("bleu", False), ("eval_chrf_app", False), ("loss", False)),
        *(("bleu_per", False), ("eval_chrf_mismatch", False), ("per_chrf", True)),  # of corpora
    ],
)
def test_a_score_is_an_error_rate_by_its_metric_whatever_its_corpus_is_called(score, is_error_rate):
    assert names.is_error_rate(score) is is_error_rate
