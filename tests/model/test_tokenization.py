"""The tokenizer: training, both sides, round trips, saving, and loading without the package."""

import copy
import json
import pickle
import sys
import threading
from pathlib import Path
from unicodedata import normalize

import pytest
import torch
from datasets import Dataset
from datasets.fingerprint import Hasher
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerTokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS, SPECIAL_TOKENS

SOURCE = [
    "a small dog runs over the green hill",
    "the dog, old and grey, sleeps (again) near 42 trees",
    "trees grow on the hill; the hill is green",
    "an old man reads the small book to a dog!",
]
TARGET = [
    "ein kleiner Hund läuft über den grünen Hügel",
    "der Hund, alt und grau, schläft (wieder) bei 42 Bäumen",
    "Bäume wachsen auf dem Hügel; der Hügel ist grün",
    "ein alter Mann liest das kleine Buch einem Hund vor!",
]
WORDS = ["dog", "hill", "a tree", "green"]
PHONEMES = ["D AO G", "HH IH L", "AH T R IY", "G R IY N"]
HARD_TEXTS = [
    "",
    " ",
    "  two leading and trailing  ",
    "line\nline\r\n\ttab\u00a0\u3000wide",
    "cafe\u0301 caf\u00e9 \u1100\u1161\u11a8 \ufb01",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0010ffff",
    "</s> <s>strike</s><pad><unk> <s",
    "\u2581 \u0120 \u010a",
    "\x00\x01\ufeff\ufffd",
    "中文字 عربى עברית हिन्दी",
]
SIZES = {"bpe": 120, "unigram": 90, "word": 80, "char": 80, "byte_bpe": 300}


def train(kind="bpe", **options):
    return VanillaTransformerTokenizer.train(
        SOURCE, TARGET, kind=kind, vocab_size=SIZES[kind], **options
    )


@pytest.fixture(scope="module")
def shared():
    return train("bpe", model_max_length=64)


@pytest.fixture
def separate():
    return VanillaTransformerTokenizer.train(
        WORDS, PHONEMES, kind="char", target_kind="word", shared=False, model_max_length=16
    )


@pytest.fixture(scope="module")
def byte_level():
    return train("byte_bpe", fold_white_space=False)


