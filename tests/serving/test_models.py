"""A served model in this process: what its queue and its texts have to be."""

import asyncio
from itertools import permutations
from types import SimpleNamespace

import pytest
from servers import plan_of

from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.language_tags import closest_tag
from vanilla_transformer.serving import detection, models
from vanilla_transformer.serving.detection import Detected
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.models import Models
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.served_model import ServedModel
from vanilla_transformer.serving.settings import Settings, parse_model
from vanilla_transformer.serving.translators import Translators

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."


@pytest.fixture
def make_model(trained):
    made = []

    def make():
        settings = Settings([parse_model(f"en-de={trained}")])
        metrics = Metrics()

        def load(path):
            return Translator.from_pretrained(path, "transformers", "cpu")

        translators = Translators(load, 1, metrics)
        made.append(ServedModel(settings.models[0], translators, settings, metrics))
        return made[-1]

    yield make
    for model in made:
        model.close()


async def texts_of(model, texts, **search):
    answer = await model.compute(plan_of(texts), TranslateOptions(**search), [])
    return [row[0].text for row in answer.rows]


def test_short_and_long_requests_and_every_search_get_their_own_outputs(make_model):
    model = make_model()
    long = "\n".join([LINE] * 20)

    async def ask_all():
        asked = [
            texts_of(model, [text], num_beams=beams, max_new_tokens=tokens)
            for text in (LINE, long, f"\n{LINE}\n")
            for beams in (1, 2)
            for tokens in range(1, 6)
        ]
        return await asyncio.gather(*asked)

    found = asyncio.run(ask_all())
    expected = [" ".join(OUTPUT.split()[:tokens]) for tokens in range(1, 6)]
    assert found[:10] == [[text] for text in expected * 2]
    assert found[10:20] == [["\n".join([text] * 20)] for text in expected * 2]
    assert found[20:] == [[f"\n{text}\n"] for text in expected * 2]


def test_a_server_starts_without_a_warning(trained, heard):
    models.load_models(Settings([parse_model(f"en-de={trained}")]), Metrics()).close()
    assert [record.getMessage() for record in heard.records] == []


def models_of(*directions, **options):
    sources = [parse_model(f"{direction}=runs/{direction}") for direction in directions]
    served = [
        SimpleNamespace(entry=x, directions={(x.source, x.target): (None, None)}) for x in sources
    ]
    return Models(served, **options)


@pytest.mark.parametrize(
    ("directions", "pivots"),
    [
        ([*permutations(("en", "de", "fr", "es", "it", "ja"), 2)], {}),
        ([("en", "de"), ("de", "fr"), ("fr", "ja")], {("en", "fr"): "de", ("de", "ja"): "fr"}),
        ([("pt", "en"), ("en", "pt-BR"), ("any", "pt")], {("any", "en"): "pt"}),
    ],
)
def test_two_models_give_what_no_single_one_has(directions, pivots, monkeypatch):
    compared = []

    def closest(code, served):
        compared.append(code)
        return closest_tag(code, served)

    monkeypatch.setattr(models, "closest_tag", closest)
    made = models_of(*map(":".join, directions), pivot=True)
    assert {c: way.pivot for c, way in made.directions.items() if way.pivot} == pivots
    assert len(compared) <= len(directions)  # no direction that exists is looked at again


def detected(served, text, target):
    ((direction, language),) = served.detected_directions([text], target)
    return direction and direction.codes, language


SERVED = {
    "pt-BR": ("pt-br", "pt_BR", "pb"),
    "zh-Hans": ("zh", "zh-hans", "zh-CN"),
    "zh-Hant": ("zt", "zh-TW"),
    "en": ("EN", "en-US"),
    "nb": ("no",),
}


@pytest.mark.parametrize("code", SERVED)
def test_the_closest_language_answers(code):
    to_each = models_of(*(f"de:{target}" for target in SERVED))
    from_each = models_of(*(f"{source}:de" for source in SERVED))
    for asked in (code, *SERVED[code]):
        assert to_each.direction("de", asked).codes == ("de", code)
        assert from_each.direction(asked, "de").codes == (code, "de")


