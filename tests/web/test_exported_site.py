"""A model in a tab: the page of an export in a real browser, and the same answers as in Python."""

import json
import shutil
from itertools import product

import pytest
import regex
from huggingface_hub import SpaceCard
from playwright.sync_api import expect
from programs import REPOSITORY
from sites import PACKAGES, findings, needs_packages, served

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import run_subcommand

pytest_plugins = ["browsers"]
MODEL = str(REPOSITORY / "model_cards" / "program-texts")
TAGS = ("de", "fr", "es", "ja", "zh")
SOURCE, OUTPUT = "The file %s could not be saved.", "Die Datei %s konnte nicht gespeichert werden."
LOAD = "async () => { window.t = await (await import('/translator.js')).load('.'); }"
TRANSLATE = """async (pairs) => {
    const found = [];
    for (const [text, target] of pairs) found.push(await t.translate(text, { target }));
    return found;
}"""


ALTERNATIVES = """async ([text, target]) => {
    const { parts } = await t.translate(text, { target });
    const words = new Intl.Segmenter("en", { granularity: "word" }), found = [];
    for (const part of parts.filter((one) => one.text)) {
        for (const { index, segment, isWordLike } of words.segment(part.text)) {
            const isKept = part.marks.some(({ begin, end }) => begin <= index && index < end);
            if (!isWordLike || isKept) continue;
            const others = await t.alternatives(part, index, { target });
            found.push([part.text, index, segment, others]);
        }
    }
    return found;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The shipped model with all of its 16 bits: its outputs are those of Python."""
    needs_packages()
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    folder = tmp_path_factory.mktemp("sites") / "site"
    options = ["--to", "browser", "--quantization", "float16"]
    run_subcommand("export", [MODEL, str(folder), *options])
    with served(folder) as server:
        server.folder = folder
        yield server


@pytest.fixture
def visit(chromium, site):
    """Opens the page of the site; at the end, checks that nothing was loaded from elsewhere."""
    contexts, complaints, elsewhere = [], [], []

    def open_page(width=1280, **options):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda one: complaints.append(one.text))
        page.on("pageerror", lambda one: complaints.append(str(one)))
        page.on("request", lambda one: elsewhere.append(one.url))
        page.goto(site.address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert {*elsewhere} <= {url for url in elsewhere if url.startswith((site.address, "data:"))}


@pytest.fixture(scope="module")
def library(chromium, site):
    """A page of another kind on the same host, which uses the folder as a module."""
    page = chromium.new_page()
    page.goto(f"{site.address}site.json")
    page.evaluate(LOAD)
    yield page
    page.close()


def translate(page, text):
    """Types a text, and returns its translation when it is there."""
    page.get_by_label("Text").fill(text)
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        "() => !document.querySelector('.waiting') && document.querySelector('#result').innerText"
    )
    return page.locator("#result").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_person_types_and_reads(visit, width, scheme):
    page = visit(width, color_scheme=scheme, bypass_csp=True)
    expect(page.locator("#to option")).to_have_text(
        ["German", "French", "Spanish", "Japanese", "Chinese"], timeout=60_000
    )
    assert translate(page, f"{SOURCE}\n\n  {SOURCE}") == f"{OUTPUT}\n\n  {OUTPUT}"
    assert page.locator("mark.kept").all_inner_texts() == ["%s", "%s"]
    assert page.locator("#status").inner_text() == ""
    page.locator("#to").select_option("zh")
    expect(page.locator("#result")).to_contain_text("无法保存文件 %s")
    translate(page, "Wzzk qqxv 😊 ﷽ zzgh")
    assert "does not know some of the characters" in page.locator("#doubts").inner_text()
    assert page.locator(".doubt").get_attribute("title") in page.locator("#doubts").inner_text()
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.get_by_role("button", name="Clear").press("Enter")
    expect(page.locator("#result")).to_be_empty()
    expect(page.get_by_label("Text")).to_be_focused()


def test_a_later_visit_loads_nothing_again(visit, site):
    page = visit()
    translate(page, SOURCE)
    site.asked.clear()
    page.reload()
    assert translate(page, SOURCE) == OUTPUT
    assert not [path for path in site.asked if path.endswith((".onnx", ".wasm"))]
    assert "/site.json" in site.asked