# Training


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_the_ids_that_models_begin_with(kind):
    tokenizer = train(kind)
    names = ("bos", "pad", "eos", "unk")
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 1, 2, 3]
    assert tokenizer.convert_ids_to_tokens(range(4)) == ["<s>", "<pad>", "</s>", "<unk>"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_saving(kind, tmp_path):
    tokenizer = train(kind, fold_white_space=False)
    tokenizer.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    texts = [*SOURCE, *TARGET, *HARD_TEXTS]
    ids = tokenizer(texts).input_ids
    assert loaded(texts).input_ids == ids
    decoded = loaded.batch_decode(ids, skip_special_tokens=True)
    assert decoded == tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert kind != "byte_bpe" or decoded == texts


@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_of_a_shared_vocabulary_give_their_training_texts_back(kind):
    tokenizer = train(kind)
    for text in SOURCE + TARGET:
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
        ids = tokenizer(text_target=text).input_ids
        assert ids == tokenizer(text).input_ids
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.batch_decode([ids]) == [
            f"{text}</s>" if kind != "word" else f"{text} </s>"
        ]


def test_unigram_scores_do_not_depend_on_the_order_of_a_hash_map():
    # The trainer keeps no piece of its own for several letters of these texts (T, a, b, n, p).
    texts = [
        "Model, Tokenizer and Trainer of the Transformer",
        "Version 2, written in June",
        "1. Definitions of Attention: an attention is a weighted sum.",
        "Yellow boats sail north while grey boats sail south.",
        "The Attention of a Head is the sum over the positions of the source.",
        "Boats and trains and the attention of the trains, and the trains of attention.",
        "No boat sails; no train runs; no head attends to the padding.",
        "Further positions are positions after the end, and no position is after the end.",
    ]
    states = {
        VanillaTransformerTokenizer.train(
            texts, kind="unigram", vocab_size=70
        ).backend_tokenizer.to_str()
        for _ in range(6)
    }
    assert len(states) == 1
    pieces = json.loads(states.pop())["model"]["vocab"]
    assert [piece for piece, _ in pieces[:4]] == list(SPECIAL_TOKENS)
    assert set("Tabnp") <= {piece for piece, _ in pieces}


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe", "unigram"])
def test_subwords_are_learnt_from_pieces_of_long_words(kind):
    """The trainers take time in the square of the length: minutes for 300,000 characters."""
    word = "".join(f"{number:x}" for number in range(2000))
    pieces = [word[start : start + 1000] for start in range(0, len(word), 1000)]
    whole, cut = (
        VanillaTransformerTokenizer.train([text], kind=kind, vocab_size=400)
        for text in (word, " ".join(pieces))
    )
    assert whole.get_vocab() == cut.get_vocab()


def test_lowercase_concerns_both_sides():
    tokenizer = train("char", lowercase=True, shared=False)
    assert tokenizer.decode(tokenizer("Dog").input_ids, True, side="source") == "dog"
    assert tokenizer.decode(tokenizer(text_target="GRÜN").input_ids, True) == "grün"


def test_min_frequency_drops_rare_words():
    frequent = train("word", min_frequency=3)
    assert "the" in frequent.get_vocab()
    assert "book" not in frequent.get_vocab()
    assert "book" in train("word").get_vocab()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "wordpiece"}, "kind='wordpiece' is unknown.*bpe, unigram"),
        ({"shared": False, "target_kind": "words"}, "kind='words' is unknown"),
        ({"vocab_size": 4}, "vocab_size=4 is too small"),
        ({"kind": "byte_bpe", "vocab_size": 259}, "vocab_size=259 is too small"),
        ({"shared": False, "target_vocab_size": 3}, "vocab_size=3 is too small"),
        ({"kind": "bpe", "vocab_size": 20}, "vocab_size=20 is too small.*Raise vocab_size"),
        ({"kind": "unigram", "vocab_size": 20}, "vocab_size=20 is too small.*Raise vocab_size"),
        ({"kind": "unigram", "vocab_size": 38}, "vocab_size=38 is too small.*Raise vocab_size"),
        ({"source": []}, "source contains no text"),
        ({"source": ["", "  \n"]}, "source contains no text"),
        ({"target": iter([])}, "target contains no text"),
        ({"target": None, "shared": False}, "target=None with shared=False"),
        ({"source": "one string"}, "source is a single string"),
        ({"target": ["text", None]}, r"target\[1\] is None"),
    ],
)
def test_what_cannot_be_trained_is_refused(options, message):
    arguments = {"source": SOURCE, "target": TARGET, **options}
    with pytest.raises(ValueError, match=message):
        VanillaTransformerTokenizer.train(**arguments)


# Round trips


@given(text=st.text())
def test_byte_level_gives_any_text_back(byte_level, text):
    ids = byte_level(text).input_ids
    assert ids[-1] == 2
    assert not {0, 1, 2, 3} & set(ids[:-1])
    assert byte_level.decode(ids, skip_special_tokens=True) == text


SPACES = ["\t", "  ", "\u00a0", "\u3000", "\u2028", "\r\n", " \u200b ", "\ufeff \u2060", " \x1c"]


@pytest.mark.parametrize("kind", KINDS)
def test_white_space_between_and_around_the_words_of_a_source_is_one_space_and_none(kind, tmp_path):
    targets = [*TARGET, "10\u00a0000 \u2009Hunde"]
    folding = VanillaTransformerTokenizer.train(
        [f"\t{SOURCE[0]}  ", *SOURCE[1:]], targets, kind=kind, vocab_size=300, shared=False
    )
    folding.add_tokens(["<2DE>"], special_tokens=True)
    folding.save_pretrained(tmp_path)
    folding = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    plain = VanillaTransformerTokenizer.from_pretrained(tmp_path, fold_white_space=False)
    for text in ("small dog", "<2DE> small dog", "small <2DE> dog"):
        ids = plain(text).input_ids
        assert folding(text).input_ids == ids
        for space in SPACES:
            odd = f"{space}{text.replace(' ', space)}{space}"
            assert folding(odd).input_ids == folding.batch_ids([odd])[0] == ids
            assert folding([odd], truncation=True, max_length=99).input_ids == [ids]
    assert folding(["", " ", "\ufeff\n"]).input_ids == [[2]] * 3
    words = ["small", " dog\t"]
    assert folding(words, is_split_into_words=True).input_ids == (
        plain(["small", "dog"], is_split_into_words=True).input_ids
    )
    ids = folding(text_target=targets[-1]).input_ids
    assert ids == plain(text_target=targets[-1]).input_ids  # white space within a target stays
    for side in (folding, folding.target_tokenizer()):
        assert side(text_target=f"\ufeff {targets[-1]}\u3000").input_ids == ids
        assert side.batch_ids([f" {targets[-1]}\n"], side="target") == [ids]


