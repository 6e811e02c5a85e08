"""`Translator`: engines agree, texts keep their form, details are right, errors are clear."""

import math
import random
import shutil
from dataclasses import replace

import pytest
import torch
from made_up_language import NOUNS, VERBS
from programs import REPOSITORY
from split_texts import NO_MODEL, split_by
from transformers import GenerationConfig

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.files.loading import load_model
from vanilla_transformer.inference import segment_translator
from vanilla_transformer.inference.constrained import search_with_terms
from vanilla_transformer.inference.engine import Hypothesis
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import least_risk, metric_by_name
from vanilla_transformer.inference.segments import Output
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.inspection.attention_maps import attention_maps
from vanilla_transformer.run.adapters import add_adapters
from vanilla_transformer.text.memory import Memory, Pair
from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."
PAIRS = list(zip(NOUNS, reversed(NOUNS), strict=True))
SOURCES = [f"a {noun} {verb} a {other} ." for noun, other in PAIRS for verb in VERBS]
SEARCHES = [{"num_beams": 1}, {"num_beams": 4}, {"num_beams": 3, "n_best": 3}]


@pytest.fixture(scope="module")
def engines(trained):
    names = ("transformers", "ctranslate2")
    return {name: Translator.from_pretrained(str(trained), name, "cpu") for name in names}


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_a_run_tells_how_many_texts_are_done(engines, name):
    done: list[int] = []
    options = TranslateOptions(batch_tokens=64)
    engines[name].run(engines[name].plan(SOURCES, options), done.append)
    assert done == sorted(done)
    assert done[-1] == len(SOURCES)
    assert name == "ctranslate2" or len(done) > 1


@pytest.mark.parametrize("search", SEARCHES)
def test_engines_agree(engines, search):
    expected = engines["transformers"].translate(SOURCES, return_scores=True, **search)
    found = engines["ctranslate2"].translate(SOURCES, return_scores=True, **search)
    for one, other in zip(expected, found, strict=True):
        several = zip(one, other, strict=True) if isinstance(one, list) else [(one, other)]
        for ours, theirs in several:
            assert ours.text == theirs.text
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)


def test_the_fastest_engine_computes_with_the_present_weights_of_a_model(trained, engines):
    model, tokenizer = load_model(str(trained), "cpu")
    translator = Translator.from_model(model, tokenizer, copies_weights=True)
    assert translator.engine.name == "ctranslate2"
    assert translator.translate(SOURCES) == engines["transformers"].translate(SOURCES)
    assert translator.translate(LINE, num_beams=2, bad_words_ids=[[7, 8]])  # by transformers
    with torch.no_grad():
        for weight in model.model.encoder.layers[0].parameters():
            weight.zero_()
    changed = [
        Translator.from_model(model, tokenizer, copies).translate(SOURCES, return_scores=True)
        for copies in (True, False)
    ]
    assert [row.text for row in changed[0]] == [row.text for row in changed[1]]
    assert changed[0][0].score != translator.translate(SOURCES, return_scores=True)[0].score


def test_weights_with_adapters_are_not_copied(trained):
    model, tokenizer = load_model(str(trained), "cpu")
    add_adapters(model, 2, with_embeddings=False)
    translator = Translator.from_model(model, tokenizer, copies_weights=True)
    assert translator.engine.name == "transformers"


LIMITS = [
    {"forced_bos_token_id": 9},
    {"forced_bos_token_id": 9, "forced_eos_token_id": 2, "max_new_tokens": 3},
    {"forced_eos_token_id": 2, "max_new_tokens": 6, "num_beams": 4},
    {"suppress_tokens": [8, 9]},
    {"suppress_tokens": [2]},
    {"bad_words_ids": [[0], [2], [7], [8, 9]]},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2, "forced_bos_token_id": 9, "min_length": 9},
    {"min_length": 9, "max_new_tokens": 12},
    {"min_new_tokens": 9, "min_length": 2},
    {"min_length": 9, "max_new_tokens": 5},
]


