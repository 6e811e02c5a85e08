"""Outputs contain the terms that they must contain, and other outputs stay as they are."""

import random
import re
from dataclasses import replace
from itertools import product

import pytest
from programs import REPOSITORY
from tiny_models import make_model

from vanilla_transformer import Translator, VanillaTransformerTokenizer
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.text.terms import Match, Term, missing_targets

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
TEXTS = [" ".join(random.Random(number).choices(WORDS, k=5)) for number in range(40)]


def translate(translator, texts, terms, languages=(None, None), **options):
    """Translates texts of one line whose outputs must contain terms."""
    source, target = languages
    asked = TranslateOptions.of(src_lang=source, tgt_lang=target, **options)
    job = translator.plan(texts, asked)
    split = translator.reader.split(job)
    segments = [
        replace(segment, matches=tuple(Match((0, 0), Term(term, term)) for term in of_text))
        for segment, of_text in zip(split.segments, terms, strict=True)
    ]
    rows = translator.joiner.join(
        job, split, translator.segment_translator.translate(segments, job.call)
    )
    return [row if options.get("n_best") else row[0] for row in rows]


def search_of(translator, **options):
    return translator.call_of(TranslateOptions.of(**options)).search


def missing(targets, text):
    """The targets that a text lacks."""
    return missing_targets([Term(target, target) for target in targets], text)


def toy(kind="word", **changes):
    tokenizer = VanillaTransformerTokenizer.train(TEXTS, kind=kind, vocab_size=300)
    sizes = {"d_model": 32, "encoder_layers": 1, "vocab_size": len(tokenizer)}
    model = make_model(noise=0.3, **{**sizes, **changes})
    model.generation_config.max_new_tokens = 12
    translator = Translator.from_model(model, tokenizer)
    segments = translator.segment_translator
    searches = (each for each in segments.retries if each.compute != segments._with_placed_terms)
    segments.retries = tuple(searches)  # the search is tested, which other words would avoid
    return translator


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("kind", ["word", "bpe", "unigram", "byte_bpe", "char"])
def test_outputs_contain_their_terms_and_those_without_terms_stay(kind, num_beams):
    translator = toy(kind)
    chance = random.Random(1)
    terms = [chance.choices(WORDS, k=chance.choice([0, 1, 1, 2])) for _ in TEXTS]
    options = {"num_beams": num_beams, "max_new_tokens": 30}
    outputs = translate(translator, TEXTS, terms, **options)
    plain = translator.translate(TEXTS, **options)
    for output, text, of_text in zip(outputs, plain, terms, strict=True):
        assert output.missing_terms == ()
        words = re.findall(r"\w+", output.text)
        assert all(words.count(term) >= of_text.count(term) for term in of_text)
        if not missing(of_text, text):
            assert output.text == text


def test_of_several_outputs_those_that_have_their_terms_stay():
    translator, options = toy(), {"num_beams": 8, "n_best": 8, "max_new_tokens": 6}
    plain = translator.translate(TEXTS, **options)
    terms = [
        [word for word in WORDS if 0 < sum(word in text.split() for text in row) < 8][:1]
        for row in plain
    ]
    assert sum(map(bool, terms)) > 20
    rows = translate(translator, TEXTS, terms, **options)
    for row, before, of_text in zip(rows, plain, terms, strict=True):
        kept = [text for text in before if not missing(of_text, text)]
        assert [output.text for output in row][: len(kept)] == kept
        assert {output.missing_terms for output in row} == {()}


def test_terms_and_stop_strings():
    translator = toy("byte_bpe")
    terms = [["zeta"]] * 3
    plain = translate(translator, TEXTS[:3], terms)
    stop = plain[0].text.split()[0]
    stopped = translate(translator, TEXTS[:3], terms, stop_strings=stop)
    assert stopped[0].text.split()[0] == stop
    assert len(stopped[0].text) < len(plain[0].text)


def test_a_model_that_reads_terms_loses_none_that_it_had():
    translator = toy()
    plain = translator.translate(TEXTS)
    terms = [
        [*text.split()[:1], *[word for word in WORDS if word not in text][:1]] for text in plain
    ]
    translator.reader.reads_terms = True
    assert {output.missing_terms for output in translate(translator, TEXTS, terms)} == {()}


