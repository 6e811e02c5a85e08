"""One job: the same text with the same options has the same output at every door."""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from programs import REPOSITORY
from transformers import pipeline

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import main
from vanilla_transformer.inference import translator
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.page.models import PageModels, PageRequest
from vanilla_transformer.serving.models import load_models
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.request_log import RequestLog
from vanilla_transformer.serving.server import make_app
from vanilla_transformer.serving.settings import Settings, parse_model
from vanilla_transformer.text.memory import Memory, Pair

MODEL = str(REPOSITORY / "model_cards" / "program-texts")
FILE = "Choose the file that you want to open"
IDENTICAL = {  # translations by a person
    "See https://a.org/en for more": "Siehe https://a.org/de",
    "Saved on %m/%d/%Y": "Am %d.%m.%Y gesichert",
    "Cut &amp; paste": "Ausschneiden und einfügen",
    "Done 🎉": "Fertig",
    'Read <a href="/en">this</a>': 'Lies <a href="/de">das</a>',
    "Read <b>that</b>": "Lies das",
    "Only words": "Nur <i>Wörter</i>",
}
SEARCH = ("num_beams", "max_new_tokens")


@dataclass(frozen=True)
class Request:
    """Texts and options, by their names in Python; `memory` has pairs."""

    texts: list
    language: str = "de"
    options: dict = field(default_factory=dict)
    memory: list = field(default_factory=list)
    is_plain: bool = False  # `generate()` alone is enough


REQUESTS = {
    "plain": Request([FILE, "The window cannot be closed."], is_plain=True),
    "another language": Request([FILE], "ja", is_plain=True),
    "greedy": Request([FILE], "fr", {"num_beams": 1}, is_plain=True),
    "several outputs": Request([FILE], options={"n_best": 3}),
    "several outputs of given beams": Request([FILE], options={"n_best": 2, "num_beams": 4}),
    "minimum risk": Request([FILE], options={"minimum_risk": "chrf", "candidates": 5}),
    "kept parts": Request(["Save %s to https://example.org/a?b=c now", "Open \U0001f60a %(n)d"]),
    "invisible spaces": Request(["Open the\u200bfile", "Open\u2060the file"]),
    "kinds of files": Request(["Text files (*.txt)|*.txt|All files (*.*)|*.*"]),
    "glossary": Request([FILE, "Open the file %s"], options={"glossary": {"file": "Dokument"}}),
    "memory, exact": Request([FILE], memory=[("Close", "Zu"), (FILE, "Was soll es sein?")]),
    "memory, whatever its parts are": Request(list(IDENTICAL), memory=list(IDENTICAL.items())),
    "memory, another case, number, sign": Request(
        ["PIN", "5 minutes", "Delete the file", "Open (%d)"],
        memory=[
            ("Pin", "Anheften"),
            ("2 minutes", "2 Minuten"),
            ("Delete the file?", "Soll die Datei weg?"),
            ("Open (%s)", "Auf (%s)"),
        ],
    ),
    "memory, similar": Request(
        ["Enter a fixed slope"],
        memory=[("Enter a fixed direction", "Eine feste Richtung eingeben")],
    ),
    "memory, unrelated": Request([FILE], memory=[("Nothing", "Nichts")]),
    "cut off": Request([FILE], options={"max_new_tokens": 3}),
    "cut off, several sentences": Request(
        ["Open the file. Close the window. Save it."], options={"max_new_tokens": 9}
    ),
    "too long": Request([" ".join([FILE] * 40)]),
    "empty": Request(["", FILE]),
    "white space": Request([" \u3000 ", f"  {FILE} "]),
    "several lines": Request([f"{FILE}\n\n- Close the window\n"]),
    "markup": Request(["Press <b>Open</b> to see the file"]),
    "quality": Request([FILE, "Close"], options={"return_scores": True}),
    "links": Request([FILE], options={"return_alignment": True}),
    "all at once": Request(
        ["Open the file %s", FILE],
        options={"n_best": 2, "glossary": {"file": "Dokument"}, "return_scores": True},
        memory=[("Open the folder %s", "Den Ordner %s öffnen")],
    ),
}


# Documents translate each sentence alone, keep the source of an output that is cut off, and have
# their own white space and tags: docs/translating.md.
OF_LINES = {
    "cut off",
    "cut off, several sentences",
    "too long",
    "white space",
    "several lines",
    "markup",
}


def fields_of(outputs):
    """All that doors tell of the outputs of one text."""
    best = outputs[0]
    return {
        "texts": [output.text for output in outputs],
        "quality": best.quality,
        "alignment": best.alignment and [list(link) for link in best.alignment],
    }


