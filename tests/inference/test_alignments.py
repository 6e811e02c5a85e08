"""Links of words and tokens: which heads make them, in every engine, over lines and long texts."""

import gc
import random
from itertools import product

import pytest
import torch
from tiny_models import make_model

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.inference.transformers_engine import TransformersEngine
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS
from vanilla_transformer.weights.ctranslate2 import aligning_heads

TEXTS = [" ".join(random.Random(number).choices("abcdefghijklmnop", k=6)) for number in range(24)]
WORDS = ["hello wörld , the cat's mat .", "a cafe\u0301 ☃ snow", "你好 世界 x"]


def random_model(words, **changes):
    """A model with weights that make it attend to something."""
    sizes = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 4}
    return make_model(vocab_size=len(words), noise=0.3, **sizes, **changes)


def translator_of(model, words, limit=1000):
    settings = model.generation_config
    settings.max_new_tokens = 12
    return Translator(Engines(TransformersEngine(model)), words, settings, limit)


def words_tokenizer(kind="word"):
    return VanillaTransformerTokenizer.train([*TEXTS, *WORDS], kind=kind, vocab_size=300)


@pytest.mark.parametrize("chosen", [None, [[0, 3]], [[1, 0], [2, 1]]])
def test_the_heads_of_the_config_make_the_links(chosen):
    words = words_tokenizer()
    model = random_model(words, alignment_heads=chosen)
    found = translator_of(model, words).align([TEXTS[0]], [TEXTS[1]])[0]
    inputs = words(TEXTS[0], text_target=TEXTS[1], return_tensors="pt")
    layers = model(**inputs, output_attentions=True).cross_attentions
    if chosen is None:
        weights = layers[1][0].mean(0)
    else:
        weights = sum(layers[layer][0, head] for layer, head in chosen)
    best = weights[:, :6].argmax(-1).tolist()
    assert found.tokens == tuple((best[target], target) for target in range(6))
    assert set(found.words) == set(found.tokens)
    assert found.target_tokens == (*TEXTS[1].split(), "</s>")


def test_the_last_word_has_links_where_sources_have_no_end():
    words = words_tokenizer()
    engine = TransformersEngine(random_model(words, eos_token_id=[words.eos_token_id]))
    ids = words(TEXTS)["input_ids"]
    found = {}
    for name, sources in (("end", ids), ("no end", [row[:-1] for row in ids])):
        aligned = engine.alignments(sources, ids[::-1], 1000, words.bos_token_id)
        found[name] = {link for row in aligned for link in row}
    assert found == {"end": set(range(6)), "no end": set(range(6))}


def test_an_error_leaves_gradients_and_the_mode_as_they_were(monkeypatch):
    words = words_tokenizer()
    engine = TransformersEngine(random_model(words).train())
    monkeypatch.setattr(torch.Tensor, "argmax", None)  # fails between two batches
    with pytest.raises(TypeError):
        engine.alignments([[5]], [[5]], 1000, words.bos_token_id)
    gc.collect()
    assert torch.is_grad_enabled()
    assert engine.model.training


HEADS = {
    "default": (None, 4, True),
    "one head": ([[1, 2]], 4, True),
    "in a group": ([[0, 3]], 2, True),
    "a group and a half": ([[1, 2], [1, 3], [1, 1]], 2, True),
    "two groups": ([[1, 0], [1, 2]], 2, False),
    "two layers": ([[0, 0], [1, 1]], 4, False),
}


@pytest.mark.parametrize(("chosen", "keys", "possible"), HEADS.values(), ids=HEADS)
def test_ctranslate2_links_as_transformers_does(chosen, keys, possible, tmp_path, caplog):
    words = words_tokenizer()
    model = random_model(
        words, alignment_heads=chosen, decoder_num_key_value_heads=keys, residual_scale=0.7
    )
    model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    assert (aligning_heads(model.config) is not None) is possible
    ours, theirs = (
        Translator.from_pretrained(str(tmp_path / "model"), engine, "cpu")
        for engine in ("transformers", "ctranslate2")
    )
    options = {"max_new_tokens": 10, "return_alignment": True, "return_word_alignment": True}
    for search in ({}, {"num_beams": 3, "n_best": 2}):
        expected = ours.translate(TEXTS, **options, **search)
        assert theirs.translate(TEXTS, **options, **search) == expected
    assert (theirs.engines.loaded is not None) is not possible
    assert ("leaves out `alignment_heads`" in caplog.text) is not possible