@pytest.mark.parametrize(
    ("served", "source", "target", "codes"),
    [
        ("en:de en:ja", None, "de", ("en", "de")),
        ("en:de en:ja", "en-US", "jpn", ("en", "ja")),
        ("en:de en:ja", None, None, ("en", "any")),  # a tag in the text names it
        ("en:de de:en", None, "deu", ("en", "de")),
        ("en:pt-BR pt-BR:en", "pb", None, ("pt-BR", "en")),
        ("de:en fr:en", None, None, ("any", "en")),
        ("en:de", None, None, ("en", "de")),
        ("en:de", None, "fr", ("en", "fr")),
        ("any:roa", None, "roa", ("any", "roa")),
    ],
)
def test_a_language_that_is_not_given_is_the_only_one(served, source, target, codes):
    pairs = [tuple(pair.split(":")) for pair in served.split()]
    languages = {pair: (pair[0].upper(), pair[1].upper()) for pair in pairs}
    model = SimpleNamespace(entry=parse_model("any:x=runs/x"), directions=languages)
    direction = Models([model]).direction_of_model("any-x", source, target)
    assert direction.codes == codes
    assert direction.languages == languages.get(codes, (source, target))


@pytest.mark.parametrize(("source", "target"), [("en", "zz"), ("auto", "zz"), ("zz", "de")])
def test_an_unknown_language_is_not_supported_in_the_words_that_clients_compare(source, target):
    served = models_of("en:de")
    find = served.detected_directions if source == "auto" else served.direction
    with pytest.raises(RequestError) as refused:
        find(source, target)
    assert refused.value.detail == "zz is not supported"


def test_the_source_is_detected_among_those_that_lead_to_the_target():
    served = models_of("en:de", "nb:de", "fr:en", "kea:fr", "any:pt", "xy:pt")
    english = "This is a sentence about dogs."
    assert detected(served, english, "de")[0] == ("en", "de")
    assert detected(served, "Dette er en test av systemet.", "deu_Latn")[0] == ("nb", "de")
    codes, language = detected(served, english, "fr")  # the detector does not know Kabuverdianu
    assert (codes, language) == (("kea", "fr"), ("kea", 0))
    for target in ("pt", "es"):
        with pytest.raises(RequestError):
            detected(served, english, target)


@pytest.mark.parametrize(
    ("text", "target", "codes"),
    [
        ("Der Hund läuft durch den Schnee.", "de", ("de", "de")),
        ("This is a sentence about dogs.", "en-US", ("en", "en")),
        ("犬が雪の中を走っています。", "de", None),
        ("Собака бежит по снегу.", "fr", None),
        ("Файл", "de", None),
        ("Der Hund läuft durch den Schnee.", "fr", None),
        ("OK", "de", ("en", "de")),  # nobody can tell its language
        ("Open file", "de", ("en", "de")),
    ],
)
def test_texts_in_the_target_language_need_no_model_and_others_are_refused(text, target, codes):
    served = models_of("en:de", "en:fr", "de:en")
    if codes is None:
        with pytest.raises(RequestError, match="another language than en"):
            detected(served, text, target)
        return
    found, language = detected(served, text, target)
    assert (found, language.code) == (None if codes[0] == codes[1] else codes, codes[0])


GERMAN = "Der Hund läuft durch den tiefen Schnee und freut sich."
ENGLISH = "The dog is running through the deep snow, and it is glad."
SPANISH = "El perro corre por la nieve profunda y está muy contento."
JAPANESE = "犬は深い雪の中を走り回って、とても嬉しそうにしています。" * 2


@pytest.mark.parametrize(
    ("texts", "sources"),
    [
        ([ENGLISH, SPANISH, ENGLISH], ["en", "es", "en"]),
        ([SPANISH, "OK", SPANISH, ENGLISH], ["es", "es", "es", "en"]),  # a short one as all
        ([ENGLISH, ENGLISH, GERMAN, SPANISH], ["en", "en", "de", "es"]),
        ([ENGLISH, ENGLISH, ENGLISH, JAPANESE], ["en", "en", "en", "ja"]),
        ([SPANISH], ["es"]),
    ],
)
def test_each_text_of_a_list_has_its_own_language(texts, sources):
    found = models_of("en:de", "es:de").detected_directions(texts, "deu")
    assert [language.code for _, language in found] == sources
    unchanged = [direction is None for direction, _ in found]
    assert unchanged == [source not in ("en", "es") for source in sources]


@pytest.mark.parametrize(
    "texts", [[JAPANESE, SPANISH, JAPANESE], [GERMAN, JAPANESE], [SPANISH, "Файл"]]
)
def test_a_list_in_other_languages_is_refused(texts):
    with pytest.raises(RequestError, match="another language than en"):
        models_of("en:fr").detected_directions(texts, "fr")


def test_texts_that_are_foreign_alone_are_refused_whatever_they_are_together(monkeypatch):
    def detected(text, sources, target):
        return Detected("en", 99) if "\n" in text else Detected("es", 99)

    monkeypatch.setattr(detection, "detect_source", detected)
    with pytest.raises(RequestError, match="another language than en"):
        models_of("en:de").detected_directions([SPANISH, JAPANESE], "de")
