"""`evaluate --calibrate`, and `translate --review`: which outputs to read first."""

import json
import shutil
from functools import partial

import pytest

from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.inference.quality import QUALITY

translate = partial(run_subcommand, "translate")
NOUNS, VERBS = ("dog", "cat", "bird", "man", "child"), ("sees", "finds")
GARBLED = "a man sees a ☃☃☃ ."
PO = f"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#: here
#, c-format
msgid "a dog sees a cat ."
msgstr ""

#: there
#, c-format
msgid "&{GARBLED}"
msgstr ""
"""
XLIFF_1 = f"""<xliff version="1.2"><file>
<trans-unit id="1"><source>a dog sees a cat .</source></trans-unit>
<trans-unit id="2"><source>{GARBLED}</source><target state="new"/></trans-unit>
</file></xliff>"""
XLIFF_2 = f"""<xliff version="2.0"><file><unit id="1">
<segment><source>a dog sees a cat .</source></segment>
<segment state="initial"><source>{GARBLED}</source></segment>
</unit></file></xliff>"""


@pytest.fixture(scope="module")
def calibrated(trained, tmp_path_factory):
    """A model, and the quality of its outputs, learnt from right pairs and from wrong ones."""
    folder = tmp_path_factory.mktemp("calibrated")
    model = shutil.copytree(trained, folder / "model")
    (model / QUALITY).unlink(missing_ok=True)
    german = {"dog": "Hund", "cat": "Katze", "bird": "Vogel", "man": "Mann", "child": "Kind"}
    verbs = {"sees": "sieht", "finds": "findet"}
    right = [
        (f"a {n} {v} a {o} .", f"{german[n]} {verbs[v]} {german[o]} .")
        for n in NOUNS
        for v in VERBS
        for o in NOUNS
        if n != o
    ]
    wrong = [(f"a {n} {v} a ☃☃☃ .", "etwas ganz anderes") for n in NOUNS for v in VERBS] * 4
    for number, name in enumerate(("source", "target")):
        lines = [pair[number] for pair in right * 2 + wrong]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = ("--test-source", folder / "source", "--test-target", folder / "target")
    run_subcommand("evaluate", [str(word) for word in (model, *pairs, "--calibrate")])
    return str(model)


def test_a_calibration_says_what_it_finds(calibrated, trained, tmp_path, capsys):
    few = tmp_path / "few"
    few.write_text("a dog sees a cat .\n", encoding="utf-8")
    model = shutil.copytree(trained, tmp_path / "model")
    (model / QUALITY).unlink(missing_ok=True)
    pairs = ("--test-source", few, "--test-target", few)
    run_subcommand("evaluate", [str(word) for word in (model, *pairs, "--calibrate")])
    assert "not calibrated" in capsys.readouterr().err
    assert not (model / QUALITY).exists()
    with pytest.raises(UsageError):
        run_subcommand("evaluate", [calibrated, calibrated, *map(str, pairs), "--calibrate"])


def test_the_worst_outputs_are_listed_first(calibrated, tmp_path, capsys):
    lines = ["a dog sees a cat ."] * 8 + [GARBLED, "a man finds a bird ."]
    source = tmp_path / "texts.en"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = tmp_path / "texts.de"
    translate([calibrated, "--input", str(source), "--output", str(output), "--review", "10"])
    shown = capsys.readouterr().err.splitlines()
    place = next(line for line in shown if "quality" in line)
    assert place.startswith(f"{source}, line 9: quality ")
    assert shown[shown.index(place) + 1].strip() == GARBLED
    assert len([line for line in shown if "quality" in line]) == 1
    assert len(output.read_text(encoding="utf-8").splitlines()) == 10


def test_a_document_names_the_places_to_read(calibrated, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text(f"<p>a dog sees a cat .</p><p>{GARBLED}</p>", encoding="utf-8")
    translate([calibrated, "--document", str(page), "--review", "50"])
    shown = capsys.readouterr().err.splitlines()
    (place,) = (line for line in shown if "quality" in line)
    assert place.startswith(f"{page}, ")
    assert shown[shown.index(place) + 1].strip() == GARBLED


def test_json_has_the_quality(calibrated, trained, tmp_path, capsys):
    translate([calibrated, "--json", "a dog sees a cat .", GARBLED])
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert bad["outputs"][0]["quality"] < good["outputs"][0]["quality"]


def test_without_a_calibration_there_is_nothing_to_review(trained, tmp_path):
    model = shutil.copytree(trained, tmp_path / "model")
    (model / QUALITY).unlink(missing_ok=True)
    (tmp_path / "a.po").write_text(PO, encoding="utf-8")
    (tmp_path / "page.html").write_text("<p>a dog</p>", encoding="utf-8")
    for words in (
        ["--review", "10", "a dog sees a cat ."],
        ["--tsv", "--quality", "a dog sees a cat ."],
        ["--document", str(tmp_path / "a.po"), "--fuzzy-below", "10"],
    ):
        with pytest.raises(ValueError, match="--calibrate"):
            translate([str(model), *words])
    for words in (
        ["--review", "10", "--n-best", "2"],
        ["--quality", "a dog"],
        ["--document", str(tmp_path / "page.html"), "--fuzzy-below", "10"],
        ["--fuzzy-below", "10", "a dog"],
    ):
        with pytest.raises(UsageError):
            translate([str(model), *words])


@pytest.mark.parametrize(
    ("name", "content", "good", "bad"),
    [
        ("a.po", PO, '#: here\n#, c-format\nmsgid "', '#: there\n#, c-format\n#, fuzzy\nmsgid "'),
        (
            "a.xlf",
            XLIFF_1,
            '</source><target state="translated" state-qualifier="mt-suggestion">',
            '</source><target state="needs-review-translation" state-qualifier="mt-suggestion">',
        ),
        ("a.xliff", XLIFF_2, '<segment state="translated">', '<segment state="initial">'),
    ],
)
def test_outputs_of_low_quality_are_marked_in_documents(
    calibrated, tmp_path, name, content, good, bad
):
    file, written = tmp_path / name, tmp_path / f"out-{name}"
    file.write_text(content, encoding="utf-8")
    words = [calibrated, "--document", str(file), "--output", str(written)]
    translate([*words, "--fuzzy-below", "50"])
    text = written.read_text(encoding="utf-8")
    assert (text.count(good), text.count(bad)) == (1, 1)
    assert [text.marked.plain for text in read_document(name, written.read_bytes()).texts] == [
        GARBLED
    ]
    translate([*words, "--overwrite"])
    assert not read_document(name, written.read_bytes()).texts


def test_tsv_has_a_column_of_qualities(calibrated, capsys):
    lines = ["a dog sees a cat .", GARBLED, ""]
    translate([calibrated, "--tsv", "--quality", *lines])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == lines
    assert 0 <= int(rows[1][2]) < int(rows[0][2]) <= 100
    assert rows[2][1:] == ["", ""]