@pytest.mark.parametrize("limits", LIMITS)
def test_what_a_search_forces_and_forbids_is_the_same_in_both_engines(engines, limits):
    beams = {"num_beams": 3, "n_best": 2, "renormalize_logits": True}
    for search in ({"num_beams": 1}, beams):
        options = {"max_new_tokens": 15, "return_tokens": True, **search, **limits}
        expected = engines["transformers"].translate(SOURCES, **options)
        assert engines["ctranslate2"].translate(SOURCES, **options) == expected


@pytest.mark.parametrize("search", SEARCHES)
def test_rows_that_only_pad_the_matrix_are_never_chosen(engines, padded, search):
    options = {**search, "return_tokens": True, "suppress_tokens": [31, 4000]}
    expected = engines["transformers"].translate(SOURCES, **options)
    model, tokenizer = load_model(padded, "cpu")
    sequences = model.generate(**tokenizer(LINE, return_tensors="pt"), num_beams=1)
    assert sequences.max() >= len(tokenizer)
    translators = [
        Translator.from_pretrained(padded, e, "cpu") for e in ("transformers", "ctranslate2")
    ]
    translators.append(Translator.from_pretrained([padded, padded], device="cpu"))
    translators.append(Translator.from_model(model, tokenizer))
    for translator in translators:
        assert translator.translate(SOURCES, **options) == expected
    assert None not in attention_maps(model, tokenizer, LINE).predicted
    assert model.generate(**tokenizer(LINE, return_tensors="pt"), num_beams=1).equal(sequences)


