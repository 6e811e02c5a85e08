"""Messages of gettext: only translations change, and what flags say of placeholders."""

import time

import pytest
from capital_texts import in_capitals, unchanged
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.documents import po
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.memory import Pair

HEADER = 'msgid ""\nmsgstr ""\n"Language: {}\\n"\n"Content-Type: text/plain; charset={}\\n"\n\n'
PO = (
    HEADER.format("de", "UTF-8")
    + """#: file.c:1
#, c-format
msgid "Open <b>%s</b>\\n"
msgstr ""

#, fuzzy, no-wrap
#| msgid "Old"
msgid "New"
msgstr "Alt"

#, fuzzy
#~| msgid "older"
#~ msgid "obsolete"
#~ msgstr ""

msgctxt "menu"
msgid "one file"
msgid_plural "some files"
msgstr[0] ""
msgstr[1]   ""

msgid ""
"done"
msgstr ""
"fertig"
# the last comment"""
)


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_only_translations_change(line_break):
    source = PO.replace("\n", line_break)
    document = read_document("a.po", source.encode())
    assert document.write([None] * 4) == source.encode()
    assert [text.marked.plain for text in document.texts] == [
        "Open %s",
        "New",
        "one file",
        "some files",
    ]
    assert [row.location for row in document.texts] == ["line 9", "line 14", "line 24", "line 25"]
    changes = [
        ('%s</b>\\n"\nmsgstr ""', '%s</b>\\n"\nmsgstr "OPEN <b>%S</b>\\n"'),
        ('#, fuzzy, no-wrap\n#| msgid "Old"\n', "#, no-wrap\n"),
        ('"Alt"', '"NEW"'),
        ('[0] ""', '[0] "ONE FILE"'),
        ('[1]   ""', '[1]   "SOME FILES"'),
    ]
    for old, new in changes:
        assert source.count(old.replace("\n", line_break)) == 1
        source = source.replace(*(part.replace("\n", line_break) for part in (old, new)))
    assert in_capitals(document, "de").decode() == source


@pytest.mark.parametrize(
    "message",
    [
        'msgid ""\n"Language: \\n"\n"Choose one"\nmsgstr ""\n',
        'msgid ""\n"Language: %s\\n"\nmsgstr ""\n',
        'msgid "x"\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n"Language: \\n"\n',
    ],
)
@pytest.mark.parametrize(
    "header", ["", 'msgid ""\nmsgstr ""\n"Content-Type: charset=UTF-8\\n"\n\n']
)
def test_only_the_header_names_the_language(header, message):
    document = read_document("a.po", (header + message).encode())
    written = document.write([None for _ in document.texts], "de").decode()
    named = header.replace('"Content', '"Language: de\\n"\n"Content')
    assert (document.language, written) == ("", named + message)


def test_a_fuzzy_message_with_another_proposal_keeps_its_former_source():
    message = '#, fuzzy\n#| msgid "Old"\nmsgid "New"\nmsgstr "{}"\n'
    content = HEADER.format("de", "UTF-8") + message
    document = read_document("a.po", content.format("Alt").encode())
    written = document.write([TextTranslation("Neu", is_doubtful=True)]).decode()
    assert written == content.format("Neu")


def test_a_fuzzy_translation_belongs_to_the_former_source():
    former = '#~| msgid "No"\n#~ msgid "obsolete"\n#~ msgstr ""\n\n#, fuzzy\n#| msgctxt "menu"\n'
    former += '#| msgid ""\n#| "Open "\n#| "it"\nmsgid "Open them"\nmsgstr "Öffne es"\n\n'
    unknown = '#, fuzzy\nmsgid "Close it"\nmsgstr "Öffne es"\n'
    pairs = read_document("a.po", (HEADER.format("de", "UTF-8") + former + unknown).encode()).pairs
    assert pairs == [Pair("Open it", "Öffne es", is_doubtful=True)]


