"""The terms of a glossary are found in texts, and stand there for a model to read."""

import pytest

from vanilla_transformer.inference.glossaries import as_glossary
from vanilla_transformer.text.edits import apply_edits
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.terms import (
    Glossary,
    Match,
    Term,
    edits_to_annotate,
    edits_to_place_terms,
    missing_targets,
    targets_in,
)
from vanilla_transformer.text.token_links import TokenLinks

FILE, FOLDER, LOG = ("file", "Datei"), ("folder", "Ordner"), ("log file", "Protokoll")


def found(terms, text, language="en"):
    """What is found of a text, and how it is translated."""
    glossary = Glossary([Term(*term) if isinstance(term, tuple) else term for term in terms])
    matches = glossary.find(text, language, kept_spans(text))
    return [(text[slice(*match.span)], match.term.target) for match in matches]


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        ([FILE], "File, files and profile; a.file.", ["File", "files", "file"]),
        ([Term(*FILE, exact=True)], "File, files", ["File"]),
        ([Term(*FILE, case=True)], "File, files", ["files"]),
        ([FILE, LOG], "Log files and file-log file", ["Log files", "file", "log file"]),
        ([LOG, ("file system", "x")], "the log file system", ["file system"]),
        ([FILE], "see https://a.org/file and {file} or /file", []),
        ([("C++", "C++"), ("the", "der")], "The C++ API", ["The", "C++"]),
        ([("e\u0301tat", "state")], "\u00e9tat", ["\u00e9tat"]),
        ([FILE], "", []),
    ],
)
def test_terms_of_a_text(terms, text, expected):
    assert [source for source, _ in found(terms, text)] == expected


@pytest.mark.parametrize(
    ("language", "term", "text", "expected"),
    [
        ("de", "Datei", "Alle Dateien der DATEI", ["Dateien", "DATEI"]),
        ("zh", "文件", "打开文件夹", ["文件"]),
        ("ja", "ファイル", "ログファイルを開く", ["ファイル"]),
        ("th", "ไฟล์", "เปิดไฟล์นี้", ["ไฟล์"]),
        ("ru", "файл", "открыть файлы", ["файлы"]),
        (None, "file", "files, file", ["file"]),
        ("ko", "파일", "파일을 열기, 파일명", ["파일을"]),
        ("hr", "datoteka", "Otvori datoteke", ["datoteke"]),
    ],
)
def test_words_are_those_of_the_language(language, term, text, expected):
    assert [source for source, _ in found([(term, "x")], text, language)] == expected


def test_the_same_form_comes_before_an_inflected_one():
    terms = [("file", "Datei"), ("files", "Akten"), Term("File", "Feile", case=True)]
    assert found(terms, "File files file") == [("File", "Feile"), ("files", "Akten"), FILE]


@pytest.mark.parametrize(
    "text",
    [
        "file\tDatei\nlog file\tProtokoll\t\t1\nUNO\tUNO\t1\t0\n",
        "\ufefftarget\texact\tsource\tcase\r\nDatei\t\tfile\r\n\r\nProtokoll\t1\tlog file\t\r\n"
        "UNO\t\tUNO\t1",
    ],
)
def test_a_file_of_terms(tmp_path, text):
    path = tmp_path / "a.tsv"
    path.write_text(text, encoding="utf-8", newline="")
    assert as_glossary(path).terms == (
        Term("file", "Datei"),
        Term("log file", "Protokoll", exact=True),
        Term("UNO", "UNO", case=True),
    )


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"file\tDatei\nfolder\n", "line 2"),
        (b"file\tDatei\n\tx\n", "line 2"),
        (b"file\tDatei\tmaybe\n", "line 1"),
        (b"file\tDatei\t1\t0\tx\n", "line 1"),
        (b"file\tDatei\nx\xff\ty\n", "line 2"),
        (b"file\tDatei\n\nFile\tAkte\n", "line 1 and .*a.tsv, line 3"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, content, lines):
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"a.tsv, {lines}"):
        as_glossary(str(path))


def test_pairs_and_mappings_are_glossaries():
    glossary = as_glossary({"file": "Datei"})
    assert glossary.terms == as_glossary([["file", "Datei"], ["file", "Datei"]]).terms[:1]
    assert as_glossary(glossary) is glossary
    with pytest.raises(ValueError, match="Term 1 and Term 2"):
        as_glossary([["file", "Datei"], ["File", "Akte"]])
    with pytest.raises(ValueError, match="Term 2: a term needs"):
        Glossary([Term("file", "Datei"), Term(" ", "Akte")])


@pytest.mark.parametrize("pairs", [["ab"], {"hello": 5}, [["file", "Datei", "x"]], [("a", None)]])
def test_what_is_no_pair_of_texts_is_refused(pairs):
    with pytest.raises(ValueError, match="give pairs"):
        as_glossary(pairs)