@pytest.mark.parametrize("num_beams", [1, 3])
def test_all_sets_of_terms_end_and_tell_what_is_missing(num_beams):
    translator, chance = toy(), random.Random(2)
    phrases = ["alpha", "beta", "alpha beta", "beta alpha", "alpha alpha beta", "beta gamma delta"]
    terms = [chance.choices(phrases, k=chance.randint(1, 5)) for _ in TEXTS]
    outputs = translate(translator, TEXTS, terms, num_beams=num_beams, max_new_tokens=14)
    for output, of_text in zip(outputs, terms, strict=True):
        assert len(output.text.split()) <= 14
        assert output.missing_terms == missing(of_text, output.text)
        if len(" ".join(of_text).split()) < 14:
            assert output.missing_terms == ()


def test_what_cannot_be_placed_is_told():
    translator = toy()
    terms = [["alpha beta gamma", "zeta"], ["snow", "zeta"], ["zeta " * 5 + "zeta"]]
    outputs = translate(translator, TEXTS[:3], terms, max_new_tokens=3)
    assert [output.missing_terms for output in outputs] == [
        ("alpha beta gamma",),
        ("snow",),
        ("zeta zeta zeta zeta zeta zeta",),
    ]
    assert all(len(output.text.split()) <= 3 for output in outputs)


def test_a_wide_search_finds_the_best_output_with_its_term():
    translator = toy()
    engine, tokenizer = translator.engine, translator.tokenizer
    source, (term,) = tokenizer(TEXTS[0])["input_ids"], tokenizer("theta")["input_ids"][:1]
    others = [index for index in range(len(tokenizer)) if index != tokenizer.eos_token_id]
    targets = [
        [*ids, tokenizer.eos_token_id][:3]  # what is cut off at the longest length has no end
        for length in (1, 2, 3)
        for ids in product(others, repeat=length)
        if term in ids
    ]
    scores = engine.token_scores([source] * len(targets), targets, 4000, tokenizer.bos_token_id)
    best = max(zip(map(sum, scores), targets, strict=True))[1]
    search = search_of(translator, num_beams=60, max_new_tokens=3, length_penalty=0.0)
    ((output,),) = engine.generate([source], search, 1000, terms=[[((term,), ())]])
    assert [*output.ids, *([] if output.end is None else [output.end])] == best


def test_rows_without_terms_beside_others_are_those_of_a_beam_search():
    translator = toy()
    engine, sources = translator.engine, translator.tokenizer(TEXTS)["input_ids"]
    search = search_of(translator, num_beams=4, n_best=4)
    terms = [[((9,), ())] if number % 2 else [] for number in range(len(TEXTS))]
    outputs = engine.generate(sources, search, 4096, terms=terms)
    assert outputs[::2] == engine.generate(sources, search, 4096)[::2]
    assert all(9 in output.ids for row in outputs[1::2] for output in row[:1])


def test_every_output_of_several_contains_the_term():
    outputs = translate(toy(), TEXTS[:4], [["zeta"]] * 4, n_best=3, num_beams=3)
    assert all("zeta" in output.text for row in outputs for output in row)


def test_every_engine_places_terms(trained):
    terms = [["Boot"], [], ["Pferd"]]
    texts = ["a dog sees a cat .", "a man likes a bird .", "a child finds a horse ."]
    expected = translate(Translator.from_pretrained(trained, "transformers", "cpu"), texts, terms)
    assert [output.missing_terms for output in expected] == [()] * 3
    fast = Translator.from_pretrained(trained, "ctranslate2", "cpu")
    assert translate(fast, texts, terms) == expected
    outputs = translate(Translator.from_pretrained([trained, trained], "auto", "cpu"), texts, terms)
    assert [output.text for output in outputs] == [output.text for output in expected]


def test_the_model_in_the_repository_places_terms():
    translator, terms = (
        Translator.from_pretrained(REPOSITORY / "model_cards/program-texts"),
        ["Dokument", "Reiter"],
    )
    text = "Open the file %s in a new window."
    (output,) = translate(translator, [text], [terms], (None, "de"))
    assert output.missing_terms == ()
    assert all(term in output.text for term in [*terms, "%s"])
    assert output.is_complete