def test_a_fuzzy_message_whose_output_is_missing_stays_fuzzy():
    document = read_document("a.po", PO.encode())
    outputs = unchanged(document)
    outputs[1] = None
    assert (
        '#, fuzzy, no-wrap\n#| msgid "Old"\nmsgid "New"\nmsgstr "Alt"'
        in document.write(outputs).decode()
    )


@pytest.mark.parametrize(
    ("written", "text", "output"),
    [
        (r"a \"b\" \\ c", r'a "b" \ c', r"A \"B\" \\ C"),
        (r"a\x1b[1m\033b", "a\x1b[1m\x1bb", r"A\033[1M\033B"),
        (r"a\ab\tc", "a\ab\tc", r"A\aB\tC"),
        ('a\\n"\n" b\\n', "a\n b", '"\n"A\\n"\n" B\\n'),
        (r"\n\n a ", "a", None),
        ("caf\u2028e\u0301", "caf\u2028e\u0301", "CAF\u2028E\u0301"),
    ],
)
def test_strings_are_read_as_c_reads_them(written, text, output):
    message = f'msgid "{written}"\nmsgstr ""\n'
    document = read_document("a.po", message.encode())
    assert [text.marked.plain for text in document.texts] == [text]
    filled = in_capitals(document)
    if output is not None:
        assert filled.decode() == message.replace('msgstr ""', f'msgstr "{output}"')
    again = read_document("a.po", filled.replace(b'msgid "', b'#, fuzzy\nmsgid "', 1))
    assert [text.marked.plain for text in again.texts] == [text]


@given(st.lists(st.sampled_from('"\\\n\t\x1b\ac\u00e9 \U0001f600%&_n0'), min_size=1))
def test_any_text_returns(letters):
    text = "".join(letters)
    document = read_document("a.po", b'msgid "a"\nmsgstr ""\n')
    written = document.write([TextTranslation(text)]).replace(b"msgid", b"msgctxt").decode()
    written = written.replace("msgstr", "msgid") + 'msgstr ""'
    texts = [text.marked.plain for text in read_document("a.po", written.encode()).texts]
    without = [text[:n] + text[n + 1 :] for n, letter in enumerate(text) if letter == "&"]
    assert not texts or texts[0] in map(str.strip, [text, *without]) or "_" in text


def test_the_encoding_is_that_of_the_header_or_becomes_utf_8():
    source = HEADER.format("de", "ISO-8859-1") + 'msgid "caf\xe9"\nmsgstr ""\n'
    document = read_document("a.po", source.encode("latin-1"))
    assert in_capitals(document) == source.replace('msgstr ""\n', 'msgstr "CAF\xc9"\n').replace(
        '"CAF\xc9"\n"L', '""\n"L'
    ).encode("latin-1")
    written = document.write([TextTranslation("\u20ac")]).decode()
    assert "charset=UTF-8" in written
    assert 'msgid "caf\xe9"\nmsgstr "\u20ac"' in written
    template = HEADER.format("", "CHARSET") + 'msgid "a"\nmsgstr ""\n'
    written = in_capitals(read_document("a.pot", template.encode()), "pt-BR").decode()
    assert '"Language: pt_BR\\n"\n"Content-Type: text/plain; charset=UTF-8' in written
    without = template.replace('"Language: \\n"\n', "")
    assert in_capitals(read_document("a.pot", without.encode()), "pt-BR").decode() == written


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("Language: \\nContent-Type: {}", "Language: de\\nContent-Type: {}"),
        ("X: y\\nContent-Type: {}", 'X: y\\nLanguage: de\\n"\n"Content-Type: {}'),
        ("Content-Type: {}Language:\\n", "Content-Type: {}Language: de\\n"),
    ],
)
def test_a_header_in_one_string_is_read(fields, named):
    file = 'msgid ""\nmsgstr "{}"\n\nmsgid "caf\xe9"\nmsgstr ""\n'
    kinds = [f"text/plain; charset={name}\\n" for name in ("ISO-8859-1", "UTF-8")]
    source, written, other = (
        file.format(part.format(kind))
        for part, kind in [(fields, kinds[0]), (named, kinds[0]), (named, kinds[1])]
    )
    document = read_document("a.po", source.encode("latin-1"))
    assert [text.marked.plain for text in document.texts] == ["caf\xe9"]
    assert document.write([None], "de") == written.encode("latin-1")
    filled = other.replace('caf\xe9"\nmsgstr ""', 'caf\xe9"\nmsgstr "\u20ac"')
    assert document.write([TextTranslation("\u20ac")], "de").decode() == filled
    assert read_document("a.po", filled.encode()).language == "de"