def test_ctranslate2_needs_a_library_on_a_gpu(trained, monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("vanilla_transformer.inference.engine_choice.CDLL", missing)
    with pytest.raises(ValueError, match="libcublas"):
        Translator.from_pretrained(str(trained), engine="ctranslate2", device="cuda")


def test_a_search_that_ctranslate2_limits_otherwise_goes_to_transformers(engines):
    for limits in (*LIMITS[3:4], *LIMITS[5:9]):  # without `renormalize_logits`
        with pytest.raises(ValueError, match="renormalize_logits"):
            engines["ctranslate2"].translate(LINE, num_beams=2, **limits)
    settings = engines["ctranslate2"].settings
    start, pad = settings.decoder_start_token_id, settings.pad_token_id
    with pytest.raises(ValueError, match="begins with the start"):
        engines["ctranslate2"].translate(LINE, bad_words_ids=[[start, 7]])
    options = {"num_beams": 2, "bad_words_ids": [[pad], [start]]}  # never generated
    assert engines["ctranslate2"].translate(LINE, **options) == OUTPUT


def test_the_batch_changes_nothing(engines):
    chance = random.Random(0)
    for translator in engines.values():
        expected = [translator.translate(source, num_beams=2) for source in SOURCES]
        order = chance.sample(range(len(SOURCES)), len(SOURCES))
        shuffled = [SOURCES[index] for index in order]
        found = translator.translate(shuffled, num_beams=2, batch_tokens=chance.randint(1, 99))
        assert found == [expected[index] for index in order]


def test_the_form_of_the_input_is_the_form_of_the_output(engines):
    for translator in engines.values():
        assert translator.translate(LINE) == OUTPUT
        assert translator.translate([LINE, "", " \t"]) == [OUTPUT, "", " \t"]
        assert translator.translate([]) == []
        assert translator.translate(f"\ufeff {LINE}\u3000") == f"\ufeff {OUTPUT}\u3000"
        assert translator.translate(f"{LINE}\r\n\n{LINE}\n") == f"{OUTPUT}\r\n\n{OUTPUT}\n"
        assert translator.translate([LINE], num_beams=2, n_best=1) == [[OUTPUT]]


def warnings_of(heard):
    return [message for message in heard.messages if "cut off" in message]


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_outputs_that_are_cut_off_are_counted(engines, name, heard):
    translator = engines[name]
    texts = [LINE, "", f"{LINE}\n{LINE}"]
    assert translator.translate(texts, num_beams=1, max_new_tokens=5)[0] == OUTPUT
    assert warnings_of(heard) == []
    found = translator.translate(texts, num_beams=1, max_new_tokens=4, return_scores=True)
    assert [one.is_complete for one in found] == [False, True, False]
    expected = "cut off at the longest length of 4 tokens: 2, in text 1, text 3. Give a larger"
    assert [expected in message for message in warnings_of(heard)] == [True]
    assert translator.translate(LINE, num_beams=1, max_new_tokens=2) == "Hund sieht"
    assert "of 2 tokens: 1, " in warnings_of(heard)[-1]
    stream = translator.translate(iter(texts * 3), num_beams=2, n_best=2, max_new_tokens=3)
    assert len(warnings_of(heard)) == 2
    assert len(list(stream)) == 9
    assert "of 3 tokens: 12, " in warnings_of(heard)[-1]


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_a_line_whose_output_is_cut_off_is_translated_in_sentences(
    engines, name, heard, monkeypatch
):
    translator, options = engines[name], {"num_beams": 2, "max_new_tokens": 6}
    generate = translator.engine.generate

    def generate_without_end(sources, *arguments, **options):
        rows = generate(sources, *arguments, **options)
        return [
            [Hypothesis(best.ids[:1] * 6, None, None) for best in row] if len(ids) > 10 else row
            for ids, row in zip(sources, rows, strict=True)
        ]

    monkeypatch.setattr(translator.engine, "generate", generate_without_end)
    line, output = f"{LINE}  {LINE} a man finds a boat .", f"{OUTPUT}  {OUTPUT} Mann findet Boot ."
    assert translator.translate([LINE, f" {line}\n{LINE}"], **options) == [
        OUTPUT,
        f" {output}\n{OUTPUT}",
    ]
    assert warnings_of(heard) == []
    several = translator.translate(line, n_best=2, return_scores=True, **options)
    assert (several[0].text, len(several)) == (output, 2)
    found = translator.translate(
        [line], return_tokens=True, return_alignment=True, return_word_alignment=True, **options
    )[0]
    assert (found.text, found.is_complete) == (output, True)
    assert list(found.tokens) == [*(f"{OUTPUT} </s> " * 2 + "Mann findet Boot . </s>").split()]
    assert max(target for _, target in found.alignment) == len(found.tokens) - 2
    assert max(source for source, _ in found.word_alignment) == len(line.split()) - 1


@pytest.mark.parametrize(
    ("languages", "is_whole"),
    [(("en", "de"), True), ((None, None), False), (("en", "en"), False)],  # as a summary is
)
def test_a_translation_that_lacks_sentences_is_made_of_each_sentence(
    engines, languages, is_whole, monkeypatch
):
    translator = engines["transformers"]
    generate = translator.engine.generate

    def generate_one_sentence(sources, *arguments, **options):
        rows = generate(sources, *arguments, **options)
        return [
            [replace(best, ids=best.ids[:4]) for best in row] if len(ids) > 10 else row
            for ids, row in zip(sources, rows, strict=True)
        ]

    source, target = languages
    options = {"num_beams": 2, "max_new_tokens": 20, "src_lang": source, "tgt_lang": target}
    monkeypatch.setattr(segment_translator, "is_sure_end", lambda *_: True)
    monkeypatch.setattr(translator.engine, "generate", generate_one_sentence)
    assert translator.translate(LINE, **options) == OUTPUT
    assert (translator.translate(f"{LINE} {LINE}", **options) == f"{OUTPUT} {OUTPUT}") == is_whole


def test_texts_that_are_cut_off_all_the_same_are_named(engines, heard):
    translator = engines["transformers"]
    texts = [LINE, f"\n{LINE}", "", LINE]
    translator.translate(texts, num_beams=1, max_new_tokens=4)
    assert ", in text 1, text 2, text 4. " in warnings_of(heard)[-1]
    translator.translate(texts, num_beams=1, max_new_tokens=4, name_text="abcd".__getitem__)
    assert ", in a, b, d. " in warnings_of(heard)[-1]


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_an_end_that_is_forced_is_no_end(engines, name, heard, monkeypatch):
    """Marian and BART force the end at the longest length: the output is cut off all the same."""
    settings = engines[name].settings
    monkeypatch.setattr(settings, "forced_eos_token_id", settings.eos_token_id)
    options = {"num_beams": 1, "return_tokens": True, "return_scores": True}
    found = engines[name].translate([LINE], max_new_tokens=3, **options)
    assert (found[0].text, found[0].is_complete) == ("Hund sieht", False)
    assert "of 3 tokens: 1, " in warnings_of(heard)[-1]
    assert found[0].tokens == ("Hund", "sieht", "</s>")  # also where CTranslate2 stops before it
    assert len(found[0].token_scores) == 3
    if name == "ctranslate2":
        with pytest.raises(ValueError, match="`max_new_tokens` is 1, the end that"):
            engines[name].translate(LINE, max_new_tokens=1)


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_what_is_no_text_is_refused_at_the_call(engines, name):
    translator = engines[name]
    for texts in (3, None, b"a dog", {"text": LINE}):
        with pytest.raises(ValueError, match=r"`texts` is .*: give a text, a list of texts"):
            translator.translate(texts)
    for call in (translator.score, translator.align):
        with pytest.raises(ValueError, match=r"`sources` is .*: give a list"):
            call(LINE, OUTPUT)


def test_a_model_without_a_start_token_says_so(trained, tmp_path):
    none = {"decoder_start_token_id": None, "bos_token_id": None}
    folder = with_settings(trained, tmp_path / "model", **none)
    translator = Translator.from_pretrained(folder, "transformers", "cpu")
    for call, texts in ((translator.translate, (LINE,)), (translator.score, ([LINE], [OUTPUT]))):
        with pytest.raises(ValueError, match="`decoder_start_token_id`"):
            call(*texts)
    assert translator.translate(LINE, decoder_start_token_id=0) == OUTPUT


def test_a_stream_is_read_as_it_is_needed(engines, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.inference.translator.TEXTS_PER_CHUNK", 2)
    read = []

    def lines():
        for number in range(6):
            read.append(number)
            yield LINE

    outputs = engines["transformers"].translate(lines())
    assert next(outputs) == OUTPUT
    assert len(read) == 2
    assert len(list(outputs)) == 5


@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("kind", [list, iter])
def test_neighbours_of_a_text_count_at_the_borders_of_chunks(engines, monkeypatch, size, kind):
    monkeypatch.setattr("vanilla_transformer.inference.translator.TEXTS_PER_CHUNK", size)
    rows = [("a b", "X1"), ("open", "O1"), ("c d", "X2"), ("open", "O2"), ("open", "O3")]
    memory, translator = Memory([Pair(*row) for row in rows]), engines["transformers"]
    for texts, outputs in (
        (["a b", "open"], ["X1", "O1"]),
        ([*"xyz", "a b", "open", "c d"], ["X1", "O1", "X2"]),
        (["c d", "open", "open"], ["X2", "O2", "O3"]),
    ):
        assert [*translator.translate(kind(texts), memory=memory)][-len(outputs) :] == outputs


def test_long_lines_are_split_and_nothing_is_lost(trained):
    short = Translator.from_pretrained(str(trained), "transformers", "cpu", max_source_tokens=8)
    text = f"{LINE}  a man finds a boat . {LINE}"
    assert short.translate(text) == f"{OUTPUT}  Mann findet Boot . {OUTPUT}"
    detailed = short.translate(text, return_scores=True, return_tokens=True, return_alignment=True)
    first, second = [*OUTPUT.split(), "</s>"], ["Mann", "findet", "Boot", ".", "</s>"]
    assert list(detailed.tokens) == [*first, *second, *first]
    assert len(detailed.token_scores) == len(detailed.tokens)
    assert max(target for _, target in detailed.alignment) == 13


def test_texts_without_spaces_are_cut_and_nothing_is_lost():
    line = "今天天气很好、我们在公园里走路。z. B. so"
    tokenizer = VanillaTransformerTokenizer.train([line], kind="char")
    tokenizer.src_lang, tokenizer.tgt_lang = "deu_Latn", "eng_Latn"
    translator = Translator(NO_MODEL, tokenizer, GenerationConfig(eos_token_id=2), 9)
    split = split_by(translator, line)
    pieces = ["今天天气很好、", "我们在公园里走", "路。", "z. B. so"]
    assert [segment.text for segment in split.segments] == pieces
    assert max(map(len, split.segments)) == 9
    for language, space in (("eng_Latn", " "), ("jpn_Jpan", ""), (None, "")):
        tokenizer.tgt_lang = language
        job = translator.plan([line], TranslateOptions())
        split = translator.reader.split(job)
        texts = zip(split.segments, ["今天", "我", "路", "で"], strict=True)
        found = Hypothesis((), None)
        rows = [[Output(segment, found, text=text)] for segment, text in texts]
        ((output,),) = translator.joiner.join(job, split, rows)
        assert output.text == space.join(("今天", "我", "路", "で"))


def test_scores_are_those_of_the_model(trained, engines):
    model, tokenizer = load_model(str(trained), "cpu")
    inputs = tokenizer([LINE], return_tensors="pt")
    generated = model.generate(
        **inputs,
        num_beams=2,
        length_penalty=0.5,
        early_stopping=True,
        output_scores=True,
        return_dict_in_generate=True,
    )
    for name in ("transformers", "ctranslate2"):
        found = engines[name].translate(
            LINE, num_beams=2, length_penalty=0.5, return_scores=True, return_tokens=True
        )
        assert found.score == pytest.approx(generated.sequences_scores.item(), abs=1e-4)
        assert found.tokens == (*OUTPUT.split(), "</s>")
        assert math.isclose(sum(found.token_scores) / 5**0.5, found.score, abs_tol=1e-6)


@pytest.mark.parametrize("forced", [{"forced_bos_token_id": 9}, {"forced_eos_token_id": 2}])
def test_scores_are_those_that_the_search_ranks_by(engines, forced):
    search = {"num_beams": 4, "max_new_tokens": 4, **forced}
    slow, details = engines["transformers"], {"return_scores": True, "return_tokens": True}
    inputs = slow.tokenizer(SOURCES, padding=True, return_tensors="pt")
    expected = slow.engine.model.generate(
        **inputs, **search, early_stopping=True, num_return_sequences=3,
        return_dict_in_generate=True, output_scores=True,
    ).sequences_scores  # fmt: skip
    for name in ("transformers", "ctranslate2"):
        rows = engines[name].translate(SOURCES, n_best=3, **search, **details)
        scores = [output.score for row in rows for output in row]
        assert scores == pytest.approx(expected.tolist(), abs=1e-4)
        token = rows[0][0].token_scores
        assert (token[0] if "forced_bos_token_id" in forced else token[-1]) == 0


def test_the_score_of_a_target_leaves_out_a_forced_token(trained, tmp_path):
    folder = with_settings(trained, tmp_path / "model", forced_bos_token_id=9)
    for engine in ("transformers", "ctranslate2"):
        translator = Translator.from_pretrained(folder, engine, "cpu")
        output = translator.translate(LINE, return_scores=True, num_beams=1)
        (score,) = translator.score([LINE], [output.text])
        assert score.token_scores == pytest.approx(output.token_scores, abs=1e-4)
        assert score.token_scores[0] == 0


def test_given_targets_are_scored(trained, engines):
    model, tokenizer = load_model(str(trained), "cpu")
    targets = [OUTPUT, "Katze ."]
    batch = tokenizer([LINE, LINE], text_target=targets, return_tensors="pt", padding=True)
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch, labels=labels.masked_fill(labels == 1, -100)).logits.log_softmax(-1)
    expected = logits[0, range(5), labels[0]].sum().item()
    for name in ("transformers", "ctranslate2"):
        scores = engines[name].score([LINE, LINE], targets)
        assert scores[0].log_probability == pytest.approx(expected, abs=1e-4)
        assert scores[1].tokens == ("Katze", ".", "</s>")
        assert scores[0].perplexity < scores[1].perplexity


def test_white_space_around_given_texts_does_not_count(tmp_path, tiny_model):
    tokenizer = VanillaTransformerTokenizer.train(
        ["a dog sees", "a cat"], kind="byte_bpe", fold_white_space=False
    )
    translator = Translator.from_model(tiny_model(vocab_size=len(tokenizer)), tokenizer)
    assert tokenizer("a dog ").input_ids != tokenizer("a dog").input_ids
    (plain,) = translator.score(["a dog"], ["a cat"])
    for score in translator.score([" a dog\u3000", "a dog\t"], ["a cat\n", "\ufeffa cat"]):
        assert score.tokens == plain.tokens
        assert score.token_scores == pytest.approx(plain.token_scores, abs=1e-5)
    aligned = translator.align(["a dog", "a dog \n"], ["a cat", "  a cat "])
    assert aligned[0] == aligned[1]


@pytest.mark.parametrize("changes", [{"do_sample": True}, {"repetition_penalty": 1.5}])
def test_scores_need_no_search(trained, engines, tmp_path, changes):
    folder = with_settings(trained, tmp_path / "model", **changes)
    expected = engines["ctranslate2"].score([LINE], [OUTPUT])
    for name in ("ctranslate2", "auto"):
        translator = Translator.from_pretrained(folder, name, "cpu")
        assert translator.score([LINE], [OUTPUT]) == expected
        assert translator.engines.loaded is None
        assert translator.align([LINE], [OUTPUT])[0].words


@pytest.mark.parametrize("limits", [*LIMITS[3:4], *LIMITS[5:9]])
def test_a_further_search_is_one_that_the_engine_can_do(engines, limits):
    options = TranslateOptions.of(num_beams=1, **limits)
    search, engine = engines["ctranslate2"].search_of(options), engines["ctranslate2"].engine
    for further in (search.with_outputs(8), search_with_terms(search, [[(9,)]])):
        assert further.num_beams > 1
        assert engine.problems(further) == []


def test_the_output_with_the_least_risk_is_the_most_similar_one(engines):
    outputs = ["dogs run", "the cat sat", "the cat sits", "the cat sat"]
    assert least_risk(outputs, metric_by_name("chrf")) == 1
    assert least_risk(["b", "a", "a"], lambda output, other: float(output == other)) == 1
    search = {"minimum_risk": "chrf", "candidates": 4}
    translator = engines["transformers"]
    assert translator.translate(LINE, do_sample=True, temperature=0.01, **search) == OUTPUT
    candidates = translator.translate(LINE, num_beams=4, n_best=4)
    best = candidates[least_risk(candidates, metric_by_name("chrf"))]
    assert translator.translate(LINE, **search) == best


def test_auto_takes_the_fastest_engine_that_can_do_it(trained, monkeypatch):
    translator = Translator.from_pretrained(str(trained), device="cpu")
    assert translator.engine.name == "ctranslate2"
    assert translator.translate(LINE, do_sample=True, temperature=0.01) == OUTPUT
    assert translator.translate(LINE, num_beams=2, early_stopping=False) == OUTPUT
    monkeypatch.setattr("vanilla_transformer.inference.engine_choice.find_spec", lambda name: None)
    assert Translator.from_pretrained(str(trained), device="cpu").engine.name == "transformers"
    with pytest.raises(ValueError, match=r"pip install"):
        Translator.from_pretrained(str(trained), "ctranslate2", "cpu")


def with_settings(trained, folder, **changes):
    """Copies a model and changes its saved settings of the search."""
    settings = GenerationConfig.from_pretrained(shutil.copytree(trained, folder))
    settings.update(**changes)
    settings.save_pretrained(folder)
    return str(folder)


def test_settings_that_name_their_defaults_suit_every_engine(trained, tmp_path):
    """The stock `Seq2SeqTrainer` saves them after an evaluation."""
    defaults = GenerationConfig._get_default_generation_params()
    folder = with_settings(trained, tmp_path / "model", **defaults, defaults_only=True)
    translator = Translator.from_pretrained(folder, "ctranslate2", "cpu")
    assert translator.translate([LINE], num_beams=2)[0] == OUTPUT
    with pytest.raises(ValueError, match=r"`repetition_penalty` is 1\.5"):
        translator.translate(LINE, repetition_penalty=1.5)


def test_tokens_of_the_settings_that_an_export_lacks_count(trained, tmp_path):
    """CTranslate2 takes the end from config.json, and any start."""
    folder = shutil.copytree(trained, tmp_path / "model")
    settings = GenerationConfig.from_pretrained(folder)
    expected = Translator.from_pretrained(str(trained), "transformers", "cpu")
    word = expected.tokenizer.convert_tokens_to_ids("sieht")
    changes = [{"eos_token_id": [2, word]}, {"eos_token_id": word}, {"forced_eos_token_id": word}]
    for change in (*changes, {"decoder_start_token_id": word}):
        GenerationConfig(**{**settings.to_dict(), **change}).save_pretrained(folder)
        slow, fast = (
            Translator.from_pretrained(str(folder), engine, "cpu")
            for engine in ("transformers", "auto")
        )
        options = {"max_new_tokens": 4, "return_alignment": True, "return_tokens": True}
        for num_beams in (1, 3):
            found, wanted = (
                t.translate([LINE], num_beams=num_beams, **options) for t in (fast, slow)
            )
            assert found == wanted
        scores = [each.score([LINE], [OUTPUT])[0].token_scores for each in (fast, slow)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        if "decoder_start_token_id" in change:
            continue
        exact = Translator.from_pretrained(str(folder), "ctranslate2", "cpu")
        with pytest.raises(ValueError, match=f"`{next(iter(change))}` is"):
            exact.translate(LINE)


def test_the_end_of_an_output_is_the_one_that_it_has(engines):
    translator = engines["transformers"]
    word = translator.tokenizer.convert_tokens_to_ids("sieht")
    found = translator.translate(
        LINE, num_beams=1, eos_token_id=[2, word], return_tokens=True, return_scores=True
    )
    assert found.tokens == ("Hund", "sieht")
    whole = translator.translate(LINE, num_beams=1, return_scores=True)
    assert found.token_scores == pytest.approx(whole.token_scores[:2], abs=1e-5)


def test_equal_models_share_an_export_and_other_weights_have_another(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))  # others have exports of it too
    folder = shutil.copytree(trained, tmp_path / "model")

    def exports(**options):
        Translator.from_pretrained(str(folder), "ctranslate2", "cpu", **options)
        return {path.name for path in (tmp_path / "ctranslate2").iterdir()}

    first = exports()
    assert len(first) == 1
    assert exports() == first
    assert len(exports(compute_type="int8")) == 2
    model, _ = load_model(str(folder), "cpu")
    model.lm_head.weight.data[7, 3] += 1
    model.save_pretrained(folder)
    assert len(exports()) == 3


def test_an_export_that_fails_leaves_nothing_behind(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))

    def fail(model, tokenizer, folder, *arguments, **options):
        folder.mkdir()
        raise OSError("no space left")

    place = "vanilla_transformer.inference.ctranslate2_engine.convert_to_ctranslate2"
    monkeypatch.setattr(place, fail)
    with pytest.raises(OSError, match="no space left"):
        Translator.from_pretrained(str(trained), "ctranslate2", "cpu")
    assert list((tmp_path / "ctranslate2").iterdir()) == []