@pytest.mark.parametrize("kind", KINDS)
def test_links_of_words_are_those_of_their_tokens(kind):
    words = words_tokenizer(kind)
    translator = translator_of(random_model(words), words)
    options = {"return_alignment": True, "return_word_alignment": True, "return_tokens": True}
    for source, output in zip(WORDS, translator.translate(WORDS, **options), strict=True):
        count = len(output.text.split())
        assert all(s < len(source.split()) and t < count for s, t in output.word_alignment)
        again = translator.align([source], [output.text])[0]
        assert again.pharaoh == " ".join(f"{s}-{t}" for s, t in again.words)
        if again.target_tokens == output.tokens:
            assert again.words == output.word_alignment
            assert again.tokens == output.alignment
    with pytest.raises(ValueError, match="return_word_alignment"):
        _ = translator.translate(WORDS[0], return_tokens=True).pharaoh


def test_words_are_counted_on_over_lines_and_pieces():
    words = words_tokenizer("char")
    translator = translator_of(random_model(words), words)
    one, other = (
        translator.translate(text, return_word_alignment=True) for text in ("hello mat", "the cat")
    )
    both = translator.translate("hello mat\n\nthe cat\n", return_word_alignment=True)
    first = len(one.text.split())
    moved = tuple((source + 2, target + first) for source, target in other.word_alignment)
    assert both.text == f"{one.text}\n\n{other.text}\n"
    assert both.word_alignment == tuple(sorted(one.word_alignment + moved))
    short = translator_of(translator.engine.model, words, limit=12)
    long = short.translate("hello mat the cat's mat", return_word_alignment=True)
    count = len(long.text.split())
    assert {source for source, _ in long.word_alignment} <= set(range(5))
    assert {target for _, target in long.word_alignment} <= set(range(count))
    assert max(source for source, _ in long.word_alignment) > 1


def test_pieces_without_white_space_between_them_share_a_word():
    words = words_tokenizer("char")
    model = random_model(words)
    text = "你好。世界"
    short = translator_of(model, words, limit=4).translate(text, return_word_alignment=True)
    assert {source for source, _ in short.word_alignment} <= {0}
    assert all(target < len(short.text.split()) for _, target in short.word_alignment)


def test_blank_texts_have_no_links():
    words = words_tokenizer()
    translator = translator_of(random_model(words), words)
    found = translator.translate(["", " \n"], return_word_alignment=True)
    assert [one.pharaoh for one in found] == ["", ""]
    for one in translator.align(["", "a b", " "], ["a b", "", ""]):
        assert (one.words, one.tokens) == ((), ())
    assert translator.align([], []) == []


def test_what_cannot_be_aligned_is_refused():
    words = words_tokenizer()
    translator = translator_of(random_model(words), words, limit=4)
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        translator.align(["a", "b"], ["a"])
    for compute, option in product(
        (translator.align, translator.score), ("return_links", "num_beams", "minimum_risk")
    ):
        with pytest.raises(TypeError, match=option):
            compute(["a"], ["a"], **{option: 1})
    with pytest.raises(ValueError, match="Source 0 has 7 tokens, and 4 are possible"):
        translator.align(TEXTS[:1], ["a"])


@pytest.mark.parametrize("search", [{}, {"n_best": 2, "num_beams": 2}])
def test_links_tell_the_places_of_tokens_over_lines_and_pieces(search):
    words = words_tokenizer("char")
    translator = translator_of(random_model(words), words, limit=12)
    text = " hello mat\n\nthe cat's mat a cafe .\n"
    options = {"return_alignment": True, "return_word_alignment": True, "return_links": True}
    outputs = translator.translate(text, **options, **search)
    for output in outputs if search else [outputs]:
        links = output.links
        places = [place for place, sign in enumerate(text) if not sign.isspace()]
        assert [end - 1 for begin, end in links.in_source if begin < end] == places
        assert {place for span in links.in_output for place in range(*span)} == {
            place for place, sign in enumerate(output.text) if not sign.isspace()
        }
        assert [source for source, _ in output.alignment] == list(links.aligned)
        of_words = {
            (len(text[:source_end].split()) - 1, len(output.text[:target_end].split()) - 1)
            for (begin, target_end), index in zip(links.in_output, links.aligned, strict=True)
            for source_begin, source_end in [links.in_source[index]]
            if begin < target_end and source_begin < source_end
        }
        assert set(output.word_alignment) == of_words


@pytest.mark.parametrize("engine", ["transformers", "ctranslate2", "ensemble"])
def test_links_lead_to_what_is_put_back(engine, tmp_path):
    words = words_tokenizer()
    model = random_model(words)
    model.generation_config.max_new_tokens = 6
    for saved in (model, words):
        saved.save_pretrained(tmp_path)
    paths, name = ([tmp_path] * 2, "auto") if engine == "ensemble" else (tmp_path, engine)
    translator = Translator.from_pretrained(paths, name, "cpu")
    text = "a b %s c\nd {0}"
    output = translator.translate(text, return_links=True)
    for span in ("%s", "{0}"):
        begin, place = text.index(span), output.text.index(span)
        parts = output.links.linked_with((begin, begin + len(span)))
        assert (place, place + len(span)) in parts
    assert translator.translate(text) == output.text
    assert translator.translate("", return_links=True).links.in_output == []
