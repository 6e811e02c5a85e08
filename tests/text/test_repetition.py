"""Outputs that repeat themselves are searched once more, with both engines."""

import pytest
from made_up_language import arguments, main
from programs import REPOSITORY

from vanilla_transformer.inference import segment_translator
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.text.repetition import repeats_itself

FOLDER = REPOSITORY / "model_cards" / "program-texts"
REPEATED = [
    "die Tax-Tax-Tax-Tabelle",
    "ein LDAP-DAP-DAP-DAP-Verzeichnis",
    "von der von der, von der",
    "er kam, Er kam er kam.",
    "In der Mitte des Tages in der Mitte des Tages in der Mitte des Tages",
    "omomomomom",
    "的的的",
    "日本日本日本",
]
NOT_REPEATED = [
    "",
    "very very good",
    "978-3-16-148410-0, 978-3-16-148410-0, 978-3-16-148410-0",
    "| --- | --- | --- | --- |",
    "10 10 10 10",
    "......",
    "a b a b a c",
    "Bär, Bar, Bor",
    "谢谢你",
]


@pytest.mark.parametrize("text", REPEATED)
def test_what_repeats_itself(text):
    assert repeats_itself(text)
    assert repeats_itself(f"So {text} !")


@pytest.mark.parametrize("text", NOT_REPEATED)
def test_what_does_not_repeat_itself(text):
    assert not repeats_itself(text)


@pytest.fixture(scope="module", params=["transformers", "ctranslate2"])
def translator(request):
    return Translator.from_pretrained(FOLDER, request.param, "cpu")


TEXTS = [
    "The bitter anchor ate the hollow tax",
    "The humming anchor ate the frozen gargoyle",
    "ALT-ANCHOR AND ALT-GOBLIN AND SHIFT-ANCHOR",
    "Save the file.",
    "tax tax tax",
]


@pytest.mark.parametrize("search", [{"num_beams": 1}, {"num_beams": 5}, {"n_best": 3}])
def test_outputs_that_repeat_themselves_are_searched_again(translator, search, monkeypatch):
    search = {"return_scores": True, "tgt_lang": "de", "n_best": 1, **search}
    found = translator.translate(TEXTS, **search)
    monkeypatch.setattr(segment_translator, "has_lost_its_way", lambda output: False)
    first = translator.translate(TEXTS, **search)
    for number, (row, before) in enumerate(zip(found, first, strict=True)):
        assert len({output.text for output in row}) == search["n_best"]
        assert not any(output.repeated for output in row)
        assert any(output.repeated for output in before) == (number < 3)
        assert all(output in row for output in before if not output.repeated)
        scores = [output.score for output in row]
        assert scores == sorted(scores, reverse=True)


STAY = [
    *("tax tax tax", "very very very good", "ha ha ha"),
    "978-3-16-148410-0, 978-3-16-148410-0, 978-3-16-148410-0",
    *("Save", "Open", "Cancel", "Image", "Dictionary", "Yes", "No", "Help"),
]


@pytest.mark.parametrize("language", ["de", "ja"])
def test_texts_that_repeat_themselves_and_single_words_stay_as_they_were(
    translator, language, monkeypatch
):
    search = {"return_scores": True, "tgt_lang": language, "num_beams": 1}
    found = translator.translate(STAY, **search)
    assert not any(output.repeated for output in found)
    monkeypatch.setattr(segment_translator, "has_lost_its_way", lambda output: False)
    assert translator.translate(STAY, **search) == found


def test_what_only_transformers_can_search_it_searches_again(monkeypatch):
    translator = Translator.from_pretrained(FOLDER, "auto", "cpu")
    monkeypatch.setattr(translator.engine, "generate", None)
    search = {"tgt_lang": "de", "num_beams": 1, "repetition_penalty": 1.0001}
    outputs = translator.translate(TEXTS[:2], return_tokens=True, **search)
    assert not any(output.repeated for output in outputs)


def test_searches_that_draw_or_forbid_repetition_are_made_once(translator, monkeypatch):
    calls, generate = [], translator.engine.generate

    def count(*given, **options):
        calls.append(1)
        return generate(*given, **options)

    monkeypatch.setattr(translator.engine, "generate", count)
    output = translator.translate(
        TEXTS[1], tgt_lang="de", num_beams=2, no_repeat_ngram_size=20, renormalize_logits=True
    )
    assert repeats_itself(output)
    assert len(calls) == 1
    translator.translate(TEXTS[1], tgt_lang="de", num_beams=1)
    assert len(calls) == 3


SAID = {"anna": "stand rat the the the that", "berta": "no no no and goes then"}
SAID["carl"] = "very very very good"


@pytest.mark.parametrize("kind", ["char", "byte_bpe"])
def test_a_vocabulary_of_letters_may_repeat_three_of_them(tmp_path, kind):
    for suffix, texts in (("en", SAID), ("de", SAID.values())):
        (tmp_path / f"train.{suffix}").write_text("".join(f"{text}\n" for text in texts) * 40)
    options = {"tokenizer_kind": kind, "vocab_size": 300, "max_steps": 300, "max_tokens": 1024}
    options |= {"generation_max_length": 60, "num_train_epochs": 1}
    main(arguments(tmp_path, tmp_path / "run", "train", **options))
    translator = Translator.from_pretrained(tmp_path / "run", "transformers", "cpu")
    assert translator.translate(list(SAID), num_beams=1) == list(SAID.values())
