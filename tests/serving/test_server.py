"""The server: clients of LibreTranslate, our own interface, and what is wrong with a request.

One real process answers all of these tests, so each also shows that the ones before it left it
working.
"""

import io
import json
import re
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

import pytest
from browsers import chromium  # noqa: F401 - a fixture
from libretranslatepy import LibreTranslateAPI
from made_up_language import NOUNS, VERBS
from playwright.sync_api import expect
from programs import command
from servers import FORM, JSON, read_answer, serving, wait_until
from sites import findings, needs_packages

from vanilla_transformer.inference.quality import Calibration, Outcome
from vanilla_transformer.inference.results import Features
from vanilla_transformer.inference.translator import Translator

LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."
NO_TERMS = {"terms": [], "missing_terms": []}
MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
PART = "--b\r\nContent-Disposition: form-data{}\r\n\r\n"
LIMITS = {
    "--max-characters": 3000,
    "--max-texts": 20,
    "--max-tokens": 600,
    "--max-body": 100_000,
    "--max-beams": 4,
    "--max-connections": 200,
    "--read-timeout": 1.5,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return {"VANILLA_TRANSFORMER_CACHE": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def terms(tmp_path_factory):
    path = tmp_path_factory.mktemp("terms") / "house.tsv"
    path.write_text("dog\tPferd\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def calibrated(trained, tmp_path_factory):
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("calibrated") / "toy")
    features = [Features(n / 200, *[0.0] * (len(Features._fields) - 1)) for n in range(200)]
    Calibration.fit([Outcome(row, row[0] * 100, None) for row in features]).save(folder)
    return folder


@pytest.fixture(scope="module")
def server(trained, calibrated, cache, terms):
    options = [word for pair in LIMITS.items() for word in pair]
    options += ["--glossary", f"house={terms}"]
    with serving(f"en-de={trained}", calibrated, *options, environment=cache) as running:
        yield running


@pytest.fixture(autouse=True)
def nobody_else_is_disturbed(request):
    """After each test, the server answers as before."""
    yield
    if "server" in request.fixturenames:
        found = request.getfixturevalue("server").translate(LINE)
        assert found[2] == {"translatedText": OUTPUT}


def test_a_client_of_libretranslate_works_as_it_is(server):
    client = LibreTranslateAPI(f"http://127.0.0.1:{server.port}", api_key="not needed")
    assert client.translate(LINE, "en", "de") == OUTPUT
    assert client.translate(f"{LINE}\n\n{LINE}", "en", "de") == f"{OUTPUT}\n\n{OUTPUT}"
    languages = {one["code"]: one for one in client.languages()}
    assert languages["en"] == {"code": "en", "name": "English", "targets": ["de"]}
    assert languages["de"]["targets"] == []
    assert languages["any"]["targets"] == ["toy"]
    assert languages["any"]["name"] == "Any"
    (found,) = client.detect("Das ist ein Satz über Hunde.")
    assert (found["language"], found["confidence"] > 50) == ("de", True)
    assert server.form("/detect", q="This is a sentence.")[2][0]["language"] == "en"
    with pytest.raises(HTTPError, match="400"):
        client.detect("")


def test_json_and_forms_are_taken_as_libretranslate_takes_them(server):
    fields = {"source": "en", "target": "de", "format": "text", "alternatives": 2, "secret": "x"}
    status, _, found = server.translate([LINE, "", "a bird finds a boat ."], **fields)
    assert (status, found["translatedText"]) == (200, [OUTPUT, "", "Vogel findet Boot ."])
    assert [len(row) for row in found["alternatives"]] == [2, 0, 2]
    assert OUTPUT not in found["alternatives"][0]
    _, _, one = server.translate(LINE, **fields)
    assert one == {"translatedText": OUTPUT, "alternatives": found["alternatives"][0]}
    assert server.form("/translate", q=LINE, **{**fields, "alternatives": "2"})[2] == one
    lenient = {**fields, "alternatives": "2", "format": "", "sauce": "en"}
    assert server.translate(LINE, **lenient)[2] == one
    spelled = {**fields, "source": "en-US", "target": "deu_Latn"}
    assert server.translate(LINE, **spelled)[2] == one
    # As `curl -d` sends what is no ASCII.
    raw = server.ask("POST", "/translate", "q=\u00e9&source=en&target=de".encode(), FORM)
    assert raw[2] == server.form("/translate", q="\u00e9", source="en", target="de")[2]
    query = "/translate?q=a+dog+sees+a+cat+.&source=auto&target=de"
    found = server.ask("POST", query)[2]
    assert (found["translatedText"], found["detectedLanguage"]["language"]) == (OUTPUT, "en")
    assert 20 < found["detectedLanguage"]["confidence"] < 80
    german = "Das ist ein Satz, der schon deutsch ist."
    for text in (german, [german, german]):
        asked = {"alternatives": 2, "marks": True, "quality": True}
        found = server.translate(text, source="auto", **asked)[2]
        assert found["translatedText"] == text
        assert found["marks"] == ([] if text == german else [[], []])
    assert server.translate(f"<p>{german}", source="auto", format="html")[2] == {
        "translatedText": f"<p>{german}",
        "detectedLanguage": {"language": "de", "confidence": 100},
    }
    status, _, found = server.translate("犬が雪の中を走っています。", source="auto")
    assert (status, "another language" in found["error"]) == (400, True)
    page = "<p lang=de class='der die das und nicht auch'>This is a sentence.</p>"
    marked = server.translate(page, source="auto", format="html")[2]
    plain = server.translate("This is a sentence.", source="auto")[2]
    assert marked["detectedLanguage"] == plain["detectedLanguage"]
    values = {"q": f"{LINE}\n{LINE}", "source": "en", "target": "de", "alternatives": ""}
    parts = [PART.format(f'; name="{name}"') + f"{value}\r\n" for name, value in values.items()]
    found = server.ask("POST", "/translate", "".join([*parts, "--b--\r\n"]), MULTIPART)
    assert found[2] == {"translatedText": f"{OUTPUT}\n{OUTPUT}"}


def test_a_bare_model_has_its_directory_for_a_target(server):
    assert server.translate(LINE, source="any", target="toy")[2] == {"translatedText": OUTPUT}
    _, _, found = server.translate([LINE, LINE], source="auto", target="toy")
    assert found["translatedText"] == [OUTPUT, OUTPUT]
    assert found["detectedLanguage"] == [{"language": "any", "confidence": 0}] * 2


def test_a_page_translates_by_keyboard_on_a_phone(server, chromium):  # noqa: F811 - the fixture
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    complaints = []
    page.on("console", lambda one: complaints.append(one.text))
    page.on("pageerror", lambda one: complaints.append(str(one)))
    page.goto(f"http://127.0.0.1:{server.port}/")
    source, result = page.get_by_label("From"), page.get_by_label("Translation")
    page.locator("#from option").nth(2).wait_for(state="attached")
    names = page.locator("#from option").all_inner_texts()
    assert names == ["Detect language", "English", "Any"]
    assert page.locator("#to option").all_inner_texts() == ["German"]
    page.get_by_label("Text").fill(f"{LINE}\n{LINE}")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => document.querySelector('#result').textContent")
    assert result.inner_text() == f"{OUTPUT}\n{OUTPUT}"
    source.select_option("auto")
    page.locator("#status").get_by_text("Detected: English").wait_for()
    page.get_by_label("Glossary").select_option("house")
    page.get_by_label("Text").fill("a dog <b> \U0001f600 %s\n%d sees a cat .")
    page.get_by_label("Text").press("Control+Enter")
    page.locator("mark.term").get_by_text("Pferd").wait_for()
    assert page.locator("mark.kept").all_inner_texts() == ["<b>", "\U0001f600", "%s", "%d"]
    result.press("Control+a")
    assert page.evaluate("`${getSelection()}`") == result.inner_text()
    assert (complaints, page.evaluate("document.documentElement.scrollWidth")) == ([], 390)
    told = page.locator("#models").inner_text()
    assert "toy\nTask: translation. Data: " in told
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the translation").click()
    page.wait_for_function("() => navigator.clipboard.readText()")
    assert page.evaluate("navigator.clipboard.readText()") == result.inner_text()
    file = {"name": "a.txt", "mimeType": "text/plain", "buffer": LINE.encode()}
    page.get_by_label("A file").set_input_files(file)
    with page.expect_download() as started:
        page.get_by_role("link", name="a.de.txt").click()
    assert page.locator("#status").inner_text() == "a.de.txt: 1 text"
    page.get_by_label("A file").set_input_files({**file, "buffer": b"12"})
    page.locator("#status").get_by_text("a.de.txt: no text to translate").wait_for()
    by_glossary = server.translate(LINE, glossary="house")[2]["translatedText"]
    assert started.value.path().read_text() == by_glossary != OUTPUT
    page.get_by_label("Text").fill("a " * 2000)
    assert "4000 of 3000" in page.locator("#count").inner_text()
    page.locator("#status.problem").get_by_text("exceeds text limit").wait_for()
    page.route("**/translate", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
    page.get_by_label("Text").fill("a dog")
    page.locator("#status.problem").get_by_text("The server answers with status 502.").wait_for()
    page.route("**/translate", lambda route: route.abort())
    page.get_by_label("Text").fill("a cat")
    page.locator("#status.problem").get_by_text("The server does not answer.").wait_for()
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_page_is_accessible(server, chromium, width, scheme):  # noqa: F811 - the fixture
    needs_packages()
    viewport = {"width": width, "height": 800}
    context = chromium.new_context(viewport=viewport, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.get_by_label("Glossary").select_option("house")
    assert findings(page) == []
    page.get_by_label("Text").fill("a dog <b> \U0001f600 %s\nqqq dog")
    page.locator("mark.term").first.wait_for()
    assert page.locator("#doubts li").count()
    assert findings(page) == []
    page.get_by_label("Text").fill("a " * 2000)
    page.locator("#status.problem").wait_for()
    assert findings(page) == []
    context.close()


@pytest.mark.parametrize("by_keyboard", [True, False])
def test_a_word_has_alternatives(server, chromium, by_keyboard):  # noqa: F811 - the fixture
    page = chromium.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.get_by_label("Text").fill(f"{LINE}\n\n{LINE}")
    page.locator("#result > span").nth(1).wait_for()
    result, choices = page.get_by_label("Translation"), page.locator("#choices button")
    others = server.translate(LINE, alternatives=3)[2]["alternatives"]
    ends = [other.removeprefix("Hund sieht ") for other in others if "Hund sieht " in other]
    assert ends
    if by_keyboard:
        result.focus()
        for _ in range(6):
            result.press("ArrowRight")
        assert page.evaluate("`${getSelection()}`") == "Katze"
        result.press("Enter")
        expect(choices).to_have_text(ends)
        page.keyboard.press("Escape")
        expect(result).to_be_focused()
        expect(choices.first).to_be_hidden()
        result.press("Enter")
        expect(choices.first).to_be_focused()
        page.keyboard.press("Enter")
    else:
        box = page.locator("#result > span").nth(1).bounding_box()
        page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2)
        expect(choices).to_have_text(ends)
        assert abs(choices.first.bounding_box()["y"] - box["y"] - box["height"]) < 20
        choices.first.click()
    expect(result).to_have_text(f"{OUTPUT}\n\nHund sieht {ends[0]}", use_inner_text=True)
    page.close()


PAGE = """<!DOCTYPE html><html><head><script>document.write("<p>a dog</p>" && 1 < 2)</script>
</head><body data-x="a &gt; b"><!-- a dog --><p id='one'>a dog sees a cat .</p>&nbsp;
<p>a bird <b>finds</b> a child .<br></p><p translate=no>a dog</p></body></html>"""


def test_html_keeps_all_but_its_texts(server):
    texts = ["a dog sees a cat .", "a bird finds a child ."]
    alone = server.translate(texts)[2]["translatedText"]
    page = server.translate([PAGE, "a dog &amp; a cat"], format="html")[2]["translatedText"][0]
    expected = re.sub("</?b>", "", PAGE)
    for text, output in zip(texts, alone, strict=True):
        expected = expected.replace(text, output)
    assert re.sub("</?b>", "", page) == expected
    assert re.search(r"<p>[^<]*<b>\S[^<]*</b>[^<]*<br>", page)


def send_file(server, name, content, **fields):
    """Sends a file as browsers do."""
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in {"source": "en", "target": "de", **fields}.items()
    ]
    parts.append(f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n')
    body = "".join(parts).encode() + content + b"\r\n--x--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    return server.ask("POST", "/translate_file", body, headers)


def test_files_are_translated(server):
    output = server.translate("a dog sees a cat .")[2]["translatedText"]
    page = b"<p>\n  <b>a dog sees a cat .</b></p>"
    status, _, answer = send_file(server, "a page.html", page)
    address = answer["translatedFileUrl"]
    assert (status, address.rpartition("/")[2]) == (200, "a%20page.de.html")
    assert [answer[name] for name in ("texts", "fromMemory", "doubtful")] == [1, 0, 0]
    catalogue = (
        'msgid "a dog sees a cat ."\nmsgstr "Ein Hund!"\n\nmsgid "a dog sees a boat ."\nmsgstr ""\n'
    )
    _, _, told = send_file(server, "a.po", catalogue.encode())
    assert [told[name] for name in ("texts", "fromMemory", "doubtful")] == [1, 1, 1]
    german = b"<p>Das ist ein Satz, der schon deutsch ist."
    unchanged = send_file(server, "a.html", german, source="auto")[2]["translatedFileUrl"]
    assert server.ask("GET", unchanged.partition(str(server.port))[2])[2] == german.decode()
    path = address.partition(str(server.port))[2]
    _, headers, content = server.ask("GET", path)
    assert content == page.decode().replace("a dog sees a cat .", output)
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''a%20page.de.html"
    assert server.ask("GET", path.replace("/download_file/", "/download_file/x"))[0] == 404
    settings = server.ask("GET", "/frontend/settings")[2]
    assert ".docx" in settings["supportedFilesFormat"]


def test_answers_tell_what_is_cut_off(trained, cache, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "model", ignore=lambda *_: ["checkpoint-*"])
    settings = json.loads((folder / "generation_config.json").read_text())
    settings = {**settings, "max_new_tokens": 4, "max_length": None}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    with serving(f"en-de={folder}", environment=cache) as running:
        _, _, answer = running.translate(["12", LINE])
        assert answer["cutOff"] == [False, True]
        assert running.translate(LINE)[2]["cutOff"] is True
        rows = running.post("/v1/generate", {"texts": ["12", LINE]})[2]["outputs"]
        assert [row[0]["is_complete"] for row in rows] == [True, False]
        assert "cutOff" not in running.translate("12")[2]
        pages = ["<p>12</p>", f"<p>12</p><p>{LINE}</p>"]
        assert running.translate(pages, format="html")[2]["cutOff"] == [False, True]
        content = f"<p>1</p>\n<p>{LINE}</p>".encode()
        _, _, answer = send_file(running, "a.html", content)
        assert answer["untranslated"] == ["line 2"]
        path = answer["translatedFileUrl"].partition(str(running.port))[2]
        assert running.ask("GET", path)[2] == content.decode()


def packed(name, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def bomb():
    return packed("word/document.xml", b" " * 20_000_000)


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.exe", b"x", {}),
        ("a.html", b"\xff", {}),
        ("a.docx", b"PK", {}),
        ("a.docx", bomb(), {}),
        ("a.txt", b"a " * 2000, {}),
        ("a.txt", b"a", {"target": "fr"}),
        ("a.txt", b"a", {"target": ""}),
    ],
    ids=["kind", "encoding", "damaged", "bomb", "long", "language", "no language"],
)
def test_wrong_files_are_refused(server, name, content, fields):
    assert send_file(server, name, content, **fields)[0] == 400


UNKNOWN = b"<?xml version='1.0' encoding='klingon'?><{}/>"


@pytest.mark.parametrize(
    ("suffix", "content", "place"),
    [
        ("arb", b'{"a":\n 1', "line 2"),
        ("docx", packed("word/other.xml", "<a/>"), "word/document*.xml"),
        ("epub", packed("a.xhtml", "<p>\xff".encode("latin-1")), "a.xhtml"),
        ("epub", packed("a.opf", "<a/>"), "htm"),
        ("htm", b"<html>\n<meta charset=klingon>", "line 2"),
        ("html", b"a\n\xff", "line 2"),
        ("json", b'{"a":\n "\\ud800"}', "line 2"),
        ("markdown", b"a\n\xff", "line 2"),
        ("md", b"\0", "zeros"),
        ("odp", packed("meta.xml", "<a/>"), "content.xml"),
        ("odt", packed("content.xml", "<a>"), "content.xml"),
        ("po", b'msgid "a"\nmsgstr "', "line 2"),
        ("pot", b'msgid ""\nmsgstr "Content-Type: text/plain; charset=klingon\\n"', "line 2"),
        ("pptx", packed("ppt/presentation.xml", "<a/>"), "ppt/slides"),
        ("pptx", packed("ppt/slides/slide1.xml", UNKNOWN), "slide1.xml: line 1"),
        ("resx", b"<root>", "line 1"),
        ("srt", b"a\n\xff", "line 2"),
        ("ts", b"const a = 1;", "line 1"),
        ("vtt", b"WEBVTT\n\xff", "line 2"),
        ("xhtml", UNKNOWN, "line 1"),
        ("xlf", UNKNOWN, "line 1"),
        ("xliff", b"<a>\n</b>", "line 2"),
        ("xlsx", packed("xl/worksheets/a.xml", "<a/>")[:-9], "zip"),
        ("xml", b"<a/>", "<resources>"),
    ],
)
def test_a_broken_document_is_refused_with_its_place(server, suffix, content, place):
    status, _, answer = send_file(server, f"a.{suffix}", content)
    assert status == 400
    assert f"a.{suffix}" in answer["error"]
    assert place in answer["error"]


def test_a_model_of_several_targets_takes_one_for_each_request(cache):
    path = Path(__file__).parents[2] / "model_cards/program-texts"
    translator = Translator.from_pretrained(path, "transformers")
    with serving(str(path), environment=cache) as running:
        for target in ("de", "fr"):
            _, _, answer = running.post(
                "/v1/generate", {"texts": "Save the file", "target_language": target}
            )
            expected = translator.translate("Save the file", tgt_lang=target)
            assert answer["outputs"][0]["text"] == expected
            answer = running.translate("Save the file", target=target)[2]
            assert answer == {"translatedText": expected}
        _, _, languages = running.ask("GET", "/languages")
        assert languages[0]["targets"] == ["de", "fr", "es", "ja", "zh"]
        unknown = {"texts": "Save", "target_language": "xh"}
        assert running.post("/v1/generate", unknown)[0] == 400


def test_what_is_not_offered_says_so(server):
    _, _, settings = server.ask("GET", "/frontend/settings")
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert settings["charLimit"] == 3000
    assert settings["suggestions"] is False


def test_the_limit_of_a_request_is_none_of_the_server_itself(trained, cache):
    options = ["--num-beams", 4, "--max-beams", 2]
    with serving(f"en-de={trained}", *options, environment=cache) as running:
        assert running.translate(LINE)[0] == 200
        assert running.post("/v1/generate", {"texts": LINE})[0] == 200
        assert running.post("/v1/generate", {"texts": LINE, "num_beams": 3})[0] == 400


def test_outputs_with_scores_confidences_and_alignments_are_those_of_the_translator(
    server, trained
):
    translator = Translator.from_pretrained(str(trained), "transformers", "cpu")
    expected = translator.translate(
        LINE, n_best=2, return_scores=True, return_tokens=True, return_alignment=True
    )
    fields = {"n_best": 2, "scores": True, "alignment": True, "model": "en-de"}
    status, _, found = server.post("/v1/generate", {"texts": LINE, **fields})
    assert (status, found["model"]) == (200, "en-de")
    for ours, theirs in zip(expected, found["outputs"], strict=True):
        assert (theirs["text"], theirs["score"]) == (ours.text, pytest.approx(ours.score, abs=1e-4))
        assert [one["token"] for one in theirs["tokens"]] == list(ours.tokens)
        values = [one["log_probability"] for one in theirs["tokens"]]
        assert values == pytest.approx(ours.token_scores, abs=1e-4)
        assert all(0 < one["confidence"] <= 1 for one in theirs["tokens"])
        assert theirs["alignment"] == [list(pair) for pair in ours.alignment]
        assert theirs["source_tokens"] == [*LINE.split(), "</s>"]
    _, _, several = server.post("/v1/generate", {"texts": [LINE, ""], "model": "toy"})
    assert several["outputs"] == [
        [
            {
                "text": OUTPUT,
                "is_complete": True,
                "repeated": False,
                "untranslated": False,
                "unknown_share": 0,
                "restored": [],
                **NO_TERMS,
            }
        ],
        [
            {
                "text": "",
                "is_complete": True,
                "repeated": False,
                "untranslated": False,
                "unknown_share": 0,
                "restored": [],
                **NO_TERMS,
            }
        ],
    ]
    _, _, unknown = server.post("/v1/generate", {"texts": "a \u2603\u2603 .", "model": "toy"})
    assert unknown["outputs"][0]["unknown_share"] == 0.5
    assert unknown["outputs"][0]["restored"] == ["\u2603\u2603"]
    options = {"do_sample": True, "temperature": 0.01, "max_new_tokens": 2}
    _, _, sampled = server.post("/v1/generate", {"texts": LINE, "model": "toy", **options})
    assert sampled["outputs"][0]["text"] == "Hund sieht"


def test_a_glossary_is_named_or_sent_and_read_again_when_it_changes(server, terms):
    def words_of(**fields):
        return set(server.translate("a dog sees a man .", **fields)[2]["translatedText"].split())

    assert "Pferd" in words_of(glossary="house")
    assert "Boot" in words_of(glossary=[["dogs", "Boot"]])
    fields = {"texts": "a dog sees a man .", "model": "en-de", "glossary": "house"}
    terms.write_text("man\tKatze\ndog\tVogel\n", encoding="utf-8")
    _, _, found = server.post("/v1/generate", fields)
    assert found["outputs"][0]["terms"] == [["dog", "Vogel"], ["man", "Katze"]]
    assert found["outputs"][0]["missing_terms"] == []
    assert {"Vogel", "Katze"} <= set(found["outputs"][0]["text"].split())
    terms.write_text("man\n", encoding="utf-8")
    for _ in range(2):
        assert "Vogel" in words_of(glossary="house")
    (told,) = [line for line in server.logs() if line["event"] == "glossary not read"]
    assert (told["level"], f"{terms}, line 1" in told["problem"]) == ("warning", True)
    for wrong in ("office", [["dog"]], [["dog", ""]], [["dog", "a"], ["Dog", "b"]]):
        assert server.translate(LINE, glossary=wrong)[0] == 400


def test_kept_parts_and_terms_are_marked_where_asked(server):
    def marked(**fields):
        _, _, found = server.translate(
            ["\U0001f600 a dog sees %s .\n\na cat", "a man ."], marks=True, **fields
        )
        return [
            [(text[mark["begin"] : mark["end"]], mark["kind"]) for mark in marks]
            for text, marks in zip(found["translatedText"], found["marks"], strict=True)
        ]

    kept = {("\U0001f600", "kept"), ("%s", "kept")}
    terms = {("Boot", "term"), ("Vogel", "term")}
    found = marked(glossary=[["dog", "Boot"], ["cat", "Vogel"]])
    assert (set(found[0]), found[1]) == (kept | terms, [])
    assert (set(marked()[0]), marked(alternatives=1)[1]) == (kept, [])
    assert "marks" not in server.translate("<p>%s</p>", format="html", marks=True)[2]


def test_the_quality_is_told_where_asked_and_known(server):
    lines, to_toy = [LINE, "", "a ☃☃☃ ."], {"source": "any", "target": "toy"}
    found = server.translate(lines, quality=True, **to_toy)[2]["quality"]
    assert (0 <= found[0] <= 100, found[1], 0 <= found[2] <= 100) == (True, None, True)
    assert server.translate(lines, quality=True)[2]["quality"] == [None] * 3
    assert server.translate(LINE, quality=True, **to_toy)[2]["quality"] == found[0]
    assert "quality" not in server.translate("<p>a</p>", format="html", quality=True, **to_toy)[2]
    fields = {"model": "toy", "texts": LINE, "scores": True}
    assert server.post("/v1/generate", fields)[2]["outputs"][0]["quality"] == found[0]


def test_many_clients_at_once_get_their_own_answers(server, trained):
    sources = [
        f"a {noun} {verb} a {other} ." for noun in NOUNS for verb in VERBS for other in NOUNS
    ]
    expected = Translator.from_pretrained(str(trained), "transformers", "cpu").translate(sources)
    batches = server.metric("batch_segments_count")
    with ThreadPoolExecutor(32) as clients:
        found = list(clients.map(lambda source: server.translate(source)[2], sources))
    assert [one["translatedText"] for one in found] == expected
    assert server.metric("batch_segments_count") - batches < len(sources)


WRONG = {
    "unknown source": ({"source": "xx"}, "^xx is not supported$"),
    "unknown target": ({"target": "xx"}, "^xx is not supported$"),
    "no such direction": ({"source": "de"}, "de is offered as a target only"),
    "no text": ({"q": None}, "missing q parameter"),
    "empty text": ({"q": ""}, "missing q parameter"),
    "no texts": ({"q": []}, "missing q parameter"),
    "no source": ({"source": None}, "missing source parameter"),
    "number for a text": ({"q": 3}, r"`q` is 3: Input should be a valid"),
    "number in a list": ({"q": [LINE, 3]}, r"`q\[1\]` is 3"),
    "unknown format": ({"format": "pdf"}, '`format` is "pdf"'),
    "huge number": ({"alternatives": 10**30}, "`alternatives` is 1000000"),
    "long text": ({"q": "a " * 2000}, r"request \(4000 characters\) exceeds text limit"),
    "many texts": ({"q": [""] * 10_000}, r"request \(10000 texts\) exceeds text limit"),
    "many tokens": ({"q": "a " * 1000}, r"request \(1001 tokens\) exceeds text limit"),
}


WRONG_SEARCHES = {
    "unknown model": ({"model": "no"}, 404, "There is no model 'no': use one of en-de, toy"),
    "no model": ({"model": None}, 400, "give `model`, one of en-de, toy"),
    "wide beam": ({"num_beams": 99999}, 400, "`num_beams` is 99999"),
    "more outputs than beams": ({"n_best": 3, "num_beams": 2}, 400, "the search keeps 2"),
    "temperature": ({"do_sample": True, "temperature": 1e300}, 400, "`temperature` is 1e.300"),
    "temperature of no sampling": ({"temperature": 0.5}, 400, "`temperature` has no effect"),
    "text for a number": ({"num_beams": "2"}, 400, '`num_beams` is "2"'),
}


@pytest.mark.parametrize("case", [*WRONG, *WRONG_SEARCHES])
def test_wrong_fields_are_named(server, case):
    if case in WRONG:
        path, given, status = "/translate", {"q": LINE, "source": "en", "target": "de"}, 400
        changes, message = WRONG[case]
    else:
        path, given = "/v1/generate", {"texts": LINE, "model": "toy"}
        changes, status, message = WRONG_SEARCHES[case]
    found = server.post(path, {**given, **changes})
    assert found[0] == status
    assert re.search(message, found[2]["error"])
    assert set(found[2]) == {"error"}


BODIES = {
    "no JSON": (JSON, "{", "The body is not JSON"),
    "no object": (JSON, "[1]", "not an object"),
    "NaN": (
        JSON,
        '{"q": "a", "source": "en", "target": "de", "alternatives": NaN}',
        "`alternatives` is NaN",
    ),
    "long number": (JSON, '{"alternatives": ' + "9" * 5000 + "}", "not JSON"),
    "lone surrogate": (
        JSON,
        '{"q": "a \\ud800 dog", "source": "en", "target": "de"}',
        "`q` is .*unicode string",
    ),
    "not UTF-8": (JSON, b'{"q": "\xff"}', "not JSON"),
    "wrong type": ({"Content-Type": "text/plain"}, "a", "missing q"),
    "no type": ({}, "a", "missing q"),
    "JSON sent as a form": (FORM, json.dumps({"q": LINE}), "missing source"),
    "JSON sent as text": ({"Content-Type": "text/plain"}, '\n{"q": "a"}', "missing source"),
    "braces in a form": (FORM, "{q=a", "not JSON"),
    "form not UTF-8": (FORM, "q=%ff&source=en&target=de", "not a form in UTF-8"),
    "field twice": (FORM, "q=a&q=b&source=en&target=de", "given twice"),
    "form with many fields": (FORM, "a=b&" * 2000, "not a form"),
    "multipart that ends early": (MULTIPART, PART.format(";name=q") + "a", "missing q"),
}
WRONG_PARTS = {  # what stands before the end of a multipart body
    "brackets": (PART.format("(" * 2000) + "a\r\n", '"name" must be provided'),
    "a long header": (PART.format(";name=q" + " " * 20_000) + "a\r\n", "Invalid multipart data"),
    "many parts": ((PART.format(";name=q") + "a\r\n") * 1500, "Too many fields"),
    "a file": (PART.format(';name="q";filename="a"') + "a\r\n", "`q` is .*UploadFile"),
}
for name, (parts, message) in WRONG_PARTS.items():
    body = f"{parts}--b--\r\n".encode("latin-1")
    BODIES[f"multipart with {name}"] = (MULTIPART, body, message)


@pytest.mark.parametrize("case", BODIES)
def test_wrong_bodies_are_named(server, case):
    headers, body, message = BODIES[case]
    found = server.ask("POST", "/translate", body, headers)
    assert found[0] == 400
    assert re.search(message, found[2]["error"])


@pytest.mark.parametrize(
    "text",
    [
        "a dog \u0000\u0001\u001b[31m sees \u007f\u0085",
        "\ufeffa dog\u200b \u202ea cat\u2028a",
        "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 a dog",
        "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
        "\n" * 2000,
        "a\r\n\r\nb\rc",
    ],
    ids=["control", "invisible", "emoji", "right to left", "empty lines", "line ends"],
)
def test_any_unicode_text_is_answered(server, text, trained):
    status, _, found = server.translate(text)
    expected = Translator.from_pretrained(str(trained), "transformers", "cpu").translate(text)
    assert (status, found) == (200, {"translatedText": expected})


def test_a_large_body_is_refused_before_it_is_read(server):
    line = json.dumps({"q": "a" * 300_000, "source": "en", "target": "de"})
    status, headers, found = server.ask("POST", "/translate", line, JSON)
    assert status == 413
    assert "more than 100000 bytes" in found["error"]
    assert headers["connection"] == "close"
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with server.send(head + b"Content-Length: 99999999999\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
    with server.send(head + b"Transfer-Encoding: chunked\r\n\r\n") as connection:
        for _ in range(3):
            connection.sendall(b"%x\r\n%b\r\n" % (50_000, b" " * 50_000))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_half_sent_requests_end_and_hold_up_nobody(server):
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    slow = [b"", b"POST /trans", head, head + b'Content-Length: 50\r\n\r\n{"q": "a']
    connections = [server.send(content) for content in slow for _ in range(20)]
    assert server.translate(LINE)[2] == {"translatedText": OUTPUT}
    for connection in connections:
        with connection:
            answer = HTTPResponse(connection)
            answer.begin()
            assert (answer.status, [*json.load(answer)]) == (408, ["error"])
    gone = server.send(head + b'Content-Length: 50\r\n\r\n{"q": "a')
    gone.close()


def receive_all(connection):
    with connection:
        return b"".join(iter(lambda: connection.recv(10_000), b""))


def test_what_is_not_http_and_unknown_paths_are_refused(server):
    answer = receive_all(server.send(b"\x16\x03\x01 hello\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request")
    for method, path, status in (
        ("PUT", "/translate", 405),
        ("INVENTED", "/translate", 405),
        ("GET", "/no", 404),
        ("GET", "/languages/", 404),  # a redirection would lead where the header Host says
    ):
        found = server.ask(method, path, headers={"Host": "elsewhere.example"})
        assert found[0] == status
        assert found[2]["error"]
        assert "location" not in found[1]


def test_too_many_connections_are_refused(server):
    waiting = [server.send(b"") for _ in range(LIMITS["--max-connections"])]
    answer = receive_all(server.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 503")
    for connection in waiting:
        connection.close()
    wait_until(lambda: server.ask("GET", "/health")[0] == 200)


def test_several_requests_share_a_connection(server):
    connection = server.connect()
    for body, status in ((LINE, 200), ("", 400), (LINE, 200)):
        values = json.dumps({"q": body, "source": "en", "target": "de"})
        connection.request("POST", "/translate", values, {**JSON, "X-Request-ID": "my-id.1"})
        found = read_answer(connection)
        assert found[0] == status
        assert found[1]["X-Request-ID"] == "my-id.1"
    connection.close()


def test_health_metrics_and_the_interface_are_shown(server):
    assert server.ask("GET", "/health")[2] == {"status": "ok"}
    assert server.ask("GET", "/ready")[2] == {"status": "ready", "models": ["en-de", "toy"]}
    status, _, text = server.ask("GET", "/metrics")
    assert status == 200
    assert 'vanilla_transformer_requests_total{method="GET",path="/health",status="200"}' in text
    assert "process_resident_memory_bytes" in text
    assert 'method="INVENTED"' not in text
    assert "://" not in server.ask("GET", "/")[2]  # it loads nothing from elsewhere
    _, _, description = server.ask("GET", "/openapi.json")
    assert set(description["paths"]) >= {"/translate", "/v1/generate", "/metrics", "/languages"}
    assert server.ask("GET", "/spec")[2] == description
    assert description["info"]["title"] == "LibreTranslate"  # clients look for it
    for path in ("/", "/docs", "/health", "/languages", "/spec"):
        by_get, by_head = server.ask("GET", path), server.ask("HEAD", path)
        assert by_head[0] == by_get[0]
        assert by_head[1]["content-length"] == by_get[1]["content-length"]
    _, _, models = server.ask("GET", "/v1/models")
    assert [(one["name"], one["engine"]) for one in models] == [
        ("en-de", "ctranslate2"),
        ("toy", "ctranslate2"),
    ]
    assert models[0]["directions"] == [{"source": "en", "target": "de"}]


def test_the_log_has_a_json_object_per_request_and_no_text(server):
    server.ask("POST", "/translate", json.dumps({"q": "zebra"}), {**JSON, "X-Request-ID": "seen"})
    server.translate(LINE)
    wait_until(lambda: any(line.get("id") == "seen" for line in server.logs()))
    seen = next(line for line in server.logs() if line.get("id") == "seen")
    assert (seen["method"], seen["path"], seen["status"]) == ("POST", "/translate", 400)
    facts = {"status": 200, "model": "en-de", "tokens": 7, "characters": len(LINE), "texts": 1}
    wait_until(lambda: any(facts.items() <= line.items() for line in server.logs()))
    written = server.process.stderr + server.process.stdout
    assert not any("cut off" in line["event"] for line in server.logs())  # of the first text
    assert "zebra" not in written
    assert "dog" not in written


def test_a_port_that_is_taken_is_named(server, trained, cache):
    done = command("serve", trained, "--port", server.port, environment=cache)
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
    assert done.stderr.count("\n") == 1
