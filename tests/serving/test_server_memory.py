"""`serve --memory`: corrections that count from the next request on, and none of which is lost."""

import re
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from browsers import chromium  # noqa: F401 - a fixture
from servers import serving

from vanilla_transformer.serving.memories import StoredMemory
from vanilla_transformer.text.memory import Pair

CORRECTIONS = {
    "see https://a.org/en": "siehe https://a.org/de",
    "on %m/%d/%Y": "am %d.%m.%Y",
    "cut &amp; paste": "Ausschneiden und einfügen",
    "done 🎉": "fertig",
    "see %s": "Sieh",
    "12": "zwölf",
}
LINE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."


def test_a_correction_answers_all_later_requests(trained, tmp_path):
    file = tmp_path / "memory.tsv"
    with serving(f"en-de={trained}", "--memory", file) as server:
        assert server.ask("GET", "/frontend/settings")[2]["suggestions"] is True
        assert server.translate(LINE)[2] == {"translatedText": OUTPUT, "fromMemory": None}
        values = {"q": LINE, "source": "en-US", "target": "DE"}
        first = server.post("/suggest", {**values, "s": "Ein Hund.\tKatze!\nIst da."})
        assert first[2] == {"success": True}
        server.form("/suggest", **values, s="Der Hund sieht sie.")
        texts = [LINE.capitalize(), "a bird finds a child .", LINE]
        answer = server.translate(texts)[2]
        outputs, found = answer["translatedText"], answer["fromMemory"]
        assert outputs[0] != "Der Hund sieht sie."
        assert outputs[1:] == ["Vogel findet Kind .", "Der Hund sieht sie."]
        assert [one and one["is_exact"] for one in found] == [False, None, True]
        assert found[2]["source"] == LINE
        html = server.translate(f"<p>{LINE}</p>", format="html")[2]["translatedText"]
        assert html == "<p>Der Hund sieht sie.</p>"
        with serving(f"en-de={trained}", "--memory", file) as other:
            assert other.translate(LINE)[2]["translatedText"] == "Der Hund sieht sie."
            other.form("/suggest", **values, s="Er sieht sie.")
        assert server.translate(LINE)[2]["translatedText"] == "Er sieht sie."
        for wrong in ({"s": " "}, {"source": "fr"}, {"q": ""}, {"q": "a dog\na cat"}):
            assert server.post("/suggest", {**values, "s": "x", **wrong})[0] == 400
        for text, correction in CORRECTIONS.items():
            assert server.post("/suggest", {**values, "q": text, "s": correction})[0] == 200
            assert server.translate(text)[2]["translatedText"] == correction
        server.form("/suggest", **{**values, "q": "a bird"}, s="a bird")
        assert server.translate("a bird")[2]["translatedText"] == "a bird"
        server.form("/suggest", **{**values, "q": "a <b>dog"}, s="<i>Ein</i> Hund")  # plain text
        assert server.translate("a <b>dog")[2]["translatedText"] == "<i>Ein</i> Hund"
    lines = file.read_text("utf-8").splitlines()
    assert lines[0] == f"{LINE}\tEin Hund. Katze! Ist da.\ten\tde"
    assert len(lines) == 5 + len(CORRECTIONS)


def test_a_server_without_a_memory_takes_no_corrections(trained):
    with serving(f"en-de={trained}") as server:
        values = {"q": LINE, "s": "Hund", "source": "en", "target": "de"}
        assert server.post("/suggest", values)[0] == 403
        assert server.translate(LINE)[2] == {"translatedText": OUTPUT}


def test_the_page_saves_corrections(trained, tmp_path, chromium):  # noqa: F811 - the fixture
    with serving(f"en-de={trained}", "--memory", tmp_path / "memory.tsv") as server:
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator("#from option").nth(1).wait_for(state="attached")
        page.get_by_label("Text").fill(LINE)
        page.get_by_text(OUTPUT).wait_for()
        save = page.get_by_role("button", name="Save the correction")
        for text in (f"{LINE}\n{LINE}", "12"):  # which no correction is stored for
            with page.expect_response("**/translate"):
                page.get_by_label("Text").fill(text)
            save.wait_for(state="hidden")
        page.get_by_label("Text").fill(LINE)
        save.wait_for()
        page.get_by_label("Translation").fill("Der Hund sieht sie.")
        save.click()
        page.get_by_text("Saved").wait_for()
        assert server.translate(LINE)[2]["translatedText"] == "Der Hund sieht sie."
        page.close()


def add_many(path, name):
    memory = StoredMemory(path)
    for number in range(500):
        memory.add("en", "de", Pair(f"{name} opens door {number} again", f"{name} {number}"))


def test_two_servers_lose_nothing(tmp_path):
    path = str(tmp_path / "memory.tsv")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(add_many, [path, path], ["he", "she"]))
    lines = (tmp_path / "memory.tsv").read_text("utf-8").splitlines()
    assert len(set(lines)) == 1000
    assert all(
        re.fullmatch(r"(s?he) opens door (\d+) again\t\1 \2\ten\tde", line) for line in lines
    )