def test_a_file_is_translated(visit):
    page = visit()
    expect(page.locator("#to option")).to_have_count(5, timeout=60_000)
    file = {"name": "notes.txt", "mimeType": "text/plain", "buffer": f"{SOURCE}\n".encode()}
    page.get_by_label("A file").set_input_files(file)
    with page.expect_download() as started:
        page.get_by_role("link", name="notes.de.txt").click()
    assert started.value.path().read_text() == f"{OUTPUT}\n"
    page.evaluate(
        """(text) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([text], "dropped.txt"));
        document.querySelector("#source").dispatchEvent(
            new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    }""",
        SOURCE,
    )
    expect(page.get_by_role("link", name="dropped.de.txt")).to_be_visible()


def test_a_new_text_stops_the_old_one(visit):
    page = visit()
    translate(page, SOURCE)
    lines = [f"The file number {number} could not be opened." for number in range(200)]
    page.get_by_label("Text").fill("\n".join(lines))
    expect(page.locator("#status")).to_contain_text("%")
    assert page.locator("#result").inner_text()  # the first lines are there
    page.get_by_label("Text").fill(SOURCE)
    expect(page.locator("#result")).to_have_text(OUTPUT, timeout=2_000)


@pytest.mark.parametrize("by_keyboard", [True, False])
def test_a_person_chooses_another_word(visit, by_keyboard):
    page = visit(360, bypass_csp=True)
    translate(page, f"{SOURCE}\n\n{SOURCE}")
    result, choices = page.get_by_label("Translation"), page.locator("#choices button")
    if by_keyboard:
        result.focus()
        for _ in range(11):  # the eleventh word is "konnte" of the second line; the sign is no word
            result.press("ArrowRight")
        assert page.evaluate("`${getSelection()}`") == "konnte"
        result.press("Enter")
        expect(choices.first).to_be_focused(timeout=60_000)
        page.keyboard.press("Escape")
        expect(choices.first).to_be_hidden()
        result.press("Enter")
    else:
        words = "document.querySelectorAll('#result > span')[1].lastChild"
        place = f"""() => {{
            const range = new Range();
            range.setStart({words}, 3);
            range.setEnd({words}, 4);
            return range.getBoundingClientRect().toJSON();
        }}"""
        box = page.evaluate(place)
        page.mouse.click(box["x"] + 1, box["y"] + 5)
    expect(choices.nth(2)).to_be_visible(timeout=60_000)
    assert choices.count() == 3
    shown = page.locator("#choices").bounding_box()
    assert shown["x"] >= 0
    assert shown["x"] + shown["width"] <= 360
    assert findings(page) == []
    chosen = choices.nth(1).inner_text()
    choices.nth(1).press("Enter")
    changed = f"Die Datei %s {chosen}"
    expect(result).to_have_text(f"{OUTPUT}\n\n{changed}", use_inner_text=True)
    assert page.locator("mark.kept").all_inner_texts() == ["%s", "%s"]


@pytest.mark.parametrize(
    ("text", "target", "kept", "fewest"),
    [
        (SOURCE, "de", ["%s"], 3),
        ("Could not open {name} 😊 on the server.", "fr", ["{name}", "😊"], 3),
        ("Open the file in مرحبا %1$s or\nclose the window!", "es", [], 2),
        (SOURCE, "zh", ["%s"], 2),
        ("Delete {count} files? See https://example.org/help", "de", ["{count}", "https"], 3),
    ],
)
def test_alternatives_begin_as_the_output_does(library, text, target, kept, fewest):
    found = library.evaluate(ALTERNATIVES, [text, target])
    assert max(len(others) for *_, others in found) >= fewest
    for output, units, word, others in found:
        index = len(output.encode("utf-16-le")[: 2 * units].decode("utf-16-le"))
        for other in others:
            assert not regex.match(rf"{word}\b", other["text"][index:])
            assert other["text"][:index] == output[:index]
            assert all(other["text"].count(part) == 1 for part in kept)
        assert len({other["text"] for other in others}) == len(others)


