"""Stop strings of generate(), for every kind of vocabulary."""

import itertools

import pytest
import torch

from vanilla_transformer import VanillaTransformerForCausalLM, VanillaTransformerTokenizer
from vanilla_transformer.model.generation import StopStrings
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS

SOURCE = ["one two three four five", "five three nine"] * 3
TARGET = ["grün über süß tut gut", "gut, süß und grün!"] * 3
LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token


def train(kind, shared):
    size = 300 if kind == "byte_bpe" else 40
    return VanillaTransformerTokenizer.train(
        SOURCE, TARGET, kind=kind, vocab_size=size, shared=shared
    )


def text_of(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(("kind", "shared"), [*itertools.product(KINDS, [True, False])])
def test_generation_stops_at_the_token_that_completes_a_stop_string(tiny_model, kind, shared):
    tokenizer = train(kind, shared)
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": tokenizer.target_vocab_size}
    model = tiny_model(seed=3, **LIVELY, **sizes)
    inputs = tokenizer(SOURCE[:1], return_tensors="pt")
    texts = [tokenizer.decode(index) for index in range(tokenizer.target_vocab_size)]
    odd = [i for i, text in enumerate(texts) if "\ufffd" in text]  # parts of characters
    search = {"max_new_tokens": 30, "do_sample": True, "suppress_tokens": [0, 1, 2, 3, *odd]}
    torch.manual_seed(0)
    free = model.generate(**inputs, **search)[0].tolist()
    whole = text_of(tokenizer, free)
    middle = len(whole) // 2
    stop = whole[middle : middle + 4].strip() or whole[middle - 4 : middle]
    assert stop
    torch.manual_seed(0)
    found = model.generate(**inputs, **search, stop_strings=[stop], tokenizer=tokenizer)[0].tolist()
    assert found == free[: len(found)]
    assert len(found) < len(free)
    assert stop in text_of(tokenizer, found)
    assert stop not in text_of(tokenizer, found[:-1])


def test_a_stop_string_may_end_within_a_character_that_two_tokens_spell(tiny_model):
    tokenizer = VanillaTransformerTokenizer.train(["abc"], kind="byte_bpe", vocab_size=260)
    ids = tokenizer("a ü", add_special_tokens=False, return_tensors="pt").input_ids
    criterion = StopStrings(tokenizer, "ü")
    assert criterion(ids, None).tolist() == [True]
    assert criterion(ids[:, :-1], None).tolist() == [False]


def test_equal_tokens_of_other_kinds_do_not_share_their_texts():
    texts = ["a b c"]
    words = VanillaTransformerTokenizer.train(texts, kind="word")
    letters = VanillaTransformerTokenizer(tokenizer_object=words.backend_tokenizer)
    letters.backend_tokenizer.decoder = train("char", True).backend_tokenizer.decoder
    assert words.get_vocab() == letters.get_vocab()
    ids = words("a b", add_special_tokens=False, return_tensors="pt").input_ids
    for tokenizer, stop in ((words, "a b"), (letters, "ab")):
        assert StopStrings(tokenizer, stop)(ids, None).tolist() == [True]
        assert StopStrings(tokenizer, "b c")(ids, None).tolist() == [False]


def test_a_language_model_stops_too(tiny_model):
    tokenizer = train("char", True)
    model = tiny_model(cls=VanillaTransformerForCausalLM, vocab_size=len(tokenizer), seed=5)
    inputs = tokenizer("one ", return_tensors="pt", add_special_tokens=False)
    search = {"max_new_tokens": 40, "do_sample": True, "suppress_tokens": [0, 1, 2, 3]}
    torch.manual_seed(0)
    free = text_of(tokenizer, model.generate(**inputs, **search)[0])
    torch.manual_seed(0)
    stop = free[20:23]
    ids = model.generate(**inputs, **search, stop_strings=stop, tokenizer=tokenizer)[0]
    assert text_of(tokenizer, ids) == free[: free.index(stop, 1) + len(stop)]


def test_stop_strings_without_a_tokenizer_are_refused(tiny_model):
    with pytest.raises(ValueError, match="tokenizer"):
        tiny_model().generate(torch.tensor([[4, 5]]), stop_strings="x")
