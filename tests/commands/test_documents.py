"""`vanilla-transformer translate --document`."""

import zipfile
from functools import partial

import pytest

from vanilla_transformer import progress
from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.documents import translation

translate = partial(run_subcommand, "translate")
SRT = """1
00:00:01,000 --> 00:00:02,000
a dog sees a <i>cat</i> .

2
00:00:03,000 --> 00:00:04,000
"""


@pytest.fixture
def subtitles(tmp_path):
    file = tmp_path / "film.srt"
    file.write_text(f"{SRT}a bird finds a child .\n", encoding="utf-8")
    return file


def test_a_document_is_translated_beside_itself(trained, subtitles, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(translation, "TEXTS_PER_CHUNK", 1)
    translate([str(trained), "--document", str(subtitles)])
    shown, *_, written = capsys.readouterr().err.splitlines()
    assert shown.startswith("1 of 2 texts, ")
    assert written.endswith("film.translated.srt: written.")
    content = subtitles.with_suffix(".translated.srt").read_text(encoding="utf-8")
    assert content == f"{SRT.replace('a dog sees a <i>cat</i> .', 'Hund sieht <i>Katze</i> .')}" + (
        "Vogel findet Kind .\n"
    )
    with pytest.raises(ValueError, match="exists"):
        translate([str(trained), "--document", str(subtitles)])


SENTENCE, OUTPUT = "a dog sees a cat .", "Hund sieht Katze ."
PARAGRAPHS = {
    "a.txt": "{}\n",
    "a.html": "<h1>1</h1><p>{}</p>",
    "a.md": "- {}\n",
    "word/document.xml": "<w:p><w:r><w:t>{}</w:t></w:r></w:p>",
    "content.xml": "<text:p>{}</text:p>",
}


@pytest.mark.parametrize("name", PARAGRAPHS)
def test_long_paragraphs_lose_nothing(trained, tmp_path, name):
    """16 sentences, of which an output has room for one."""
    paragraph = PARAGRAPHS[name]
    source = paragraph.format(" ".join([SENTENCE] * 16)).encode()
    file = tmp_path / {"word/document.xml": "a.docx", "content.xml": "a.odt"}.get(name, name)
    if "/" in name or name == "content.xml":
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr(name, source)
    else:
        file.write_bytes(source)
    output = tmp_path / f"out{file.suffix}"
    words = [str(trained), "--document", str(file), "--output", str(output)]
    translate([*words, "--max-new-tokens", "5"])
    content = output.read_bytes()
    if zipfile.is_zipfile(output):
        with zipfile.ZipFile(output) as packed:
            content = packed.read(name)
    assert content.decode().count(OUTPUT) == 16


def test_what_is_cut_off_all_the_same_stays_and_is_named(trained, tmp_path, heard):
    file, output = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text(f"12\n\n{SENTENCE}\n{SENTENCE}\n")
    words = ["--output", str(output), "--max-new-tokens", "4", "--num-beams", "1"]
    translate([str(trained), "--document", str(file), *words])
    assert SENTENCE in output.read_text().splitlines()
    assert "Hund sieht" not in output.read_text()
    assert heard.messages[-1].endswith(" line 3, line 4.")
    translate([str(trained), "--input", str(file), *words, "--overwrite"])
    assert f"{file}, line 3" in heard.messages[-1]
    assert f"{file}, line 2" not in heard.messages[-1]


def test_options_of_a_document(trained, subtitles, tmp_path):
    words = [str(trained), "--document", str(subtitles)]
    output = tmp_path / "out.srt"
    translate([*words, "--output", str(output), "--num-beams", "2", "--no-keep"])
    assert "Vogel findet Kind ." in output.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="--document"):
        translate([*words, "--output", str(subtitles), "--overwrite"])
    for wrong in (["--json"], ["a line"], ["--n-best", "2"]):
        with pytest.raises(UsageError):
            translate([*words, *wrong])


def test_a_document_without_text_is_written_as_it_is(trained, tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}')
    translate([str(trained), "--document", str(tmp_path / "a.json")])
    assert (tmp_path / "a.translated.json").read_text() == '{"a": 1}'


def test_cells_with_which_a_book_compares_are_named(trained, tmp_path, heard):
    file, output = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("xl/sharedStrings.xml", "<sst><si><t>dog</t></si><si><t>cat</t></si></sst>")
        packed.writestr("xl/worksheets/sheet1.xml", '<worksheet><f>A1="dog"</f></worksheet>')
    translate([str(trained), "--document", str(file), "--output", str(output)])
    with zipfile.ZipFile(output) as packed:
        assert b"<t>dog</t></si><si><t>Katze" in packed.read("xl/sharedStrings.xml")
    assert 'xl/sharedStrings.xml, "dog"' in heard.messages[-1]


@pytest.mark.parametrize(
    ("name", "content"), [("e.po", ""), ("f.po", 'msgid ""\nmsgstr ""\n'), ("a.md", "```\nx\n```")]
)
def test_a_document_without_texts_is_named(trained, tmp_path, capsys, name, content):
    file = tmp_path / name
    file.write_text(content)
    translate([str(trained), "--document", str(file)])
    assert f"No text in {file} is to be translated." in capsys.readouterr().err
    assert file.with_suffix(f".translated{file.suffix}").read_text() == content