def test_offsets_are_those_of_a_text_with_other_white_space():
    for kind, options in (("char", {}), ("word", {}), ("bpe", {"min_frequency": 99})):
        text = " \ta\u3000\u200bdog "
        row = train(kind, **options)(text, return_offsets_mapping=True, add_special_tokens=False)
        pieces = [text[begin:end].strip(" \t\u3000\u200b") for begin, end in row.offset_mapping]
        assert "".join(pieces) == "adog"


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
def test_a_decomposed_text_is_the_same_text(kind):
    tokenizer = train(kind)
    composed = TARGET[2]
    assert tokenizer(normalize("NFD", composed)).input_ids == tokenizer(composed).input_ids
    assert 3 not in tokenizer(composed).input_ids


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte_bpe"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("می\u200cشود رفت", ["می\u200cشود", "رفت"]),
        ("क्\u200dष x", ["क्\u200dष", "x"]),
        ("it's 5 \u2764\ufe0f\U0001f469\u200d\U0001f467!", ["it", "'s", "5", None]),
    ],
)
def test_a_word_is_cut_neither_at_its_marks_nor_at_its_joiners(kind, text, words):
    tokenizer = VanillaTransformerTokenizer.train([text] * 9, kind=kind, vocab_size=400)
    if kind != "byte_bpe" and "'" in text:
        words = ["it", "'", "s", "5", None]
    words[-1] = words[-1] or "\u2764\ufe0f\U0001f469\u200d\U0001f467!"
    row = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    spans = {}
    for word, (begin, end) in zip(row.word_ids(), row.offset_mapping, strict=True):
        spans.setdefault(word, []).extend((begin, end))
    assert [text[min(span) : max(span)].strip() for span in spans.values()] == words


def test_sources_of_a_lower_cased_vocabulary_are_lower_cased(tmp_path):
    texts = ["μας δρόμος", "a dog"]
    measured = VanillaTransformerTokenizer.train(texts, TARGET, kind="char", do_lower_case=None)
    measured.add_tokens(["<2DE>"], special_tokens=True)
    measured.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    assert loaded.do_lower_case
    for text in ("ΔΡΌΜΟΣ ΜΑΣ", "<2DE> A DOG"):
        lower = text.lower().replace("<2de>", "<2DE>")
        assert loaded(text).input_ids == loaded(lower).input_ids
        assert loaded.batch_ids([text])[0] == loaded(lower).input_ids
    target = loaded(text_target="Hund").input_ids
    assert loaded.decode(target, skip_special_tokens=True) == "Hund"
    for others in (["a Dog"], ["你好", "१२"]):
        cased = VanillaTransformerTokenizer.train(others, TARGET, do_lower_case=None)
        assert not cased.do_lower_case
    assert not train("char").do_lower_case


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_looks_like_a_special_token_is_not_one(kind):
    forms = [(token, f"a {token} dog", f"{token}{token}", f"x{token}x") for token in SPECIAL_TOKENS]
    texts = [*SOURCE, *sum(forms, ())] * 20
    tokenizer = VanillaTransformerTokenizer.train(texts, kind=kind, vocab_size=400)
    for text in sum(forms, ()):
        ids = tokenizer(text).input_ids
        assert set(ids) & {0, 1, 2} == {2}
        assert ids.count(2) == 1
        if kind != "word" or text in " ".join(texts).split():
            assert 3 not in ids
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_words_that_look_like_special_tokens_survive_lower_case():
    texts = ["a </S> b </s> x</s>x"]
    tokenizer = VanillaTransformerTokenizer.train(texts, kind="word", lowercase=True)
    ids = tokenizer(texts[0]).input_ids
    assert set(ids) & {0, 1, 2, 3} == {2}
    assert tokenizer.decode(ids, skip_special_tokens=True) == texts[0].lower()
    assert tokenizer.training_options["kind"] == "word"
    del tokenizer.init_kwargs["training_options"]
    assert tokenizer.training_options["kind"] == "word"


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_that_a_user_adds_are_recognised(kind, tmp_path):
    tokenizer = train(kind)
    roles = {"additional_special_tokens": ["<2fr>", "<2de>"], "mask_token": "<mask>"}
    assert tokenizer.add_special_tokens(roles) == 3
    tokenizer.save_pretrained(tmp_path)
    tokenizer = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("<2fr> dog <mask> </s> <2de>").input_ids
    tags = tokenizer.convert_tokens_to_ids(["<2fr>", "<mask>", "<2de>"])
    assert [index for index in ids if index in tags] == tags
    assert ids[0] == tags[0]
    assert ids.count(2) == 1
    assert "<2" not in tokenizer.decode(ids, skip_special_tokens=True)
    assert tokenizer("<2fr>", split_special_tokens=False).input_ids == [tags[0], 2]