@pytest.mark.parametrize("header", ["", HEADER.format("de", "UTF-8"), 'msgid ""\nmsgstr ""\n\n'])
@pytest.mark.parametrize(
    "message",
    [
        'msgid ""\n"Content-Type: text/html; charset=ISO-8859-2\\n"\nmsgstr ""\n',
        'msgid "b"\nmsgstr ""\n"Content-Type: text/html; charset=ISO-8859-2\\n"\n',
        '#. "Content-Type: text/html; charset=ISO-8859-2\\n"\nmsgid "b"\nmsgstr "c"\n',
        '#~ msgid "Content-Type: text/html; charset=ISO-8859-2"\n#~ msgstr ""\n',
    ],
)
def test_the_header_alone_tells_the_encoding(header, message):
    own = 'msgid "caf\xe9"\nmsgstr ""\n\n'
    comment = '# "Content-Type: charset=ISO-8859-2"\n'
    for file in (f"{header}{own}{message}", f"{header}{message}{own}", f"{comment}{header}{own}"):
        document = read_document("a.po", f"\ufeff{file}".encode())
        assert "caf\xe9" in [text.marked.plain for text in document.texts]
        assert document.write([None for _ in document.texts]).decode() == f"\ufeff{file}"


@pytest.mark.parametrize(
    ("charset", "escapes", "text"),
    [
        ("ISO-8859-1", r"caf\351 \xdfa", "caf\xe9 \xdfa"),
        ("ISO-8859-1", r"\303\251", "\xc3\xa9"),
        ("ISO-8859-1", "a \\\xe9 b", "a \\\xe9 b"),
        ("EUC-JP", r"\244\242 \"a\"", '\u3042 "a"'),
        ("Shift_JIS", "\u8868\\202\\240", "\u8868\u3042"),
        ("UTF-8", r"a\x41b\x9\xc3\xa9\xAg\18\\x4", "aAb\t\xe9\ng\x018\\x4"),
    ],
)
def test_escapes_are_bytes_of_the_encoding_of_the_file(charset, escapes, text):
    content = HEADER.format("de", charset) + f'msgid "{escapes}"\nmsgstr ""\n'
    (row,) = read_document("a.po", content.encode(charset)).texts
    assert row.marked.plain == text


def test_escapes_of_contexts_and_former_messages_are_bytes_of_the_encoding():
    header, text = HEADER.format("de", "ISO-8859-1"), r'"caf\351 {}"'
    former = f"#, fuzzy\n#| msgid {text}\nmsgctxt {text}\nmsgid {text}\nmsgstr {text}\n"
    document = read_document("a.po", (header + former.replace("{}", "a")).encode("latin-1"))
    assert [text.context for text in document.texts] == ["caf\xe9 a"]
    assert [pair[:2] for pair in document.pairs] == [("caf\xe9 a", "caf\xe9 a")]
    for comment, context in (("#, fuzzy\n#| msgid {}\n", ""), ("", "msgctxt {}\n")):
        message = comment + context + 'msgid "a b"\nmsgstr "c"\n'
        document = read_document("a.po", message.replace("{}", r'"caf\351"').encode())
        assert (document.pairs, len(document.texts)) == ([], int(bool(comment)))


