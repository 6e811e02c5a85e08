"""The characters of a training that a vocabulary lacks are counted, and too many are refused."""

import pytest
from converted_models import save_marian, train_pieces
from transformers import MarianTokenizer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.unknown_characters import check_characters
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS


def splits(source, target):
    return {"training": {"source": [source] * 2, "target": ["hello", *[target] * 3]}}


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_characters_are_counted_and_too_many_refused(kind):
    texts = ["the hello cat sat on a mat there"]
    tokenizer = VanillaTransformerTokenizer.train(texts, kind=kind, vocab_size=300)
    few = splits("the\u00a0cat  sat", f"{texts[0]}\u4f60")
    shown = check_characters(tokenizer, few)
    assert ("training source 0.00%, target " in shown) == (kind != "byte_bpe")
    many = splits("the cat", "\u4f60\u597d")
    if kind == "byte_bpe":
        assert not check_characters(tokenizer, many)
        return
    with pytest.raises(ValueError, match=r"54\.5% of the characters of the training targets"):
        check_characters(tokenizer, many)
    with pytest.raises(ValueError, match="of the training sources"):
        check_characters(tokenizer, splits("\u4f60\u597d", "cat"))


def test_unknown_words_are_not_unknown_characters():
    tokenizer = VanillaTransformerTokenizer.train(["the hello cat"], kind="word")
    words = splits("tac eht", "hat the lace")
    assert not check_characters(tokenizer, words)


def test_a_tokenizer_without_offsets_is_measured_by_its_characters(tmp_path):
    save_marian(train_pieces(tmp_path), tmp_path / "model", separate=False)
    marian = MarianTokenizer.from_pretrained(tmp_path / "model")
    assert not check_characters(marian, splits("the cat", "the mat"))
    with pytest.raises(ValueError, match="of the training targets"):
        check_characters(marian, splits("the cat", "\u4f60\u597d"))
