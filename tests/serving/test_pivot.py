"""Directions by way of a third language: two models, one after the other."""

import random
import re
from dataclasses import replace
from io import BytesIO

import pytest
from made_up_language import NOUNS, VERBS, arguments, write_pairs
from programs import command
from starlette.testclient import TestClient

from vanilla_transformer.inference.pivot import combine_translations
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.serving.models import load_models
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.request_log import RequestLog
from vanilla_transformer.serving.server import make_app
from vanilla_transformer.serving.settings import Settings, parse_model
from vanilla_transformer.text.token_links import TokenLinks

_WORDS = "perro gato hombre mujer niño caballo pájaro barco ve quiere encuentra"
SPANISH = dict(zip([*NOUNS, *VERBS], _WORDS.split(), strict=True))
GERMAN = {**NOUNS, **VERBS}
TERM = {"cat": "Boot"}


@pytest.fixture(scope="module")
def from_spanish(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spanish")
    chance = random.Random(1)
    for name, count in (("train", 400), ("val", 16), ("test", 16)):
        rows = [
            (*chance.choices(list(NOUNS), k=2), chance.choice(list(VERBS))) for _ in range(count)
        ]
        pairs = [(spanish(*row), f"a {row[0]} {row[2]} a {row[1]} .") for row in rows]
        write_pairs(folder, name, pairs)
    done = command("train", *arguments(folder, folder / "run", num_train_epochs=24))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "run"


def spanish(first, second, verb):
    return f"{SPANISH[first]} {SPANISH[verb]} {SPANISH[second]} ."


def english(word):
    return f"a {word}" if word in NOUNS else word


@pytest.fixture
def client_of(trained, from_spanish, tmp_path):
    made = []

    def make(**options):
        sources = [parse_model(f"en-de={trained}"), parse_model(f"es-en={from_spanish}")]
        settings, metrics = Settings(sources, **options), Metrics()
        models = load_models(settings, metrics)
        made.append(models)
        return TestClient(RequestLog(make_app(settings, models, metrics), metrics))

    yield make
    for models in made:
        models.close()


def ask(client, q, **fields):
    answer = client.post("/translate", json={"q": q, "source": "es", "target": "de", **fields})
    return answer.status_code, answer.json()


FORMS = (  # the words that a model knows, with {0}, {1} and {2}
    "<b>{0}</b> {2} {1} .",
    "{0} {2} <i>{1}</i> .",
    "{0} {2} {1} .<br>\n {1} {2} {0} .",
    "{0} {2} {1} . \U0001f600",
)


def translate_rows(client, rows, source, words):
    """Translates a text for each row, in requests of 20 texts."""
    texts = [form.format(*map(words, row)) for form, row in zip(FORMS * 25, rows, strict=True)]
    found, fields = [], {"source": source, "format": "html", "glossary": list(TERM.items())}
    for begin in range(0, len(texts), 20):
        found += ask(client, texts[begin : begin + 20], **fields)[1]["translatedText"]
    return found


@pytest.mark.parametrize("most", [None, 1])
def test_a_hundred_texts_keep_their_tags_parts_lines_and_terms(client_of, most):
    client, chance = client_of(max_loaded=most), random.Random(2)
    rows = [(*chance.sample(list(NOUNS), 2), chance.choice(list(VERBS))) for _ in range(100)]
    found = translate_rows(client, rows, "es", SPANISH.get)
    assert found == translate_rows(client, rows, "en", english)
    for form, row, output in zip(FORMS * 25, rows, found, strict=True):
        kept = re.compile("<.*?>|\\s\\s+|\U0001f600")
        assert kept.findall(output) == kept.findall(form)
        if "cat" in row:
            assert TERM["cat"] in output
        elif "\U0001f600" not in form:  # the toy has not learnt such texts
            assert output == form.format(*map(GERMAN.get, row))


def test_an_answer_names_the_pivot_and_the_lower_quality(client_of):
    client = client_of()
    status, answer = ask(client, spanish("dog", "cat", "sees"), quality=True, marks=True)
    assert (status, answer["translatedText"], answer["pivot"]) == (200, "Hund sieht Katze .", "en")
    lines = f"{spanish('dog', 'cat', 'sees')}\n\n  {spanish('man', 'cat', 'likes')}"
    assert ask(client, lines)[1]["translatedText"] == "Hund sieht Katze .\n\n  Mann mag Katze ."
    for part in ("{name}", "https://example.org/a", "%s"):
        found = ask(client, f"{spanish('dog', 'cat', 'sees')}\n{part}", marks=True)[1]
        assert found["translatedText"] == f"Hund sieht Katze .\n{part}"
        assert found["marks"] == [{"begin": 19, "end": 19 + len(part), "kind": "kept"}]
    languages = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert languages == {"en": ["de"], "de": [], "es": ["en", "de"]}
    direct = client.post("/translate", json={"q": "a dog", "source": "en", "target": "de"}).json()
    assert "pivot" not in direct


def test_each_text_of_a_list_is_translated_from_its_own_language(client_of):
    client, german = client_of(max_loaded=1), "Der Hund läuft durch den Schnee und freut sich."
    mixed = [
        "El perro corre por la nieve profunda y está muy contento.",
        german,
        "The dog is running through the deep snow, and it is glad.",
        "El gato quiere un barco y la mujer quiere dos caballos.",
    ]
    for kind in ("text", "html"):
        fields = {"source": "auto", "format": kind, "alternatives": 1}
        status, answer = ask(client, mixed, **fields)
        alone = [ask(client, text, **fields)[1] for text in mixed]
        assert status == 200
        for name, found in answer.items():
            assert found == [row.get(name) for row in alone]
        assert [one["language"] for one in answer["detectedLanguage"]] == ["es", "de", "en", "es"]
        assert answer["pivot"] == ["en", None, None, "en"]
        assert answer["translatedText"][1] == german


def test_files_and_corrections_go_through_both_models(client_of, tmp_path):
    client = client_of(memory=str(tmp_path / "corrections.tsv"))
    text, known = spanish("dog", "cat", "sees"), "Hola a todos"
    pair = {"q": known, "s": "Hallo allerseits", "source": "es", "target": "de"}
    assert client.post("/suggest", json=pair).json() == {"success": True}
    content = (
        f'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "{text}"\nmsgstr ""\n\nmsgid "{known}"\n'
    )
    file = {"file": ("a.po", BytesIO(f'{content}msgstr ""\n'.encode()))}
    answer = client.post(
        "/translate_file", data={"source": "es", "target": "de"}, files=file
    ).json()
    assert (answer["pivot"], answer["fromMemory"]) == ("en", 1)
    written = client.get(answer["translatedFileUrl"]).text
    assert 'msgstr "Hund sieht Katze ."' in written
    assert 'msgstr "Hallo allerseits"' in written


def test_pivots_can_be_switched_off(client_of):
    client = client_of(pivot=False)
    status, answer = ask(client, "perro")
    assert (status, "de is not available" in answer["error"]) == (400, True)


def test_both_steps_count():
    first = Translation(
        "a %s", quality=40.0, links=TokenLinks([(0, 2), (3, 5)], [(0, 1), (2, 4)], [1, 0])
    )
    second = Translation(
        "%s x", quality=70.0, links=TokenLinks([(0, 1), (2, 4)], [(0, 2), (3, 4)], [1, 0])
    )
    both = combine_translations("un %s", first, second)
    assert (both.quality, both.text) == (40.0, "%s x")
    assert [*both.links.pairs()] == [((0, 2), 0), ((3, 4), 1)]
    aligned = replace(second, alignment=((0, 0),), source_tokens=("a",), word_alignment=((0, 0),))
    cleared = {"alignment": (), "source_tokens": (), "word_alignment": ()}
    assert combine_translations("un %s", first, aligned) == replace(both, **cleared)
    assert combine_translations("", first, replace(second, quality=None)).quality is None
    assert combine_translations("", first, replace(second, quality=0.0)).quality == 0
    assert not combine_translations("", replace(first, is_complete=False), second).is_complete
    for mine, others, wanted in (
        (("%s",), (), ("%s",)),
        (("%s", "%s"), ("%s", "{x}"), ("%s", "%s", "{x}")),
        ((), ("😀",), ("😀",)),
    ):
        both = combine_translations(
            "", replace(first, restored=mine), replace(second, restored=others)
        )
        assert both.restored == wanted
        assert "restored" in both.doubts
    for one, other in (
        (replace(first, untranslated=True), second),
        (first, replace(second, untranslated=True)),
    ):
        assert (
            combine_translations("un %s", one, other).text,
            combine_translations("", one, other).untranslated,
        ) == (
            "un %s",
            True,
        )