def test_a_message_with_an_open_escape_of_its_encoding_stays():
    content = HEADER.format("ja", "ISO-2022-JP") + r'msgid "a\033$B$\" d"' + '\nmsgstr ""\n'
    document = read_document("a.po", content.encode())
    assert (document.texts, document.write([])) == ([], content.encode())


@pytest.mark.parametrize("escape", [r"\x80", r"\377", r"\xc3"])
@pytest.mark.parametrize(
    "message", ['msgid "a {} b"\nmsgstr "{}"', '#, fuzzy\nmsgid "a b"\nmsgstr "a {}{}"']
)
def test_a_message_with_bytes_that_are_no_text_stays(escape, message):
    content = message.format(escape, "").encode()
    document = read_document("a.po", content)
    assert (document.texts, document.write([])) == ([], content)
    assert not read_document("a.po", message.format(escape, "x").encode()).pairs
    (text,) = read_document("a.po", rb'msgid "caf\303\xa9"' b'\nmsgstr ""').texts
    assert text.marked.plain == "caf\xe9"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('msgid "a"\nmsgstr ""\n\nmsgid "b\nmsgstr ""', 4),
        ('msgid "a"\nmsgstr "a" b', 2),
        ('# a\n"a"\nmsgid "a"\nmsgstr ""', 1),
        ('msgid "a"\n\nmsgid "b"\nmsgstr ""\n', 1),
        ('msgid "a"\nmsgstr ""\nmsgid_plural "b"\n', 3),
        (HEADER.format("", "no-such"), 4),
    ],
)
def test_a_damaged_file_is_refused(content, line):
    with pytest.raises(ValueError, match=f"a.po.*line {line}"):
        read_document("a.po", content.encode())


@pytest.mark.parametrize(
    ("flag", "text", "parts"),
    [
        ("c-format", "%.1f%% of %'d, %*d", ["%.1f%%", "%'d", "%*d"]),
        ("c-format", "%d%% complete", ["%d%%"]),
        ("c-format", "100% done, 100%% sure, % d, % m: %m", ["%%", "% d", "% m", "%m"]),
        ("c-format", "Size (% of %d): % 5.1f%%", ["%d", "% 5.1f%%"]),
        ("no-c-format", "%s and 5 % done", []),
        ("no-c-format", "%s in {name}", ["{name}"]),
        ("qt-format", "%50 of %L1, %n", ["%50", "%L1", "%n"]),
        ("python-format", "50% of %(n)s, %r, % d", ["%(n)s", "%r", "% d"]),
        ("python-brace-format", "{a b} {{x}} {{", ["{a b}", "{{x}}", "{{"]),
        ("no-c-format", "%s of $(NAME) @HOST@ %(name)s", ["$(NAME)", "@HOST@", "%(name)s"]),
        ("no-python-brace-format", "{a} %s", ["%s"]),
        ("no-python-brace-format", "{a} ${x} %(a)s", ["${x}", "%(a)s"]),
        ("no-java-format", "{0} %1 https://a.example/{b}", ["%1", "https://a.example/{b}"]),
        ("scheme-format", "~a of ~2@s~%, ~~", ["~a", "~2@s", "~%", "~~"]),
        ("lisp-format", "~&~5,2F ~:[no~;yes~]", ["~&", "~5,2F", "~:[", "~;", "~]"]),
        ("lua-format", "%q, %5.1f, 5%% of", ["%q", "%5.1f", "%%"]),
        ("sh-printf-format", "%q of %s", ["%q", "%s"]),
        ("sh-format", "$US of ${file:-a b}", ["$US", "${file:-a b}"]),
        ("go-format", "%v, %[1]d, %#v, %+v", ["%v", "%[1]d", "%#v", "%+v"]),
        ("boost-format", "%1% of %|-10s|, %s", ["%1%", "%|-10s|", "%s"]),
        ("java-printf-format", "%,d, %tY-%<tm, %n", ["%,d", "%tY", "%<tm", "%n"]),
        ("object-pascal-format", "%0:s, %-10d, %1:*.2f", ["%0:s", "%-10d", "%1:*.2f"]),
        ("gcc-internal-format", "%<%s%> of %q+D, %wd", ["%<", "%s", "%>", "%q+D", "%wd"]),
        ("gfc-internal-format", "Symbol %qs at %L", ["%qs", "%L"]),
        ("php-format", "%'*10s of %'010d", ["%'*10s", "%'010d"]),
        ("perl-format", "%vd of %s", ["%vd", "%s"]),
        ("perl-format", "%*v02x, %v02x, %0*v8b", ["%*v02x", "%v02x", "%0*v8b"]),
        ("c-format", "%Id, %w8d, %C", ["%Id", "%w8d", "%C"]),
        ("python-brace-format", "{0:{1}} of {2}", ["{0:{1}}", "{2}"]),
        ("csharp-format", "{0:d MMM yyyy} of {1}", ["{0:d MMM yyyy}", "{1}"]),
        ("rust-format", "{:?} of {name:>5}", ["{:?}", "{name:>5}"]),
        ("smalltalk-format", "%5 of %%", ["%5", "%%"]),
        ("ycp-format", "%5 of %1", ["%5", "%1"]),
        ("no-c-format", "Since %B %Y, %s", ["%B", "%Y"]),
        ("c-format, no-boost-format", "Copy %s now", ["%s"]),
        ("c-format", "50% y mas", []),
        ("tcl-format", "100% d, %d", ["%d"]),
    ],
)
def test_flags_decide_what_a_placeholder_is(flag, text, parts):
    flags = frozenset(flag.split(", "))
    message = f'#, {flag}\nmsgid "{text} x"\nmsgstr ""\n'
    (row,) = read_document("a.po", message.encode()).texts
    assert row.flags == flags
    spans = kept_spans(text, flags=flags)
    assert [text[slice(*span)] for span in spans] == parts
    assert Copies.find(text, spans, text, flags).are_right