# Encoding


def test_end_of_sequence_is_added_and_survives_truncation(shared):
    whole = shared(SOURCE[1]).input_ids
    assert whole[-1] == 2
    assert whole.count(2) == 1
    assert 0 not in whole
    cut = shared(SOURCE[1], truncation=True, max_length=5).input_ids
    assert cut == [*whole[:4], 2]
    labels = shared(SOURCE[1], text_target=TARGET[1], truncation=True, max_length=5).labels
    assert len(labels) == 5
    assert labels[-1] == 2
    assert shared(SOURCE[1], add_special_tokens=False).input_ids == whole[:-1]
    long = shared(" ".join(SOURCE), truncation=True).input_ids
    assert len(long) == shared.model_max_length == 64
    assert long[-1] == 2


def test_padding_side_is_saved(shared, tmp_path):
    tokenizer = copy.deepcopy(shared)
    tokenizer.padding_side = "left"
    tokenizer(SOURCE, padding=True, padding_side="right", truncation=True, max_length=3)
    tokenizer.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    assert loaded.padding_side == "left"
    assert loaded.backend_tokenizer.padding is None
    assert loaded.backend_tokenizer.truncation is None


def test_empty_batches_give_empty_lists_and_tensors(shared):
    assert dict(shared([])) == {"input_ids": [], "attention_mask": []}
    assert shared([], text_target=[]).labels == []
    assert shared([], return_tensors="pt").input_ids.numel() == 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [(None, "entry 1 is None"), ("\ud800", "entry 1 contains a lone surrogate")],
)
def test_entries_that_are_no_text_are_named(shared, entry, message):
    with pytest.raises(ValueError, match=message):
        shared(["a", entry])


# Two sides


def test_labels_come_from_the_target_vocabulary(separate):
    encoded = separate("dog", text_target="D AO G")
    vocabulary, target = separate.get_vocab(), separate.get_vocab(side="target")
    assert encoded.input_ids == [vocabulary["d"], vocabulary["o"], vocabulary["g"], 2]
    assert encoded.labels == [target["D"], target["AO"], target["G"], 2]
    assert separate(text_target="D AO G").input_ids == encoded.labels
    assert separate.encode("D AO G", side="target") == encoded.labels
    assert separate.tokenize("D AO G", side="target") == ["D", "AO", "G"]
    assert separate.tokenize("dog") == ["d", "o", "g"]
    assert len(separate) == separate.vocab_size == len(vocabulary)
    assert separate.target_vocab_size == len(target) != len(vocabulary)


def test_decoding_is_aware_of_the_side(separate):
    encoded = separate("dog", text_target="D AO G")
    assert separate.decode(encoded.labels) == "D AO G </s>"
    assert separate.decode(torch.tensor(encoded.labels), skip_special_tokens=True) == "D AO G"
    assert separate.decode(encoded.input_ids, side="source") == "dog</s>"
    assert separate.batch_decode([encoded.input_ids] * 2, True, side="source") == ["dog"] * 2
    assert separate.decode(encoded.labels[0]) == "D"
    assert separate.convert_ids_to_tokens(encoded.labels[:3], side="target") == ["D", "AO", "G"]
    assert separate.convert_tokens_to_ids("AO", side="target") == encoded.labels[1]
    assert separate.convert_tokens_to_string(["D", "AO"], side="target") == "D AO"
    assert separate.convert_tokens_to_string(["d", "o"]) == "do"


