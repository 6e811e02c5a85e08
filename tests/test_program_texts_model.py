"""The translation model in the repository: its files, its languages, and what it keeps."""

import re

import pytest
import torch
from programs import REPOSITORY
from safetensors.torch import load_file

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import main
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import MarkedText, split_text
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.translation import translate_document

FOLDER = REPOSITORY / "model_cards" / "program-texts"
SOURCE = "The file %s could not be saved."
TRANSLATED = {
    "de": "Die Datei %s konnte nicht gespeichert werden.",
    "es-ES": "No se pudo guardar el archivo %s.",
    "ja": "ファイル %s を保存できませんでした\u3002",
    "zh_CN": "无法保存文件 %s\u3002",
}


def test_its_weights_are_small():
    assert sum(path.lstat().st_size for path in FOLDER.iterdir()) <= 8_200_000
    weights = load_file(FOLDER / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


@pytest.fixture(scope="module", params=["transformers", "ctranslate2"])
def translator(request):
    return Translator.from_pretrained(str(FOLDER), request.param)


def test_it_translates_into_each_language(translator):
    outputs = translator.translate([SOURCE] * len(TRANSLATED), tgt_lang=list(TRANSLATED))
    assert outputs == list(TRANSLATED.values())


def test_it_computes_what_it_did():
    translator = Translator.from_pretrained(str(FOLDER), "transformers")
    (score,) = translator.score([SOURCE], [TRANSLATED["de"]], tgt_lang="de")
    assert sum(score.token_scores) == pytest.approx(-0.90842, abs=1e-4)


def test_a_language_must_be_named(translator):
    with pytest.raises(ValueError, match="de, es, fr, ja, zh"):
        translator.translate(SOURCE)
    with pytest.raises(ValueError, match="de is a target only"):
        translator.translate(SOURCE, src_lang="de", tgt_lang="fr")


def test_it_obeys_the_glossary_of_the_readme(translator):
    options = {"tgt_lang": "de", "glossary": {"message": "Mitteilung"}}
    output = translator.translate("The message could not be sent.", **options)
    assert output == "Die Mitteilung konnte nicht gesendet werden."


@pytest.mark.parametrize("name", ["lineWidth", "setup.py", "LC_ALL"])
def test_a_glossary_translates_what_is_kept_otherwise(translator, name):
    options = {"tgt_lang": "de", "glossary": {name: "Breite"}}
    texts = [name, f"Change {name} here."]
    assert all("Breite" in output for output in translator.translate(texts, **options))


@pytest.mark.parametrize("code", TRANSLATED)
def test_what_it_does_not_copy_is_put_back(translator, code):
    texts = ["Unknown user me@example.org", "Saved. \U0001f60a", "Open %(name)s in ~/x.txt"]
    outputs = translator.translate(texts, tgt_lang=code, return_word_alignment=True)
    for output, kept in zip(
        outputs, (["me@example.org"], ["\U0001f60a"], ["%(name)s", "~/x.txt"]), strict=True
    ):
        assert [output.text.count(span) for span in kept] == [1] * len(kept)
        assert set(output.restored) <= set(kept)
        assert max(target for _, target in output.word_alignment) < len(output.text.split())


@pytest.mark.parametrize("key", ["media.na_10x11_10x11in", "MAX_FILE_SIZE", "lineWidth"])
@pytest.mark.parametrize("code", TRANSLATED)
def test_a_name_of_code_stays(translator, code, key):
    assert translator.translate([key, "/etc/hosts"], tgt_lang=code) == [key, "/etc/hosts"]
    assert translator.translate(f"The value of {key} is wrong.", tgt_lang=code).count(key) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Save <b>{name}</b>", "<b>{name}</b> speichern"),
        ("Could not open <b>%s</b>.", "<b>%s</b> konnte nicht geöffnet werden."),
    ],
)
def test_a_tag_stays_around_a_placeholder(translator, source, expected):
    marked = MarkedText.of(split_text(source))
    output = translator.translate(marked.plain, tgt_lang="de", return_links=True)
    assert place_tags(marked, output.text, output.links).write() == expected


