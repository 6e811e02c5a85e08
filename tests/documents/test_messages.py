"""Texts of programs: the branches of ICU's messages, and accelerators."""

import json

import pytest
from capital_texts import unchanged

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation


def in_capitals(document):
    """Capitals, but in what is within braces."""
    outputs = []
    for text in document.texts:
        parts = text.marked.plain.replace("}", "{").split("{")
        parts[::2] = [part.upper() for part in parts[::2]]
        written = "".join(part + "{}"[n % 2] for n, part in enumerate(parts[:-1])) + parts[-1]
        outputs.append(TextTranslation(written, text.marked.tags, text.marked.edges))
    return document.write(outputs)


@pytest.mark.parametrize(
    ("message", "texts", "written"),
    [
        (
            "{n, plural, =0 {no file} one {# file} other {# files}}",
            ["no file", "{0} file", "{0} files"],
            "{n, plural, =0 {NO FILE} one {# FILE} other {# FILES}}",
        ),
        (
            "You have {n, plural,\n offset:1\n one{a <b>dog</b>}  other{# dogs}\n} here, {name}.",
            ["a dog", "{0} dogs", "You have {0} here, {name}."],
            "YOU HAVE {n, plural,\n offset:1\n one{A <b>DOG</b>}  other{# DOGS}\n} HERE, {name}.",
        ),
        (
            "{g, select, f {she has {n, plural, other {# of {g}}}} other {they}}",
            ["{0} of {g}", "she has {0}", "they"],
            "{g, select, f {SHE HAS {n, plural, other {# OF {g}}}} other {THEY}}",
        ),
        (
            "{n, selectordinal, two {the #nd} few {#rd} other {{d, date, short} # {0}}}",
            ["the {1}", "{d, date, short} {1} {0}"],
            "{n, selectordinal, two {THE #nd} few {#rd} other {{d, date, short} # {0}}}",
        ),
        ("{g, select, x {a # b} other {}}", ["a # b"], "{g, select, x {A # B} other {}}"),
        (
            "{n, plural, other {it''s '{n}' # x}}",
            ["it's {0} {1} x"],
            "{n, plural, other {IT''S '{n}' # X}}",
        ),
        ("{n, plural, other {it's}}", ["it's"], "{n, plural, other {IT'S}}"),
        ("{n, plural, other {a '}' b}}", ["a {0} b"], "{n, plural, other {A '}' B}}"),
        (
            "'}' x {n, select, other {a '{x}'}}",
            ["a {0}", "{0} x {1}"],
            "'}' X {n, select, other {A '{x}'}}",
        ),
        ("{n, select, other {'{'a'}'}}", ["{0}a{1}"], "{n, select, other {'{'A'}'}}"),
        ("{n, plural, other {{name}}}", ["{name}"], "{n, plural, other {{name}}}"),
        (
            "<i>{n, plural, other {a {d, date, short}}}</i> b",
            ["a {d, date, short}", "{0} b"],
            "<i>{n, plural, other {A {d, date, short}}}</i> B",
        ),
        ("{n, plural, one {a} other {b}", [], None),
        ("{n, plural, }", [], None),
        ("{n, plural, one a}", [], None),
        ("{n, plural, <b>one</b> {a}}", [], None),
        ("} {n, plural, one {a}}", [], None),
        ("{d, date, short} of {{count, number}}", ["{d, date, short} of {{count, number}}"], None),
    ],
)
def test_the_branches_of_a_message_are_texts(message, texts, written):
    source = json.dumps({"key": message})
    document = read_document("a.json", source.encode())
    assert [text.marked.plain for text in document.texts] == (texts or [])
    assert document.write(unchanged(document)).decode() == source
    if written:
        assert in_capitals(document).decode() == json.dumps({"key": written})


def test_an_apostrophe_before_a_brace_is_doubled():
    document = read_document("a.json", b'"{n, plural, other {of {name} and #}}"')
    (text,) = document.texts
    assert text.marked.plain == "of {name} and {0}"
    written = document.write([TextTranslation("d'avis, l'{name} et d'{0}")]).decode()
    assert written == "\"{n, plural, other {d'avis, l''{name} et d''#}}\""


@pytest.mark.parametrize(
    ("message", "text", "output", "written"),
    [
        ("Import of {0}", "Import of {0}", "L'importation de {0}", "L''importation de {0}"),
        ("Can''t open {0}", "Can't open {0}", "L'ouvrir, {0}", "L''ouvrir, {0}"),
        ("Don't open {0}", "Don't open {0}", "N'ouvrez pas {0}", "N'ouvrez pas {0}"),
        ("Type '{' in {0}", "Type {1} in {0}", "{0}: {1}", "{0}: '{'"),
        ("{0,choice,0#no|1<{0}} of {1}",) * 2 + ("{1}: {0,choice,0#no|1<{0}}",) * 2,
    ],
)
def test_an_apostrophe_in_a_message_of_java_is_doubled(message, text, output, written):
    po = f'#, java-format\nmsgid "{message}"\nmsgstr ""\n'
    document = read_document("a.po", po.encode())
    assert [text.marked.plain for text in document.texts] == [text]
    filled = document.write([TextTranslation(output)])
    assert filled.decode() == po.replace('""', f'"{written}"')
    (pair,) = read_document("a.po", filled).pairs
    assert pair[:2] == (message.replace("''", "'"), written.replace("''", "'"))


def test_a_message_stays_whole_where_an_output_or_its_placeholder_is_missing():
    source = b'["{n, plural, one {# dog} other {# dogs}}", "a cat"]'
    document = read_document("a.json", source)
    assert [row.location for row in document.texts] == ["line 1"] * 3
    cat = TextTranslation("CAT")
    assert document.write([TextTranslation("{0} X"), None, cat]) == source.replace(b"a cat", b"CAT")
    assert document.write([TextTranslation("X"), TextTranslation("{0} X"), cat]) == source.replace(
        b"a cat", b"CAT"
    )


@pytest.mark.parametrize(
    "form", ["a.json ['{}']", "a.txt {}", "a.po msgid '{}'\nmsgstr ''\n", "a.html <p>{}</p>"]
)
@pytest.mark.parametrize(
    ("message", "is_named"),
    [
        ("{n, plural, one {# file} other {# files}", True),
        ("a {n, select, other files}", True),
        ("{n, plural, other {#}}", False),
        ("{n, plural, other {# files}}", False),
    ],
)
def test_a_message_that_is_not_valid_is_named(form, message, is_named):
    name, content = form.replace("'", '"').split(" ", 1)
    document = read_document(name, content.replace("{}", message).encode())
    assert [place[:5] for place in document.untranslatable] == ["line "] * is_named


def test_messages_in_other_formats():
    message = "{n, plural, one {&lt;b&gt;a&lt;/b&gt; <x id='1'/>} other {many}} of it"
    xliff = f"<xliff><trans-unit><source>{message}</source></trans-unit></xliff>"
    written = in_capitals(read_document("a.xlf", xliff.encode())).decode()
    target = "{n, plural, one {&lt;b&gt;A&lt;/b&gt; <x id='1'/>} other {MANY}} OF IT"
    assert f">{target}</target>" in written
    po = '#, c-format\nmsgid ""\n"{n, plural, one {%d _File}"\n" other {many}}"\nmsgstr ""\n'
    document = read_document("a.po", po.encode())
    assert [row.flags for row in document.texts] == [{"c-format"}] * 2
    written = document.write([TextTranslation("%d Datei"), TextTranslation("viele")]).decode()
    assert written == po.replace('msgstr ""', 'msgstr "{n, plural, one {%d Datei} other {viele}}"')