def test_ids_without_a_token_are_left_out_and_negative_ids_refused(separate):
    size = separate.target_vocab_size
    known = separate.decode([4])
    assert separate.batch_decode(torch.tensor([[4, size], [size, 4]])) == [known, known]
    assert separate.decode([len(separate)], side="source") == ""
    with pytest.raises(ValueError, match="-100"):
        separate.decode([4, -100])


def test_an_error_while_encoding_targets_leaves_the_source_in_charge(separate):
    expected = separate("dog").input_ids
    with pytest.raises(ValueError, match="entry 1 is 3"):
        separate("dog", text_target=["D", 3])
    with pytest.raises(ValueError, match="is not a valid"):
        separate("dog", text_target=["D"], padding="sideways")
    assert separate("dog").input_ids == expected
    assert "AO" not in separate.get_vocab()


def test_threads_with_other_options_do_not_disturb_each_other(separate):
    def encode(number):
        length = 3 + number % 5
        text = {"text": "greentreehill"[: 5 + number], "text_target": " ".join("ABCDEFGH"[:number])}
        options = {"truncation": number % 2 == 0, "padding": "max_length", "max_length": length}
        if number % 3 == 0:
            options = {"split_special_tokens": False}
            text["text"] += "</s>"
        return dict(separate(**text, **options, verbose=False))

    expected = [encode(number) for number in range(8)]
    wrong = []

    def work(number):
        wrong.extend(number for _ in range(150) if encode(number) != expected[number])

    before, interval = separate.backend_tokenizer.to_str(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert separate.backend_tokenizer.to_str() == before


def test_added_tokens_go_to_the_source_unless_told_otherwise(separate, tmp_path):
    size, target_size = len(separate), separate.target_vocab_size
    assert separate.add_tokens(["<2de>"]) == 1
    assert separate.add_special_tokens({"extra_special_tokens": ["<sep>"]}) == 2 - 1
    assert separate.add_tokens(["ZZ"], side="target") == 1
    separate.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    for tokenizer in (separate, loaded):
        assert (len(tokenizer), tokenizer.target_vocab_size) == (size + 2, target_size + 1)
        assert tokenizer.tokenize("<2de>dog") == ["<2de>", "d", "o", "g"]
        ids = tokenizer(text_target="D ZZ").input_ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == "D ZZ"
        tokens = tokenizer.convert_ids_to_tokens(ids, skip_special_tokens=True, side="target")
        assert tokens == ["D", "ZZ"]
        assert tokenizer.extra_special_tokens == ["<sep>"]


def test_core_special_tokens_need_one_id_on_both_sides(separate):
    with pytest.raises(ValueError, match=r"pad_token='\[PAD\]' has the id None"):
        separate.add_special_tokens({"pad_token": "[PAD]"})
    assert "[PAD]" not in separate.get_vocab()
    source = Tokenizer(models.WordLevel(dict(zip(SPECIAL_TOKENS, range(4), strict=True))))
    target = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<pad>": 2, "<unk>": 3}))
    with pytest.raises(ValueError, match=r"pad_token='<pad>' has the id 1 in.* and 2 in"):
        VanillaTransformerTokenizer(tokenizer_object=source, target_tokenizer_object=target)


def test_foreign_backends_get_the_end_of_sequence():
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, "a"])}
    source = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    target = Tokenizer(models.WordLevel({**vocabulary, "b": 5}, unk_token="<unk>"))
    tokenizer = VanillaTransformerTokenizer(tokenizer_object=source, target_tokenizer_object=target)
    assert tokenizer("a", text_target="b").labels == [5, 2]
    assert tokenizer("a").input_ids == [4, 2]
    assert source.post_processor is None
    assert tokenizer.decode([5, 2], skip_special_tokens=True) == "b"


def test_ends_of_sequences_can_be_changed_and_are_saved(separate, tmp_path):
    assert (separate.add_bos_token, separate.add_eos_token) == (False, True)
    separate.add_bos_token = True
    separate.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    for tokenizer in (separate, loaded):
        assert (tokenizer.add_bos_token, tokenizer.add_eos_token) == (True, True)
        encoded = tokenizer("d", text_target="D")
        assert (encoded.input_ids[0], encoded.input_ids[-1]) == (0, 2)
        assert (encoded.labels[0], encoded.labels[-1]) == (0, 2)