def test_a_line_of_emoji_alone_stays(translator):
    texts = ["\U0001f60a", "Save the file\n\U0001f60a \U0001f60a\n", "Save the file"]
    alone, lines, saved = translator.translate(texts, tgt_lang="de", return_scores=True)
    assert (alone.text, alone.is_complete) == (texts[0], True)
    assert lines.text == f"{saved.text}\n\U0001f60a \U0001f60a\n"


def test_the_first_lines_of_the_readme(capsys):
    assert not main(["translate", str(FOLDER), "--target-language", "de", SOURCE])
    assert capsys.readouterr().out == f"{TRANSLATED['de']}\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Text files (*.txt)|*.txt|All files|*.*", "Textdateien (*.txt)|*.txt|Alle Dateien|*.*"),
        ("Open the\u200bfile", "Datei öffnen"),
        ("Close the\u2060window", "Fenster schließen"),
        ("Save the new\u200bfile", "Die neue\u200bDatei speichern"),
        ("Delete all\u2060files?", "Alle\u2060Dateien löschen?"),
    ],
)
def test_kinds_of_files_and_invisible_spaces(translator, source, expected):
    assert translator.translate(source, tgt_lang="de") == expected


@pytest.mark.parametrize("code", TRANSLATED)
def test_what_a_line_has_stays(translator, code):
    texts = ["50% of %s is used", "The window is 20% of %1$s", "Show the SHA256 of the file"]
    texts += ["no files|one file|{n} files", "{0} none|{1} a file|[2,*] files", "File<br/>Open"]
    outputs = translator.translate(texts, tgt_lang=code)
    parts = [r"50\s?%(?!s)", r"20\s?%(?!1)", "SHA256", r"^[^|]+\|[^|]+\|[^|]*\{n\}[^|]*$"]
    parts += [r"^\{0\} [^|]+\|\{1\} [^|]+\|\[2,\*\] [^|]+$", r"\w<br/>\w"]
    for part, output in zip(parts, outputs, strict=True):
        assert re.search(part, output), output
    assert outputs[-1] == "<br/>".join(translator.translate(["File", "Open"], tgt_lang=code))
    words = translator.translate(["A soft\u00adhyphen", "A softhyphen"], tgt_lang=code)
    assert words[0] == words[1]


XLIFF = "<xliff><trans-unit><source>{}</source></trans-unit></xliff>"
ANDROID = "<resources><string>{}</string></resources>"


@pytest.mark.parametrize(
    ("name", "frame", "line_break"),
    [
        *(("a.xlf", XLIFF, tag) for tag in ("<x ctype='lb'/>", "<ph subType='xlf:lb'/>")),
        *(("a.xml", ANDROID, tag) for tag in ("<br/>", r"\n", "&lt;br/&gt;")),
        ("a.json", '["{}"]', "<br />"),
        ("a.md", "{}\n", "<br>"),
        ("a.po", 'msgid "{}"\nmsgstr ""\n', "<BR/>"),
        ("a.srt", "00:00:00,000 --> 00:00:01,000\n{}\n", "<br>"),
        ("a.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\n{}\n", "<br>"),
    ],
)
def test_a_line_break_stays_between_its_lines(translator, name, frame, line_break):
    document = read_document(name, frame.format(f"Save the file{line_break}Open").encode())
    written = translate_document(translator, document, tgt_lang="de").content.decode()
    assert f"Datei speichern{line_break}Öffnen" in written