def test_the_mark_that_editors_write_at_the_begin_is_no_part_of_a_text(tmp_path):
    file = tmp_path / "memory.tsv"
    file.write_text("one\teins\ten\tde\n", "utf-8-sig")
    memory = StoredMemory(str(file))
    assert memory.of("en", "de").exact("one").target == "eins"
    memory.add("en", "de", Pair("two", "zwei"))
    assert memory.of("en", "de").exact("two").target == "zwei"


def test_what_a_killed_server_left_behind_does_not_harm(tmp_path):
    file = tmp_path / "memory.tsv"
    memory = StoredMemory(str(file))
    memory.add("en", "de", Pair("one", "eins"))
    with file.open("a") as stream:
        stream.write("two\tzwei\ten")
    assert memory.of("en", "de").exact("two") is None
    memory.add("en", "de", Pair("three", "drei"))
    assert memory.of("en", "de").exact("three").target == "drei"
    assert StoredMemory(str(file)).of("en", "de").exact("one").target == "eins"
    assert memory.of("en", "fr").exact("one") is None
    file.write_text("one\teins\n")
    with pytest.raises(ValueError, match=r"memory\.tsv, line 1"):
        StoredMemory(str(file))


@pytest.mark.parametrize("is_read_again", [False, True])
def test_a_last_line_without_its_line_break_counts(tmp_path, is_read_again):
    file = tmp_path / "memory.tsv"
    file.write_text("one\teins\ten\tde\ntwo\tzwei\ten\tde")
    memory = StoredMemory(str(file))
    assert memory.of("en", "de").exact("two").target == "zwei"
    file.write_bytes(file.read_bytes() + b"three\tdrei\ten\tde")
    memory.add("en", "de", Pair("four", "vier"))
    if is_read_again:
        memory = StoredMemory(str(file))
    targets = [memory.of("en", "de").exact(text).target for text in ("two", "three", "four")]
    assert targets == ["zwei", "drei", "vier"]
    assert len(file.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("codes", "others"),
    [
        (("any", "summaries"), [("any", "pronounce"), ("en", "summaries")]),
        (("en", "de"), [("en", "summaries"), ("any", "de")]),
        (("roa", "en"), [("xx", "en"), ("any", "any")]),
    ],
)
def test_a_correction_answers_for_its_own_direction_alone(tmp_path, codes, others):
    memory = StoredMemory(str(tmp_path / "memory.tsv"))
    memory.add(*codes, Pair("Read", "Right"))
    assert memory.of(*codes).exact("Read").target == "Right"
    assert [memory.of(*other).exact("Read") for other in others] == [None, None]
    assert memory.of(*others[0]) is not memory.of(*others[0])  # none is kept


@pytest.mark.parametrize("blank", ["\n", "\ufeff\n\n", " \t \t\t\n"])
@pytest.mark.parametrize("is_running", [False, True])
def test_blank_lines_are_left_out(tmp_path, is_running, blank):
    file = tmp_path / "memory.tsv"
    memory = StoredMemory(str(file))
    file.write_text(f"{blank}one\teins\ten\tde\n\ntwo\tzwei\ten\tde\n")
    if not is_running:
        memory = StoredMemory(str(file))
    memory.add("en", "de", Pair("three", "drei"))
    for text, target in (("one", "eins"), ("two", "zwei"), ("three", "drei")):
        assert memory.of("en", "de").exact(text).target == target


@pytest.mark.parametrize("content", ["long\tx\ten\tde\n", "long\tx\ten\tde\none\teins\ten\tde", ""])
def test_a_correction_does_not_read_the_whole_file(tmp_path, content):
    file = tmp_path / "memory.tsv"
    file.write_text(content.replace("long", 5_000_000 * "x"))
    memory = StoredMemory(str(file))
    tracemalloc.start()
    memory.add("en", "de", Pair("two", "zwei"))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert memory.of("en", "de").exact("two").target == "zwei"


@pytest.mark.parametrize("wrong", ["three\tdrei\n", "three\n", "three\tdrei\tde\n"])
def test_a_damaged_line_is_logged_once_until_it_is_mended(tmp_path, caplog, wrong):
    file = tmp_path / "memory.tsv"
    file.write_text("one\teins\ten\tde\n")
    memory = StoredMemory(str(file))
    file.write_text(f"one\teins\ten\tde\ntwo\tzwei\ten\tde\n{wrong}")
    for _ in range(2):
        assert memory.of("en", "de").exact("one").target == "eins"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{file}, line 3" in record.fields["problem"]
    file.write_text("one\teins\ten\tde\ntwo\tzwei\ten\tde\nthree\tdrei\ten\tde\n")
    assert memory.of("en", "de").exact("three").target == "drei"
