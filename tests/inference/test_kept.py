"""What the model does not copy comes back at its place, with both engines."""

import pytest
from toy import REPOSITORY

from vanilla_transformer import Translator

FOLDER = REPOSITORY / "model_cards" / "pronounce"


@pytest.fixture(scope="module", params=["transformers", "ctranslate2"])
def translator(request):
    return Translator.from_pretrained(str(FOLDER), request.param)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("attention %s", "AH T EH N SH AH N %s"),
        ("%(name)s attention", "%(name)s AH T EH N SH AH N"),
        ("attention 😊\nattention", "AH T EH N SH AH N 😊\nAH T EH N SH AH N"),
    ],
)
def test_the_alignment_places_what_is_kept(translator, text, spoken):
    assert translator.translate(text) == spoken


def test_results_tell_what_was_restored_and_count_words_with_it(translator):
    texts = ["%s attention", "attention"]
    first, second = translator.translate(texts, return_word_alignment=True, return_scores=True)
    assert (first.restored, second.restored) == (("%s",), ())
    assert first.text == f"%s {second.text}"
    assert {target for _, target in first.word_alignment} == set(range(1, 8))
    assert translator.translate(texts, keep=False)[0].count("%") == 0