@pytest.mark.parametrize(
    ("text", "terms", "read"),
    [
        ("Log file.", [FILE], "Log<|term|> file<|trans|> Datei<|end|>."),
        ("File log", [FILE], "<|term|> File<|trans|> Datei<|end|> log"),
        (
            "a folder file (file)",
            [FILE, FOLDER],
            "a<|term|> folder<|trans|> Ordner<|end|><|term|> file<|trans|> Datei<|end|> "
            "(<|term|>file<|trans|> Datei<|end|>)",
        ),
        ("打开文件。", [("文件", "file")], "打开<|term|>文件<|trans|> file<|end|>。"),
        ("the file", [("file", "文件")], "the<|term|> file<|trans|>文件<|end|>"),
    ],
)
def test_what_a_model_reads(text, terms, read):
    matches = as_glossary(terms).find(text, "en")
    edits = edits_to_annotate(text, [(m.span, m.term.target) for m in matches])
    assert apply_edits(text, edits) == read


@pytest.mark.parametrize(
    ("targets", "output", "language", "missing"),
    [
        (["Datei"], "Die Dateien \u00f6ffnen", "de", []),
        (["Datei"], "Die DATEI", "de", []),
        (["Datei"], "Dateiname", "de", ["Datei"]),
        (["Datei"], "", None, ["Datei"]),
        (["und"], "Der Hund", "de", ["und"]),
        (["文件"], "打开文件夹", "zh", []),
        (["file", "open file"], "open file", "en", ["file"]),
        (["a", "a"], "a b", None, ["a"]),
        (["Datei", "Dateien"], "Eine Datei und viele Dateien", "de", []),
        (["Datei", "Datei"], "Dateien und Datei", "de", []),
        (["Cafe\u0301"], "Das Caf\u00e9", None, []),
        (["iPhone", "Log-Datei"], "Ein Iphone, zwei Log-Dateien", "de", ["iPhone"]),
    ],
)
def test_targets_that_an_output_lacks(targets, output, language, missing):
    terms = [Term("x", target) for target in targets]
    assert missing_targets(terms, output, language) == tuple(missing)


@pytest.mark.parametrize(
    ("output", "linked", "usual", "expected"),
    [
        # wherever the usual translation is linked, or stands alone
        ("パスワードを変更", ["を"], "パスワード", "暗証番号を変更"),
        ("ファイルのファイル名", [], "ファイル", "暗証番号の暗証番号名"),
        ("スキーマのキー", [], "キー", "スキーマの暗証番号"),
        ("スキーマ", [], "キー", "スキーマ"),
        ("更改用户密码。", ["密码"], "密码", "更改用户暗証番号。"),
        # else the last linked word, without particles
        ("元の画像を復元", ["の", "画像を"], "図", "元の暗証番号を復元"),
        ("ユーザーのロール", ["ユーザ"], "", "暗証番号のロール"),
        ("此用户有权限", ["此", "用户"], "", "此暗証番号有权限"),
        ("有权限", [], "用户", "有权限"),
    ],
)
def test_a_term_takes_the_place_of_what_is_linked_with_it(output, linked, usual, expected):
    parts = [(output.index(part), output.index(part) + len(part)) for part in linked]
    links = TokenLinks([(0, 4)], parts, [0] * len(parts))
    match = Match((0, 4), Term("word", "暗証番号"))
    edits = edits_to_place_terms(output, links, [match], {"word": usual}, language="ja")
    assert apply_edits(output, edits) == expected


@pytest.mark.parametrize(
    ("output", "usual", "target", "language", "expected"),
    [
        ("Gib dein Passwort ein.", "Passwort", "Kennwort", "de", "Gib dein Kennwort ein."),
        ("Das Dokument speichern", "Speichern", "sichern", "de", "Das Dokument sichern"),
        ("Löschen Sie das Element", "Löschen", "entfernen", "de", "Entfernen Sie das Element"),
        ("Ein iPhone", "iPhone", "iPod", "de", "Ein iPod"),
        ("Passwortdatei, passworte", "Passwort", "Kennwort", "de", "Passwortdatei, passworte"),
        ("Введите пароль", "Пароль", "код", "ru", "Введите код"),
        ("Введите паролям", "пароль", "код", "ru", "Введите паролям"),
        # as often as in the source at most: another word may have the same translation
        ("Ordner im Ordner", "Ordner", "Verzeichnis", "de", "Ordner im Ordner"),
        ("Öffnen", "", "auf", "de", "Öffnen"),
        ("Die neue Datei und Datei", "Datei", "neue Datei", "de", "Die neue Datei und neue Datei"),
    ],
)
def test_a_term_takes_the_place_of_its_usual_translation(output, usual, target, language, expected):
    links = TokenLinks([(0, 4)], [(0, len(output))], [0])
    match = Match((0, 4), Term("word", target))
    there = [found.span for found in targets_in(output, [match.term], language)]
    edits = edits_to_place_terms(output, links, [match], {"word": usual}, there, language)
    assert apply_edits(output, edits) == expected