def test_one_vocabulary_can_be_retrained_but_not_two(shared, separate):
    new = shared.train_new_from_iterator(["xyzzy xyz zyx " * 3], vocab_size=30)
    assert isinstance(new, VanillaTransformerTokenizer)
    assert new.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
    assert new.decode(new("xyz zyx").input_ids, True) == "xyz zyx"
    assert new("xyz").input_ids[-1] == 2
    with pytest.raises(ValueError, match="separate_vocabularies=True"):
        separate.train_new_from_iterator(["x"], vocab_size=30)


# Saving, loading, copying


def behaviour(tokenizer):
    """Everything that must survive: both vocabularies, encoding, options."""
    encoded = tokenizer(["dog", "a tree"], text_target=["D AO G", "T R"], padding=True)
    sides = [tokenizer.get_vocab(side=side) for side in ("source", "target")]
    options = (tokenizer.model_max_length, tokenizer.split_special_tokens, tokenizer.padding_side)
    return dict(encoded), sides, options, tokenizer.separate_vocabularies


@pytest.mark.parametrize("name", ["shared", "separate"])
def test_auto_tokenizer_loads_what_was_saved(name, request, tmp_path):
    tokenizer = request.getfixturevalue(name)
    files = tokenizer.save_pretrained(tmp_path)
    VanillaTransformerConfig().save_pretrained(tmp_path)
    names = {"tokenizer_config.json", "tokenizer.json"}
    if name == "separate":
        names.add("target_tokenizer.json")
    assert {Path(file).name for file in files} == names
    assert Path(tmp_path, "tokenization_vanilla_transformer.py").is_file()
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is VanillaTransformerTokenizer
    assert behaviour(loaded) == behaviour(tokenizer)
    plain = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert plain("dog").input_ids == tokenizer("dog").input_ids


def test_a_missing_vocabulary_is_named(separate, tmp_path):
    name = "target_tokenizer.json"
    separate.save_pretrained(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=f"no {name}"):
        VanillaTransformerTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", ["", "null", '{"version": "1.0"}', "half"])
def test_a_damaged_vocabulary_is_named(shared, tmp_path, content):
    shared.save_pretrained(tmp_path)
    VanillaTransformerConfig().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: len(text) // 2] if content == "half" else content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json' is not a saved tokenizer"):
        AutoTokenizer.from_pretrained(tmp_path)


def test_a_target_file_left_over_from_before_is_not_read(separate, shared, tmp_path):
    separate.save_pretrained(tmp_path)
    shared.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    assert not loaded.separate_vocabularies
    assert loaded.get_vocab(side="target") == shared.get_vocab()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_equal_and_independent(duplicate, separate):
    twin = duplicate(separate)
    assert behaviour(twin) == behaviour(separate)
    twin.add_tokens(["added"])
    twin.add_tokens(["added too"], side="target")
    assert "added" not in separate.get_vocab()
    assert "added too" not in separate.get_vocab(side="target")


def test_maps_over_datasets_with_processes_and_a_stable_fingerprint(separate):
    def encode(batch):
        return separate(batch["word"], text_target=batch["said"], truncation=True, max_length=3)

    before = Hasher.hash(encode)
    data = Dataset.from_dict({"word": WORDS, "said": PHONEMES})
    encoded = data.map(encode, batched=True, num_proc=2)
    assert encoded["labels"][0] == separate(text_target="D AO").input_ids
    separate("dog", text_target="D", truncation=True, max_length=2, padding="max_length")
    assert Hasher.hash(encode) == before
    separate.add_tokens(["ZZ"], side="target")
    assert Hasher.hash(encode) != before


def test_the_target_tokenizer_keeps_the_options(tmp_path):
    options = {"model_max_length": 5, "truncation_side": "left", "padding_side": "left"}
    train = VanillaTransformerTokenizer.train
    tokenizer = train(["a b c"], ["x y z"], shared=False, kind="word")
    tokenizer.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(
        tmp_path, **options, split_special_tokens=False
    )
    target = loaded.target_tokenizer()
    assert {name: getattr(target, name) for name in options} == options
    assert target.split_special_tokens is False
    assert len(target("x y z x y z", truncation=True).input_ids) == 5
    target.save_pretrained(tmp_path / "target")
    again = VanillaTransformerTokenizer.from_pretrained(tmp_path / "target")
    assert {name: getattr(again, name) for name in options} == options