WIDTH = "Bad width %d for variable %s."
NUMBERED = "変数 %2$s の幅 %1$d が間違っています。"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.po", '#, c-format\nmsgid "{}"\nmsgstr "{}"\n', NUMBERED),
        ("a.po", '#, php-format\nmsgid "{}"\nmsgstr "{}"\n', NUMBERED),
        ("a.po", '#, python-format\nmsgid "{}"\nmsgstr "{}"\n', ""),
        ("a.po", 'msgid "{}"\nmsgstr "{}"\n', ""),
        ("a.po", 'msgid "%2$s"\nmsgstr "%2$s"\n\nmsgid "{}"\nmsgstr "{}"\n', NUMBERED),
        ("a.xml", "<resources><string>{1}</string></resources>", NUMBERED),
        ("a.json", '["{1}"]', WIDTH),
        ("a.json", '["{1}", "%1$s"]', NUMBERED),
    ],
)
def test_values_in_another_order_are_numbered_or_the_source_stays(
    translator, name, content, expected, heard
):
    source = WIDTH if "msgid" in content else ""
    document = read_document(name, content.format(source, "" if source else WIDTH).encode())
    written = translate_document(translator, document, tgt_lang="ja")
    assert written.content.decode().replace('"Language: ja\\n"\n', "") == content.format(
        source, expected
    )
    stays = expected != NUMBERED
    assert bool(written.untranslated) == bool(heard.messages) == stays


def test_numbers_of_values_count_over_all_sentences(translator):
    source = f"{WIDTH} Do you want to open %s?"
    document = read_document("a.po", f'#, c-format\nmsgid "{source}"\nmsgstr ""\n'.encode())
    written = translate_document(translator, document, tgt_lang="ja").content.decode()
    assert NUMBERED in written
    assert written.count("%3$s") == 1


def test_a_line_whose_values_would_change_places_stays(translator, heard):
    texts = [WIDTH, "The file %s has %d lines."]
    stays, translated = translator.translate(texts, tgt_lang="ja", return_scores=True)
    assert (stays.text, stays.untranslated, translated.untranslated) == (WIDTH, True, False)
    assert translated.text != texts[1]
    assert "text 1:" in "".join(heard.messages)


@pytest.mark.parametrize(
    ("source", "code", "expected"),
    [
        ("Saved as <x/>.", "de", "Speichern als <x/>."),
        ("Saved as <x/>.", "ja", "<x/>として保存されました。"),
        ("Saved as <x/>.", "zh", "已保存为<x/>。"),
        ("Downloaded <x/>/<y/> files", "fr", "Télécharger les fichiers <x/>/<y/>"),
        ("<x/> files", "ja", "<x/>ファイル"),
    ],
)
def test_a_tag_stands_where_its_word_would(translator, source, code, expected):
    file = f"<xliff><trans-unit><source>{source}</source></trans-unit></xliff>"
    content = translate_document(translator, read_document("a.xlf", file.encode()), tgt_lang=code)
    assert f">{expected}</target>" in content.content.decode()
    for old, new in (("<x/>", "<xliff:g>%1$s</xliff:g>"), ("<y/>", "<xliff:g>%2$s</xliff:g>")):
        source, expected = source.replace(old, new), expected.replace(old, new)
    strings = "<resources xmlns:xliff='x'><string>{}</string></resources>".format
    document = read_document("a.xml", strings(source).encode())
    content = translate_document(translator, document, tgt_lang=code).content
    assert content.decode() == strings(expected)


@pytest.mark.parametrize(
    ("source", "code", "glossary", "expected"),
    [
        ("Wrong password", "ja", {"password": "暗証番号"}, ("暗証番号", "パスワード")),
        ("Enter the password for the user %s", "ja", {"user": "利用者"}, ("利用者", "ユーザー")),
        ("The password is wrong", "zh", {"password": "口令"}, ("口令", "密码")),
        ("Could not open the files", "zh", {"file": "档案"}, ("档案", "文件")),
    ],
)
def test_a_term_takes_the_place_of_the_usual_word(translator, source, code, glossary, expected):
    options = {"return_scores": True, "return_word_alignment": True, "tgt_lang": code}
    (output,) = translator.translate([source], glossary=glossary, **options)
    assert [output.text.count(word) for word in expected] == [1, 0]
    assert output.text.count("%s") == source.count("%s")
    assert output.missing_terms == ()
    plain = translator.translate([source], **options)[0].text
    assert output.text == plain.replace(*reversed(expected))