PLURALS = {
    "ru": "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2",
    "lv": "n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2",
    "fr": "n>1",  # no program says "a file" of no file
    "de": "n != 1",
}


@pytest.mark.parametrize(
    ("language", "singular", "plural", "first"),
    [
        ("ru", "One file", "%d files", "%d files"),  # it is also for 21 files
        ("lv", "Delete the file?", "Delete {n} files?", "Delete {n} files?"),
        ("ru", "Drop %s and a copy", "Drop %s and %d copies", "Drop %s and %d copies"),
        ("ru", "%d file", "%d files", "%d file"),
        ("fr", "One file", "%d files", "One file"),
        ("de", "One file", "%d files", "One file"),
    ],
)
def test_a_form_for_several_numbers_has_the_number(language, singular, plural, first):
    rule = f'"Plural-Forms: nplurals=3; plural={PLURALS[language]};\\n"\n'
    header = HEADER.format(language, "UTF-8").replace('"Content', rule + '"Content')
    message = f'msgid "{singular}"\nmsgid_plural "{plural}"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    document = read_document("a.po", (header + message).encode())
    assert [text.marked.plain for text in document.texts] == [first, plural]


def test_placeholders_are_searched_in_messages_with_a_plural_alone(monkeypatch):
    monkeypatch.setattr(po, "find_patterns", None)
    document = read_document("a.po", b'msgid "%d files"\nmsgstr ""\n')
    assert [text.marked.plain for text in document.texts] == ["%d files"]