def test_two_processes_may_make_an_export_at_once(trained, tmp_path, monkeypatch):
    """The other one is faster here, so that its folder is in the way of ours."""
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    place = "vanilla_transformer.inference.ctranslate2_engine.convert_to_ctranslate2"

    def convert_after_another(model, tokenizer, folder, *arguments, **options):
        convert_to_ctranslate2(model, tokenizer, folder, *arguments, **options)
        shutil.copytree(folder, tmp_path / "ctranslate2" / folder.name)

    monkeypatch.setattr(place, convert_after_another)
    translator = Translator.from_pretrained(str(trained), "ctranslate2", "cpu")
    assert translator.translate(LINE) == OUTPUT


def test_ctranslate2_leaves_other_devices_to_torch(trained):
    with pytest.raises(ValueError, match="the device 'meta'"):
        Translator.from_pretrained(str(trained), "ctranslate2", "meta")
    assert Translator.from_pretrained(str(trained), "auto", "meta").engine.name == "transformers"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_bems": 2}, "Unknown search option 'num_bems'"),
        ({"n_best": 3, "num_beams": 2}, "the search keeps 2"),
        ({"minimum_risk": "ter"}, "Unknown metric 'ter'"),
        ({"minimum_risk": "chrf", "candidates": 0}, "`candidates` is 0, which is below 1"),
        ({"candidates": 4}, "`candidates` has no effect"),
        ({"keep": False, "keep_patterns": ["x"]}, "`keep_patterns` has no effect"),
        ({"top_p": 0.5}, "`top_p` has no effect"),
        ({"target_language": "de"}, "`target_language` is called `tgt_lang` here"),
        ({"scores": True}, "`scores` is called `return_scores` here"),
        ({"batch_tokens": -3}, "`batch_tokens` is -3, which is below 1"),
        ({"n_best": 0}, "`n_best` is 0, which is below 1"),
        ({"minimum_risk": "chrf", "n_best": 2}, "`n_best` or"),
        ({"do_sample": True}, "`do_sample` is True"),
        ({"num_beams": 2, "early_stopping": False}, "`early_stopping` is False"),
        ({"no_repeat_ngram_size": 2}, "`no_repeat_ngram_size` is 2"),
        ({"max_new_tokens": 5000}, "`max_new_tokens` is 5000, above 2048"),
    ],
)
def test_wrong_options_are_refused(engines, options, message):
    with pytest.raises(ValueError, match=message):
        engines["ctranslate2"].translate(LINE, **options)