WHOLE = "ort-wasm-simd-threaded.wasm"


@pytest.mark.parametrize(
    ("path", "change", "told"),
    [
        ("onnx/encoder_model_fp16.onnx", lambda content: content[:-9], "is damaged"),
        ("onnx/decoder_model_merged_fp16.onnx", lambda content: content[::-1], "cannot be read"),
        ("tokenizer.json", lambda content: content[::-1], "cannot be read"),
        (f"runtime/{WHOLE}", lambda content: content[::-1], "cannot"),
    ],
)
def test_a_damaged_file_is_named(chromium, site, path, change, told):
    site.others[f"/{path}"] = change((site.folder / path).read_bytes())
    page = chromium.new_page()
    page.goto(site.address)
    try:
        expect(page.locator("#status.problem")).to_contain_text(told, timeout=60_000)
        assert page.locator("#progress").is_hidden()
    finally:
        site.others.clear()
        page.close()


def test_a_full_storage_is_told(visit):
    page = visit()
    expect(page.locator("#to option")).to_have_count(5, timeout=60_000)
    session = page.context.new_cdp_session(page)
    origin = page.evaluate("location.origin")
    page.evaluate(
        "async () => { for (const name of await caches.keys()) await caches.delete(name); }"
    )
    session.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": 1_000_000})
    page.reload()
    expect(page.locator("#notice")).to_contain_text("storage is full", timeout=60_000)
    assert translate(page, SOURCE) == OUTPUT


def test_a_browser_without_webassembly_is_told(chromium, site):
    page = chromium.new_page()
    page.add_init_script("delete globalThis.WebAssembly")
    page.goto(site.address)
    expect(page.locator("#status.problem")).to_contain_text("no WebAssembly")
    page.close()


def test_two_headers_bring_more_threads(chromium, site):
    page, workers = chromium.new_page(), []
    page.on("worker", lambda one: workers.append(one.url))
    site.headers = {
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
    }
    page.goto(site.address)
    assert translate(page, SOURCE) == OUTPUT
    assert len(workers) == min(4, page.evaluate("navigator.hardwareConcurrency"))
    site.headers = {}
    page.close()


WORDS = {
    "verb": ("open", "delete", "save", "copy", "rename"),
    "noun": ("file", "folder", "message", "server", "account"),
    "part": (
        "%s",
        "{name}",
        "%1$d",
        "--force",
        "https://example.org/a",
        "C:\\temp",
        "$HOME",
        "",
    ),
}
FORMS = (
    "Could not {verb} the {noun} {part}.",
    "Do you want to {verb} this {noun}? {part}",
    "{part} {noun}: press Enter to {verb} it",
    "Click here to {verb} {part} in the {noun}",
)
TEXTS = [
    form.format(**dict(zip(WORDS, words, strict=True)))
    for words in product(*WORDS.values())
    for form in FORMS
]


@pytest.fixture(scope="module")
def compared(library, pytestconfig):
    """Texts in five languages: in the browser, and in Python."""
    texts = TEXTS[:: 1 if pytestconfig.getoption("--slow") else 13]
    others = ["", " \n ", "😊", "مرحبا بالعالم", "a.\tb.\n" * 3, "%s %s", "50 % of it"]
    others += ["The end. " * 120, "Open\u200bthe file", "Save &amp; close", "1234", "line\r\nline"]
    others += ["Open  the\u00a0file", "Save  the file %s,\u2003please", "fi\u00adle  of\u202f%d"]
    pairs = [(text, TAGS[number % 5]) for number, text in enumerate([*texts, *others])]
    found = library.evaluate(TRANSLATE, pairs)
    translator = Translator.from_pretrained(MODEL, "transformers")
    languages = {"src_lang": "en", "tgt_lang": [tag for _, tag in pairs]}
    details = {"return_scores": True, "return_marks": True}
    expected = translator.translate(
        [text for text, _ in pairs], **languages, **details, num_beams=1
    )
    return pairs, found, expected


