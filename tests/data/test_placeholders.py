"""Tokens stand for placeholders in a share of the training pairs."""

import pytest
from datasets import Dataset

from vanilla_transformer.columns import LINKS
from vanilla_transformer.data.placeholders import share_of_placeholders, with_placeholders
from vanilla_transformer.model.tokenization_vanilla_transformer import (
    KINDS,
    PLACEHOLDERS,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.text.readings import StandIns


@pytest.fixture
def tokenizer():
    tokenizer = VanillaTransformerTokenizer.train(["a b c d"], vocab_size=20)
    tokenizer.add_placeholders()
    return tokenizer


def rows_of(*pairs, **columns):
    sources, targets = zip(*pairs, strict=True)
    return Dataset.from_dict({"source": sources, "target": targets, **columns})


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_each_is_one_token_of_every_kind_of_vocabulary(kind, shared, tmp_path):
    texts = ["open the file (a)", "die datei (a) öffnen"]
    tokenizer = VanillaTransformerTokenizer.train(
        *[[t] for t in texts], kind=kind, vocab_size=300, shared=shared
    )
    assert StandIns.of(tokenizer).tokens == ()
    tokenizer.add_placeholders()
    tokenizer.save_pretrained(tmp_path)
    tokenizer = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    assert StandIns.of(tokenizer) == StandIns(PLACEHOLDERS, kind == "word")
    for side, text in (("source", "open <ph8> the <ph1>"), ("target", "<ph1> die <ph8>")):
        ids = tokenizer(**{{"source": "text", "target": "text_target"}[side]: text})["input_ids"]
        assert {"<ph1>", "<ph8>"} <= {*tokenizer.convert_ids_to_tokens(ids, side=side)}
        assert tokenizer.decode(ids, skip_special_tokens=True, side=side) == text


@pytest.mark.parametrize(
    ("count", "share", "result"), [(5, None, 0.5), (4, None, 0.0), (0, 0.2, 0.2), (200, 0.0, 0.0)]
)
def test_the_data_decide_whether_tokens_are_learnt(count, share, result):
    pairs = [("a %s", "%s b") if number < count else ("a", "b") for number in range(500)]
    assert share_of_placeholders(rows_of(*pairs), share) == result


def test_a_share_of_the_pairs_has_tokens_always_the_same_ones(tokenizer):
    rows = rows_of(*[("a %s", "%s b"), ("c", "d")] * 500, line=range(1000))
    changed = with_placeholders(rows, tokenizer, 0.5)
    pairs = list(zip(changed["source"], changed["target"], strict=True))
    assert {*pairs} == {("a %s", "%s b"), ("a <ph1>", "<ph1> b"), ("c", "d")}
    assert 200 < pairs.count(("a <ph1>", "<ph1> b")) < 300
    assert changed["line"][:] == [*range(1000)]
    again = with_placeholders(rows, tokenizer, 0.5, 2)
    assert pairs == list(zip(again["source"], again["target"], strict=True))


def test_links_of_words_stay_right(tokenizer):
    rows = rows_of(("a {{ x }}", "{{ x }} b"), ("%s a", "b %s"), **{LINKS: ["0-3", "0-1 1-0"]})
    changed = with_placeholders(rows, tokenizer, 1.0)
    assert changed["source"][:] == ["a {{ x }}", "<ph1> a"]
    assert changed["target"][:] == ["{{ x }} b", "b <ph1>"]