def test_wrong_texts_and_engines_are_refused(trained, engines):
    with pytest.raises(ValueError, match=r"texts\[1\] is 3"):
        engines["transformers"].translate([LINE, 3])
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        engines["transformers"].score([LINE, LINE], [OUTPUT])
    with pytest.raises(ValueError, match="Source 0 has 5"):
        Translator.from_pretrained(str(trained), "transformers", max_source_tokens=4).score(
            ["a dog sees a"], [OUTPUT]
        )
    with pytest.raises(ValueError, match="Unknown engine 'marian'"):
        Translator.from_pretrained(str(trained), "marian")
    with pytest.raises(ValueError, match="int3"):
        Translator.from_pretrained(str(trained), "ctranslate2", "cpu", compute_type="int3")


def test_batches_have_the_size_of_the_device_or_of_the_option(engines, monkeypatch):
    for translator in engines.values():
        assert translator.call_of(TranslateOptions()).batch_tokens == 1024
        assert translator.call_of(TranslateOptions(batch_tokens=77)).batch_tokens == 77
        call = translator.call_of(TranslateOptions(batch_tokens=4))
        assert translator.steps.with_search(call, call.search.with_outputs(32)).batch_tokens == 1
        monkeypatch.setattr(type(translator.engine), "device_type", "cuda")
        assert translator.engine.batch_tokens == 4096


def test_a_translator_shows_its_engine_and_languages():
    translator = Translator.from_pretrained(
        REPOSITORY / "model_cards" / "program-texts", engine="transformers"
    )
    assert translator.source_languages == ["en"]
    assert sorted(translator.target_languages) == ["de", "es", "fr", "ja", "zh"]
    assert repr(translator).startswith("Translator(engine='transformers', source_languages=['en']")
    without = Translator.from_pretrained(
        REPOSITORY / "model_cards" / "pronounce", engine="transformers"
    )
    assert (without.source_languages, without.target_languages) == ([], [])