class Doors:
    """Each method returns what a door tells for each text; None: it lacks one of the options."""

    def __init__(self, translator, folder):
        self.translator, self.folder = translator, folder
        self.page_models = PageModels([MODEL])

    def python(self, request):
        memory = Memory(Pair(*pair) for pair in request.memory) if request.memory else None
        options = {"return_scores": True, "return_alignment": True, **request.options}
        if "minimum_risk" not in options:
            options.setdefault("n_best", 1)
        rows = self.translator.translate(
            request.texts, tgt_lang=request.language, memory=memory, **options
        )
        return [fields_of(row if isinstance(row, list) else [row]) for row in rows]

    def words(self, request):
        """The options in the shell."""
        options, words = {**request.options}, ["--target-language", request.language]
        for name in ("n_best", "num_beams", "max_new_tokens", "minimum_risk", "candidates"):
            if name in options:
                words += [f"--{name.replace('_', '-')}", str(options[name])]
        if terms := options.get("glossary"):
            file = self.folder / "glossary.tsv"
            file.write_text("".join(f"{source}\t{target}\n" for source, target in terms.items()))
            words += ["--glossary", str(file)]
        return words + self.memory_words(request)

    def memory_words(self, request):
        file = self.folder / f"memory-{abs(hash(str(request)))}.tsv"
        file.write_text("".join(f"{source}\t{target}\n" for source, target in request.memory))
        return ["--memory", str(file)] if request.memory else []

    def run(self, command, *words):
        output = self.folder / "output"
        assert main([command, MODEL, *map(str, words), "--output", str(output)]) == 0
        content = output.read_text("utf-8")
        output.unlink()
        return content

    def input_of(self, request):
        if any("\n" in text for text in request.texts):
            return None  # a line of a file has no line break
        file = self.folder / "input"
        file.write_text("".join(f"{text}\n" for text in request.texts))
        return file

    def lines(self, request):
        if (file := self.input_of(request)) is None or "return_alignment" in request.options:
            return None
        lines = self.run("translate", "--input", file, *self.words(request)).splitlines()
        size = len(lines) // len(request.texts)
        rows = [lines[first : first + size] for first in range(0, len(lines), size)]
        return [{"texts": row} for row in rows]

    def tsv(self, request):
        scores = request.options.get("return_scores", False)
        if (file := self.input_of(request)) is None or "return_alignment" in request.options:
            return None
        words = ["--quality"] if scores else []
        printed = self.run("translate", "--input", file, "--tsv", *words, *self.words(request))
        rows = [line.split("\t") for line in printed.splitlines()]
        size = len(rows) // len(request.texts)
        found = []
        for first in range(0, len(rows), size):
            own = {"texts": [row[1] for row in rows[first : first + size]]}
            found.append({**own, "rounded": rows[first][2]} if scores else own)
        return found

    def json(self, request):
        if (file := self.input_of(request)) is None:
            return None
        words = self.words(request)
        if "return_alignment" in request.options:
            words += ["--alignment", "tokens"]
        printed = self.run("translate", "--input", file, "--json", *words)
        found = []
        for line in printed.splitlines():
            outputs = json.loads(line)["outputs"]
            own = {"texts": [output["text"] for output in outputs]}
            own["quality"] = outputs[0].get("quality")
            if "alignment" in outputs[0]:
                own["alignment"] = outputs[0]["alignment"]
            found.append(own)
        return found

    def document(self, request):
        if {"n_best", "return_alignment"} & request.options.keys():
            return None
        file = self.folder / "a.json"
        file.write_text(json.dumps(dict(enumerate(request.texts))))
        return self.texts_of_json(self.run("translate", "--document", file, *self.words(request)))

    @staticmethod
    def texts_of_json(written):
        return [{"texts": [text]} for text in json.loads(written).values()]

    def served(self, request):
        """A client of a server with the memory of a request."""
        file = self.folder / "corrections.tsv"
        rows = [(*pair, "en", request.language) for pair in request.memory]
        file.write_text("".join("\t".join(row) + "\n" for row in rows))
        settings = Settings(
            [parse_model(MODEL)],
            memory=str(file) if request.memory else None,
        )
        metrics = Metrics()
        models = load_models(settings, metrics)
        return models, TestClient(RequestLog(make_app(settings, models, metrics), metrics))

    def translate_route(self, request):
        options = {**request.options}
        values = {"q": request.texts, "source": "en", "target": request.language}
        values["alternatives"] = options.pop("n_best", 1) - 1
        values["quality"] = options.pop("return_scores", False)
        if terms := options.pop("glossary", None):
            values["glossary"] = list(map(list, terms.items()))
        if options:
            return None
        models, client = self.served(request)
        answer = client.post("/translate", json=values).json()
        models.close()
        found = []
        for number, text in enumerate(answer["translatedText"]):
            others = answer["alternatives"][number] if "alternatives" in answer else []
            own = {"texts": [text, *others]}
            if "quality" in answer:
                own["quality"] = answer["quality"][number]
            found.append(own)
        return found

    def generate_route(self, request):
        options = {**request.options}
        values = {"texts": request.texts, "target_language": request.language}
        for name in ("n_best", *SEARCH):
            if name in options:
                values[name] = options.pop(name)
        values["scores"] = options.pop("return_scores", False)
        values["alignment"] = options.pop("return_alignment", False)
        if terms := options.pop("glossary", None):
            values["glossary"] = list(map(list, terms.items()))
        if options:
            return None
        models, client = self.served(request)
        answer = client.post("/v1/generate", json=values).json()
        models.close()
        found = []
        for outputs in answer["outputs"]:
            own = {"texts": [output["text"] for output in outputs]}
            if values["scores"]:
                own["quality"] = outputs[0]["quality"]
            if values["alignment"]:
                own["alignment"] = outputs[0]["alignment"]
            found.append(own)
        return found

    def file_route(self, request):
        if request.options.keys() - {"glossary"} or "glossary" in request.options:
            return None
        models, client = self.served(request)
        content = json.dumps(dict(enumerate(request.texts)))
        values = {"source": "en", "target": request.language}
        files = {"file": ("a.json", content.encode())}
        answer = client.post("/translate_file", data=values, files=files).json()
        written = client.get(answer["translatedFileUrl"]).content
        models.close()
        return self.texts_of_json(written)

    def page(self, request):
        if request.options.keys() - {"n_best", "num_beams"} or request.memory:
            return None
        if any(text != text.strip() or "\n" in text or not text for text in request.texts):
            return None
        page, options = self.page_models, {"num_beams": 5, **request.options}
        lines = tuple(f"<2{request.language}> {text.strip()}" for text in request.texts)
        name = Path(MODEL).name
        outputs = page.answer(PageRequest(name, "auto", lines, **options)).outputs
        return [{"texts": [output.text for output in row]} for row in outputs]

    def evaluate(self, request):
        if request.options.keys() - {*SEARCH} or not all(map(str.strip, request.texts)):
            return None
        if (file := self.input_of(request)) is None:
            return None
        references = self.folder / "references"
        references.write_text("".join("-\n" for _ in request.texts))
        words = ["--test-source", file, "--test-target", references, *self.words(request)]
        report = json.loads(self.run("evaluate", *words, "--metrics", "chrf"))
        return [{"texts": [text]} for text in report["predictions"]]

    def pipeline(self, request):
        if not request.is_plain:
            return None
        generate = pipeline("seq2seq-generation", model=MODEL)
        tagged = [f"<2{request.language}> {text}" for text in request.texts]
        rows = generate(tagged, **request.options)
        return [{"texts": [output["generated_text"] for output in row]} for row in rows]