def test_the_outputs_are_those_of_python(compared):
    pairs, found, expected = compared
    differ = [
        (pair, one["text"], other.text)
        for pair, one, other in zip(pairs, found, expected, strict=True)
        if one["text"] != other.text
    ]
    assert len(differ) <= len(pairs) / 100, differ


def test_marks_doubts_and_quality_are_those_of_python(compared):
    alike = [
        (one["parts"][0], other)
        for _, one, other in zip(*compared, strict=True)
        if one["text"] == other.text and len(one["parts"]) == 1 and "text" in one["parts"][0]
    ]
    assert len(alike) > len(compared[0]) / 2
    for one, other in alike:
        assert one["text"][:9] == other.text[:9]
        places = [(mark["begin"], mark["end"]) for mark in one["marks"]]
        assert places == [mark[:2] for mark in other.marks], one
        if other.quality is not None and one["quality"] is not None:
            assert one["quality"] == pytest.approx(other.quality, abs=0.2), one
            assert one["doubts"] == other.doubts, one


def test_an_app_is_told_what_is_wrong(library):
    with pytest.raises(Exception, match="no target it: it knows de, fr, es, ja, zh"):
        library.evaluate("() => t.translate('a', { target: 'it' })")


def test_the_folder_is_small_and_has_licences(site):
    content = json.loads((site.folder / "site.json").read_text(encoding="utf-8"))
    assert {"LICENSE-onnxruntime.txt", "LICENSE-tokenizers.txt"} <= {
        path.name for path in (site.folder / "runtime").iterdir()
    }
    assert all(
        (site.folder / name).stat().st_size == size for name, size in content["files"].items()
    )
    total = sum(path.stat().st_size for path in site.folder.rglob("*") if path.is_file())
    assert total < 27_000_000


def test_the_folder_is_a_static_space_with_a_readme(site):
    card = SpaceCard.load(REPOSITORY / "scripts" / "space_static" / "README.md")
    assert (card.data.sdk, len(card.data.short_description) <= 60) == ("static", True)
    assert (site.folder / "index.html").exists()
    assert not (site.folder / "README.md").exists()


@pytest.mark.slow
def test_another_task_has_its_own_vocabularies(chromium, tmp_path):
    needs_packages()
    folder = str(REPOSITORY / "model_cards" / "pronounce")
    run_subcommand("export", [folder, str(tmp_path / "site"), "--to", "browser"])
    expected = Translator.from_pretrained(folder, "transformers").translate(
        ["transformer"], num_beams=1
    )
    with served(tmp_path / "site") as server:
        page = chromium.new_page()
        page.goto(server.address)
        assert [translate(page, "transformer")] == expected
        page.close()


def test_the_command_names_what_it_lacks(tmp_path, monkeypatch):
    needs_packages()
    monkeypatch.chdir(tmp_path)
    argv = [MODEL, "site", "--to", "browser"]
    with pytest.raises(FileNotFoundError, match="npm install onnxruntime-web@1"):
        run_subcommand("export", argv)
    for name in ("onnxruntime-web", "@huggingface/tokenizers"):
        (tmp_path / "node_modules" / name).mkdir(parents=True)
        file = tmp_path / "node_modules" / name / "package.json"
        file.write_text('{"version": "0.1.0"}')
    with pytest.raises(ValueError, match=r"onnxruntime-web 0\.1\.0, and 1\.\d+\.\d+ is needed"):
        run_subcommand("export", argv)
    shutil.copytree(MODEL, tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bare" / name).unlink()
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        run_subcommand("export", ["bare", *argv[1:], "--runtime", str(PACKAGES)])
    assert not (tmp_path / "site").exists()


def test_a_word_without_an_end_ends(library):
    (found,) = library.evaluate(TRANSLATE, [["de"]])
    assert found["text"]
    assert library.evaluate("async () => (await t.translate('de')).text") == found["text"]
    assert any(part.get("doubts") for part in found["parts"])


def test_the_tests_install_the_runtime_that_the_command_names():
    from vanilla_transformer.browser.runtime import INSTALL

    script = (REPOSITORY / "scripts" / "test.sh").read_text(encoding="utf-8")
    assert INSTALL.removeprefix("npm install ") in script