@pytest.mark.parametrize(
    ("text", "without", "output", "written"),
    [
        ("&Close", "Close", "Schlie\xdfen", "S&chlie\xdfen"),
        ("&About {app}", "About {app}", "Zu {app} mehr", "&Zu {app} mehr"),
        ("_Close", "Close", "Fenster", "_Fenster"),
        ("Save _As...", "Save As...", "\u53e6\u5b58\u4e3a...", "\u53e6\u5b58\u4e3a(_A)..."),
        ("E&xit", "Exit", "Beenden", "&Beenden"),
        ("Pr_eferences", "Preferences", "Einstellungen", "_Einstellungen"),
        ("R&D", "R&D", "R&D", "R&D"),
        ("Drag&drop it", "Drag&drop it", "x", "x"),
        ("Search&Replace", "Search&Replace", "x", "x"),
        ("Wi&ndow", "Window", "Fenster", "Fe&nster"),
        ("a &amp; b", "a &amp; b", "a &amp; b", "a &amp; b"),
        ("snake_case", "snake_case", "snake_case", "snake_case"),
        ("_GNU_SOURCE is on", "_GNU_SOURCE is on", "x", "x"),
    ],
)
def test_an_accelerator_is_there_once(text, without, output, written):
    document = read_document("a.po", f'msgid "{text}"\nmsgstr ""\n'.encode())
    assert [text.marked.plain for text in document.texts] == [without]
    assert (
        document.write([TextTranslation(output)]).decode()
        == f'msgid "{text}"\nmsgstr "{written}"\n'
    )


MENU = 'msgid "_File"\nmsgstr "_Datei"\n\n'


@pytest.mark.parametrize(
    ("text", "menu", "without"),
    [
        ("Use `_name` now", MENU, "Use `_name` now"),
        ("Run `cp _name` now", MENU, "Run `cp _name` now"),
        ("Include \u201c_private\u201d modules", MENU, "Include \u201c_private\u201d modules"),
        ("Call _name and wait", "", "Call _name and wait"),
        ("See the _src folder", 'msgid "a \\"_b\\""\nmsgstr "x"\n\n', "See the _src folder"),
        ("Save _as", MENU, "Save as"),
        ("Sort by _label", MENU, "Sort by label"),
        ("Call _name and wait", "#: package/_version.py:3\n", "Call _name and wait"),
        ("Ouvrir l'&aide", "", "Ouvrir l'aide"),
        ("Apri l'&archivio", "", "Apri l'archivio"),
        ("Avant d'_enregistrer", "", "Avant d'enregistrer"),
        ("Include '_private' modules", MENU, "Include '_private' modules"),
        ("Delete `%s' &now", "", "Delete `%s' now"),
        ("Open `%s' in _Editor", "", "Open `%s' in Editor"),
        ("Use ` and &Open", "", "Use ` and Open"),
        ("Save _As", "", "Save As"),
        ("_Open", "", "Open"),
    ],
)
def test_an_underscore_of_code_or_of_a_name_is_no_accelerator(text, menu, without):
    document = read_document("a.po", f'{menu}msgid "{text}"\nmsgstr ""\n'.encode())
    assert document.texts[0].marked.plain == without
    output = TextTranslation(f"Jetzt {without}")
    if text == without:
        assert f'msgstr "Jetzt {without}"' in document.write([output]).decode()


def test_names_in_many_messages_take_linear_time():
    def time_of(text):
        messages = (f'msgid "{text} {n}"\nmsgstr ""\n' for n in range(4000))
        content, start = "\n".join(messages).encode(), time.process_time()
        read_document("a.po", content)
        return time.process_time() - start

    others = time_of("Call nam_e")  # the first call makes ready
    assert time_of("Call _name") < 5 * others


@pytest.mark.parametrize(
    ("label", "word", "without"),
    [
        ("Pass&word:", "a password", "Password:"),
        ("Save Clip&board", "Clipboard", "Save Clipboard"),
        ("Drag&drop", "Drag files, drop them", "Drag&drop"),
    ],
)
def test_a_mark_within_a_word_is_an_accelerator_if_the_file_has_the_word(label, word, without):
    file = f'msgid "{label}"\nmsgstr ""\n\nmsgid "{word}"\nmsgstr "x"\n'
    document = read_document("a.po", file.encode())
    assert document.texts[0].marked.plain == without
    finished = read_document("a.po", file.replace('""', f'"{label}"').encode())
    assert finished.pairs[0][:2] == (without, without)