DOORS = [
    *("lines", "tsv", "json", "document", "translate_route", "generate_route", "file_route"),
    *("page", "evaluate", "pipeline"),
]


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """All doors, with one loaded model of each engine."""
    load = cache(Translator.from_pretrained.__func__)

    def load_once(cls, path, engine="auto", device=None, *others, **options):
        (path,) = path if isinstance(path, list) else (path,)
        return load(cls, str(path), engine, "cpu")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "from_pretrained", classmethod(load_once))
        translator = Translator.from_pretrained(MODEL)
        yield Doors(translator, tmp_path_factory.mktemp("doors"))


@pytest.fixture(scope="module")
def expected(doors):
    return cache(lambda name: doors.python(REQUESTS[name]))


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("door", DOORS)
def test_a_request_has_the_same_outputs_at_every_door(doors, expected, door, name):
    if door in ("document", "file_route") and name in OF_LINES:
        pytest.skip("a document has sentences, tags and a source that may stay")
    found = getattr(doors, door)(REQUESTS[name])
    if found is None:
        pytest.skip("this door lacks one of the options")
    for own, known in zip(found, expected(name), strict=True):
        for key, value in (own or {}).items():
            if key == "rounded":
                assert value == ("" if known["quality"] is None else f"{known['quality']:.0f}")
            elif value is not None:
                assert value == known[key], key


def test_an_identical_text_has_its_translation(doors, expected):
    outputs = expected("memory, whatever its parts are")
    assert [output["texts"] for output in outputs] == [[target] for target in IDENTICAL.values()]


def test_a_list_has_a_language_for_each_text(doors):
    languages = ["de", "ja", "fr"]
    alone = [doors.python(Request([FILE], language))[0]["texts"][0] for language in languages]
    assert doors.translator.translate([FILE] * 3, tgt_lang=languages) == alone


def test_equal_options_have_one_call(doors):
    options = {"target_language": "de", "num_beams": 3}
    first, second = (doors.translator.call_of(TranslateOptions(**options)) for _ in range(2))
    assert first == second
    assert first.search.num_beams == 3
    assert doors.translator.call_of(TranslateOptions(num_beams=4)) != first


def test_the_file_of_a_glossary_is_read_once(doors, tmp_path, monkeypatch):
    monkeypatch.setattr(translator, "TEXTS_PER_CHUNK", 1)
    file = tmp_path / "glossary.tsv"
    file.write_text("file\tDokument\n")

    def texts():
        yield FILE
        file.unlink()
        yield FILE

    first, second = doors.translator.translate(texts(), tgt_lang="de", glossary=str(file))
    assert first == second
    assert "Dokument" in first


def test_none_keeps_a_setting(doors):
    options = {"forced_bos_token_id": None, "num_beams": None, "max_length": None}
    expected = doors.translator.translate(FILE, tgt_lang="de")
    assert doors.translator.translate(FILE, tgt_lang="de", **options) == expected
