"""`translate --memory`, and the translations that a document has itself."""

import html
import json
import re
import zipfile
from functools import partial

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.memory_files import read_memory
from vanilla_transformer.documents.translation import translate_document
from vanilla_transformer.documents.versions import read_versions
from vanilla_transformer.text.memory import Memory, Pair

translate = partial(run_subcommand, "translate")
HEAD = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"

"""
TRANSLATED = """#: finished
msgid "a dog sees the old cat ."
msgstr "Der Hund sieht die alte Katze."

#: fuzzy, so it is no source of others
#, fuzzy
msgid "a bird finds a child ."
msgstr "Kind Kind"

msgctxt "menu"
msgid "&Open %s"
msgstr "&Öffne %s"

"""


def po(*messages):
    return HEAD + TRANSLATED + "".join(f'{m}\nmsgstr ""\n\n' for m in messages)


@pytest.fixture
def memory(tmp_path):
    file = tmp_path / "old.tsv"
    file.write_text("a dog sees a cat .\tDer Hund sieht die Katze!\nwith <b>tag</b>\tX\n", "utf-8")
    return str(file)


def test_lines_that_a_memory_has_are_not_translated(trained, memory, capsys):
    lines = [" a dog sees a cat .", "a dog sees a bird .", "a bird finds a child ."]
    translate([str(trained), *lines, "--memory", memory])
    own, others = (
        capsys.readouterr().out.splitlines()[0],
        "Hund sieht Vogel .\nVogel findet Kind .\n",
    )
    assert own == " Der Hund sieht die Katze!"
    translate([str(trained), *lines, "--json", "--memory", memory])
    rows = [json.loads(line)["outputs"][0] for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["from_memory"]["is_exact"]
    assert rows[1]["from_memory"]["source"] == "a dog sees a cat ."
    assert rows[1]["from_memory"]["similarity"] == pytest.approx(0.8)
    assert "from_memory" not in rows[2]
    assert [row["text"] for row in rows[1:]] == others.splitlines()
    assert "marked" not in rows[0]["from_memory"]


def test_the_translations_of_a_file_serve_its_other_messages(trained, tmp_path):
    file, output = tmp_path / "a.po", tmp_path / "out.po"
    messages = (
        'msgctxt "b"\nmsgid "A dog sees the old cat ."',
        'msgid "a dog sees the new cat ."',
        'msgctxt "other"\nmsgid "&Open %d"',
        '#, c-format\nmsgctxt "menu"\nmsgid "_Open %s"',
        'msgid "a dog finds a boat ."',
    )
    file.write_text(po(*messages), "utf-8")
    words = [str(trained), "--document", str(file), "--output", str(output)]
    translate(words)
    written = output.read_text("utf-8")
    assert f'#, fuzzy\n{messages[0]}\nmsgstr "Der Hund sieht die alte Katze."' in written
    assert f'#, fuzzy\n{messages[1]}\nmsgstr "Der Hund sieht die alte Katze."' in written
    assert f'{messages[3]}\nmsgstr "_Öffne %s"' in written
    assert f'{messages[4]}\nmsgstr "Hund findet Boot ."' in written
    assert f'#, fuzzy\n{messages[2]}\nmsgstr "&Öffne %d"' in written  # that was another context
    assert 'msgid "a bird finds a child ."\nmsgstr "Vogel findet Kind ."' in written
    assert written.count("#, fuzzy") == 3
    assert written.startswith(HEAD + TRANSLATED[:60])
    translate([*words, "--no-memory", "--overwrite"])
    assert f'{messages[1]}\nmsgstr "Der Hund' not in output.read_text("utf-8")


def test_a_fuzzy_message_that_stays_fuzzy_stays_as_it_is(trained, tmp_path):
    file, output = tmp_path / "a.po", tmp_path / "out.po"
    fuzzy = (
        '#, fuzzy, c-format\n#| msgid "a dog sees the old cat ."\n'
        'msgid "a dog sees the new cat ."\n'
        'msgstr ""\n"Der Hund sieht "\n"die alte Katze."\n'
    )
    file.write_text(HEAD + fuzzy, "utf-8")
    translate([str(trained), "--document", str(file), "--output", str(output)])
    assert output.read_text("utf-8") == HEAD + fuzzy


def test_tags_come_back_from_a_memory_and_other_tags_are_no_match(trained, tmp_path):
    file, memory = tmp_path / "a.html", tmp_path / "m.tsv"
    memory.write_text("a <b>dog</b> sees a cat .\tDie <b>Dogge</b> sieht.\n", "utf-8")
    file.write_text("<p>a <b>dog</b> sees a cat .</p><p>a <i>dog</i> sees a cat .</p>", "utf-8")
    output = tmp_path / "out.html"
    words = ["--document", str(file), "--output", str(output), "--memory", str(memory)]
    translate([str(trained), *words])
    first, second = output.read_text("utf-8").split("</p>")[:2]
    assert first == "<p>Die <b>Dogge</b> sieht."
    assert second == "<p><i>Hund</i> sieht Katze ."


def test_tags_that_are_written_as_text_come_back_too(trained, tmp_path):
    unit = "<message><source>{}</source><translation>{}</translation></message>"
    done = unit.format("a &lt;b&gt;dog&lt;/b&gt; runs .", "&lt;b&gt;Dogge&lt;/b&gt; &amp; so.")
    asked = unit.format("a &lt;b&gt;dog&lt;/b&gt; runs .", "")
    file, output = tmp_path / "a.ts", tmp_path / "out.ts"
    file.write_text(f"<TS><context>{done}{asked}</context></TS>", "utf-8")
    translate([str(trained), "--document", str(file), "--output", str(output)])
    assert output.read_text().count(done) == 2


def test_a_memory_with_signs_of_markdown_is_read_by_the_tags_of_the_text(trained, tmp_path):
    file, memory, output = (tmp_path / name for name in ("a.md", "m.tsv", "out.md"))
    memory.write_text("a **dog** runs .\tDie **Dogge** rennt.\n", "utf-8")
    file.write_text("a **dog** runs .\n\na *dog* runs .\n", "utf-8")
    words = ["--document", str(file), "--output", str(output), "--memory", str(memory)]
    translate([str(trained), *words])
    assert output.read_text("utf-8").startswith("Die **Dogge** rennt.\n\n*Hund*")


TMX = """<?xml version="1.0"?><tmx version="1.4"><body>
<tu><tuv xml:lang="en"><seg>one</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>two</seg></tuv><tuv xml:lang="de"><seg></seg></tuv></tu>
</body></tmx>"""


def test_a_memory_is_read_from_tsv_tmx_and_po(tmp_path):
    files = {
        "a.tsv": "three\tdrei\tmore\nfour\t\nTV\tTV\n",
        "b.tmx": TMX,
        "c.po": HEAD + 'msgid "six"\nmsgstr "sechs"\n\n#, fuzzy\nmsgid "seven"\nmsgstr "sieb"\n',
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    memory = read_memory([str(tmp_path / name) for name in files], "en", "de")
    assert len(memory) == 4
    found = {text: memory.exact(text) for text in ("one", "three", "six")}
    assert [pair.target for pair in found.values()] == ["eins", "drei", "sechs"]


BOLD = '<bpt i="1" type="475" x="{}"/>OK<ept i="1"/>'
CODED = (
    (f"Click {BOLD.format(3)} now.", f"Jetzt {BOLD.format(3)} klicken."),
    ('Copy <ph x="1"/> to <ph x="2"/>.', 'Nach <ph x="2"/> <ph x="1"/> kopieren.'),
    ("Move <ph/> of <ph/>.", "<ph/> von <ph/> verschieben."),
    ('No <it i="1" pos="begin"/>end.', 'Kein <it i="1" pos="begin"/>Ende.'),
    ('Go <ph x="1"/><ph x="2"/>.', 'Los <ph x="1"/>.'),
    ('Now <ph x="1"/>OK<ph x="2"/>.', 'Nun <ph x="2"/>OK<ph x="1"/>.'),
)


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("Click <b>OK</b> now.", "Jetzt <b>OK</b> klicken."),
        ("Click OK now.", "Jetzt OK klicken."),
        ("<i>Click <b>OK</b> now.</i>", "<i>Jetzt <b>OK</b> klicken.</i>"),
        ("Copy <img a> to <img b>.", "Nach <img b> <img a> kopieren."),
        ("Move <img a> of <img b>.", "<img a> von <img b> verschieben."),
        ("No <img a>end.", "Kein <img a>Ende."),
        ("Go <img a><img b>.", None),
        ("Now <b>OK</b>.", None),
        ("Click OK<img a> now.", None),
    ],
)
def test_empty_codes_of_a_tmx_stand_for_the_tags_of_a_text(trained, tmp_path, text, translated):
    file, memory, output = (tmp_path / name for name in ("a.html", "m.tmx", "out.html"))
    tuv = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = (f"<tu>{tuv.format('en', en)}{tuv.format('de', de)}</tu>" for en, de in CODED)
    memory.write_text(f"<tmx><body>{''.join(units)}</body></tmx>", "utf-8")
    file.write_text(f"<p>{text}</p>", "utf-8")
    words = ["--document", str(file), "--output", str(output), "--memory", str(memory)]
    translate([str(trained), *words, "--source-language", "en", "--target-language", "de"])
    written = output.read_text("utf-8")
    assert written == f"<p>{translated}</p>" or not (translated or "ph" in written)
    assert translated or not re.search("Los|Nun|Jetzt", written)


def tmx(path, units):
    tuv = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    body = "".join(f"<tu>{tuv.format('en', en)}{tuv.format('de', de)}</tu>" for en, de in units)
    path.write_text(f"<tmx><body>{body}</body></tmx>", "utf-8")
    return str(path)


def test_units_with_codes_are_no_neighbours_and_are_left_out_with_their_words(tmp_path):
    units = [("Chapter", "Kapitel"), ("Open<ph/>", "Öffnen<ph/>"), ("Menu", "Menü")]
    units += [("File", "Datei"), ("Open<ph/>", "Offen<ph/>"), ("Last", "Letzte")]
    file = tmx(tmp_path / "a.tmx", units)
    memory = read_memory([file], "en", "de")
    assert memory.exact("Open", before="Chapter", after="x").target == "Öffnen"
    assert memory.exact("Open", before="File", after="x").target == "Offen"
    memory = read_memory([file], "en", "de", [("Open", "Öffnen"), ("Open", "Offen")])
    assert not memory.exact("Open")
    assert not memory.exact("Open<ph1>")
    memory = read_memory([tmx(tmp_path / "b.tmx", [("<ph/> Hello", "<ph/> Hallo")])], "en", "de")
    assert memory.exact("Hello").source == "Hello"


XLIFF = """<xliff version="1.2"><file source-language="en" target-language="de" original="a">
<body>{}</body></file></xliff>"""


@pytest.mark.parametrize(
    ("source", "pairs", "target"),
    [
        (  # all closing tags are equal, and a code looks like a tag
            'Click <g id="1">Open</g><ph id="5">&amp;nbsp;</ph>or <g id="2">Close</g> now',
            [
                (
                    'Click <g id="1">Open</g><ph id="5">&amp;nbsp;</ph>or <g id="2">Close</g> now',
                    'Jetzt <g id="2">Zu</g><ph id="5">&amp;nbsp;</ph>oder <g id="1">Auf</g>',
                )
            ],
            'Jetzt <g id="2">Zu</g><ph id="5">&amp;nbsp;</ph>oder <g id="1">Auf</g>',
        ),
        (  # an equal text of a .tmx comes before a similar one
            'Click <g id="1">OK</g> now',
            [
                ('Click <g id="1">OK</g> later', 'Später <g id="1">OK</g> klicken'),
                ("Click <ph1>OK<ph2> now", "Jetzt <ph1>OK<ph2> klicken"),
            ],
            'Jetzt <g id="1">OK</g> klicken',
        ),
    ],
)
def test_stored_translations_have_the_tags_of_a_unit(trained, source, pairs, target):
    unit = f'<trans-unit id="1"><source>{source}</source></trans-unit>'
    document = read_document("a.xlf", XLIFF.format(unit).encode())
    memory = Memory([Pair(*pair) for pair in pairs])
    translator = Translator.from_pretrained(trained)
    written = translate_document(translator, document, memories=[memory], tgt_lang="de")
    assert f"{target}</target>" in written.content.decode()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.tsv", "one\tdrei\ntwo\n", "a.tsv, line 2"),
        ("a.po", HEAD.replace("de", "fr"), "a.po: .* fr"),
        ("a.tmx", "<tmx><body>", "a.tmx"),
        ("a.json", "{}", "a.json"),
        ("a.tsv", b"one\t\xff\n", "line 1"),
    ],
)
def test_what_is_no_memory_is_refused_with_its_place(tmp_path, name, content, problem):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=problem):
        read_memory([str(file)], "en", "de")


def test_an_xliff_of_two_target_languages_is_refused(tmp_path):
    file = tmp_path / "a.xliff"
    files = "".join(f'<file target-language="{code}"></file>' for code in ("de", "fr", "de"))
    file.write_text(f'<xliff version="1.2">{files}</xliff>', "utf-8")
    with pytest.raises(ValueError, match=r"a\.xliff: .*de.*fr"):
        read_document(str(file), file.read_bytes())


def test_corrections_of_other_languages_are_no_memory(tmp_path):
    file = tmp_path / "corrections.tsv"
    file.write_text("one\teins\ten\tde\none\tun\ten\tfr\ntwo\tzwei\ten-US\tde_AT\n", "utf-8")
    memory = read_memory([str(file)], "en", "de")
    assert (len(memory), memory.exact("one").target) == (2, "eins")
    assert len(read_memory([str(file)], None, None)) == 3


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("no\tx", "b"),
        ("Menu\t12", "b"),
        ("\tde", "b"),
        ("no\tit", "b"),
        ("\t", "a"),
        ("en\tde-AT", "a"),
    ],
)
def test_only_a_row_of_two_languages_is_a_correction(tmp_path, columns, expected):
    file = tmp_path / "a.tsv"
    file.write_text(f"one\tb\ten\tde\none\ta\t{columns}\ntwo\tc\t{columns}\n", "utf-8")
    memory = read_memory([str(file)], "en", "de")
    assert memory.exact("one").target == expected
    assert (memory.exact("two") is None) == (columns == "no\tit")


PLURALS = {  # forms of Slovenian and Russian in two orders each
    "sl": "n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0",
    "sl2": "n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3",
    "ru": "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2",
    "ru2": "n==1 ? 3 : n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && "
    "(n%100<10 || n%100>=20) ? 1 : 2",
    "ja": "0",
    "de": "n != 1",
    "es": "n == 1 ? 0 : n != 0 && n % 1000000 == 0 ? 1 : 2",
}


def plural_file(rule, *forms):
    """A file with a message in all of its forms, or without a translation."""
    count = max(len(forms), 4)
    forms = forms or [""] * {"ja": 1, "de": 2, "es": 3, "ru": 3}.get(rule, 4)
    head = HEAD.replace(
        '"Language', f'"Plural-Forms: nplurals={count}; plural={PLURALS[rule]};\\n"\n"L'
    )
    strings = "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    return read_document(
        "a.po", f'{head}msgid "%d file"\nmsgid_plural "%d files"\n{strings}'.encode()
    )


@pytest.mark.parametrize(
    ("stored", "asked", "found"),
    [
        (("sl", "5", "1", "2", "3"), "sl", ["5", "1", "2", "3"]),
        (("sl", "5", "1", "2", "3"), "sl2", ["1", "2", "3", "5"]),
        (("ru", "1", "2", "5"), "ru", ["1", "2", "5"]),
        (("ru", "1", "2", "5"), "ru2", [None, "2", "5", None]),
        (("ru2", "21", "2", "5", "1"), "ru", [None, "2", "5"]),
        (("de", "1", "2"), "es", ["1", None, "2"]),
        (("es", "1", "million", "2"), "de", ["1", "2"]),
        (("ja", "1"), "ja", ["1"]),
        (("ja", "1"), "de", [None, "1"]),
    ],
)
def test_a_plural_form_is_stored_for_its_numbers(stored, asked, found):
    memory, document = Memory(plural_file(*stored).pairs), plural_file(asked)
    pairs = [memory.exact(text.marked.plain, text.context) for text in document.texts]
    assert [pair and pair.target for pair in pairs] == found


def test_a_plural_form_is_none_of_another_number_where_the_sources_are_equal():
    file = plural_file("de", "eins", "viele")._document
    content = file.write([None for _ in file.texts]).decode().replace('"%d file"', '"%d files"')
    pairs = read_document("a.po", content.encode()).pairs
    assert [Memory(pairs).exact(*pair[::2]).target for pair in pairs] == ["eins", "viele"]


def test_a_sign_before_any_letter_of_a_translation_goes(tmp_path):
    file = tmp_path / "a.po"
    menu = f'{HEAD}msgid "_Sort"\nmsgstr "_Trier"\n\n'
    file.write_text(f'{menu}msgid "Sort by _label"\nmsgstr "Trier par é_tiquette"\n', "utf-8")
    memory = read_memory([str(file)], None, None)
    assert memory.exact("Sort by label").target == "Trier par étiquette"


def test_messages_of_lines_and_units_have_no_accelerators_either(tmp_path):
    file = tmp_path / "a.tsv"
    lines = (
        "&Open it\tÖ&ffnen",
        "<b>Save it</b>\t<b>Sichern</b>",
        "Name\tDer_name & <so>",
        "Its name \tDer_name ",
    )
    file.write_text("\n".join(lines), "utf-8")
    memory = read_memory([str(file)], None, None)
    for text, target in (("Open it", "Öffnen"), ("&Open it", "Ö&ffnen"), ("Save it", "Sichern")):
        assert memory.exact(text).target == target
    assert memory.exact("Name").target == "Der_name & <so>"  # the text has no such sign
    assert memory.exact("Its name").target == "Der_name"
    scored = {tuple(line.split("\t")) for line in lines}
    assert len(read_memory([str(file)], None, None, scored)) == 0
    (tmp_path / "a.po").write_text(f'{HEAD}msgid "&Open it"\nmsgstr "Ö&ffnen"\n', "utf-8")
    assert len(read_memory([str(tmp_path / "a.po")], None, None, scored)) == 0


@pytest.mark.parametrize("line", ["  Café\tKaffee ", "Cafe\u0301\tKaffee", "Café\u3000\tKaffee"])
def test_a_pair_that_is_scored_is_none_of_the_memory_in_any_form(tmp_path, line):
    """A memory knows texts as equal but for white space at the ends and the form of letters."""
    file = tmp_path / "a.tsv"
    file.write_text(f"{line}\nCafé\tCafé\n", "utf-8")
    memory = read_memory([str(file)], "fr", "de", {("Café ", "Kaffee")})
    assert [len(memory), memory.exact("Café").target] == [1, "Café"]


def test_the_last_correction_of_a_text_counts_as_on_the_server(tmp_path):
    file = tmp_path / "corrections.tsv"
    lines = ["one\ta\ten\tde", "one\ta\ten\tde", "one\tb\ten\tde", "one\tc\ten\tfr", "x\ty\tit"]
    file.write_text("\n".join(lines), "utf-8")
    memory = read_memory([str(file)], "en", "de")
    assert (memory.exact("one").target, memory.exact("x").target) == ("b", "y")


@pytest.mark.parametrize(
    ("existing", "new", "expected"),
    [
        ('{"b": "Offen", "a": "Oeffnen"}', '{"a": "Open", "b": "Open"}', ["Oeffnen", "Offen"]),
        ('{"a": "Oeffnen", "b": "Offen"}', '{"b": "Open", "a": "Open"}', ["Offen", "Oeffnen"]),
        ('{"a": "Oeffnen", "b": "Offen"}', '{"b": "Open"}', ["Offen"]),
        ('{"a": "Oeffnen", "b": "Offen"}', '{"new": "Open", "b": "Open"}', ["Oeffnen", "Offen"]),
    ],
)
def test_texts_of_json_are_known_by_their_names(tmp_path, existing, new, expected):
    files = {"old.json": '{"a": "Open", "b": "Open"}', "existing.json": existing, "new.json": new}
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    old, existing, new = (str(tmp_path / name) for name in files)
    document = read_document(new, (tmp_path / "new.json").read_bytes())
    former, _ = read_versions(old, existing, document)
    assert [found and found.plain for found in former] == expected


ANDROID = (
    '<resources><string name="{}">{}</string><string name="{}">{}</string>'
    '<string-array name="l"><item>Open</item><item>{}</item></string-array>'
    '<plurals name="p"><item quantity="{}">{}</item><item quantity="{}">{}</item></plurals>'
    "</resources>"
)
RESX = (
    '<root><data name="{}"><value>{}</value></data><data name="{}"><value>{}</value></data></root>'
)


@pytest.mark.parametrize(
    ("name", "old", "existing"),
    [
        (
            "a.xml",
            ANDROID.format("a", "Open", "b", "Save", "Go", "one", "A", "other", "B"),
            ANDROID.format("b", "S", "a", "O\\n!", "G", "other", "b", "one", "a"),
        ),
        (
            "a.resx",
            RESX.format("a", "A", "b", "B"),
            RESX.format("b", "b", "a", "a"),
        ),
    ],
)
def test_texts_of_xml_with_names_are_known_by_these(tmp_path, name, old, existing):
    paths = [tmp_path / f"{version}-{name}" for version in ("old", "existing")]
    for path, content in zip(paths, (old, existing), strict=True):
        path.write_text(content, "utf-8")
    former, _ = read_versions(*map(str, paths), read_document(name, old.encode()))
    texts = [kept.plain for kept in former]
    assert texts == (["a", "b"] if "resx" in name else ["O\n!", "S", "Open", "G", "a", "b"])


def test_a_line_break_of_a_memory_is_written_as_android_reads_it(trained, tmp_path):
    file, memory, output = (tmp_path / name for name in ("a.xml", "m.po", "out.xml"))
    memory.write_text(f'{HEAD}msgid "a dog ."\nmsgstr "Der\\nHund."\n', "utf-8")
    file.write_text('<resources><string name="a">a dog .</string></resources>', "utf-8")
    words = ["--document", str(file), "--output", str(output), "--memory", str(memory)]
    translate([str(trained), *words])
    assert r">Der\nHund.<" in output.read_text("utf-8")


VERSIONS = {
    "json": '{{"a": "{}", "b": "{}", "c": "{}"}}',
    "md": "# {}\n\n- {}\n- {}\n",
    "html": "<h1>{}</h1><p>{}<p>{}",
    "srt": "1\n00:01 --> 00:02\n{}\n\n2\n00:02 --> 00:03\n{}\n\n3\n00:03 --> 00:04\n{}\n",
}


@pytest.mark.parametrize("kind", VERSIONS)
def test_what_did_not_change_since_the_former_version_keeps_its_translation(
    trained, tmp_path, kind, capsys
):
    form = VERSIONS[kind]
    texts = ["a dog .", "a dog .", "a  bird sees a cat ."]
    files = {name: tmp_path / f"{name}.{kind}" for name in ("old", "existing", "new", "out")}
    files["old"].write_text(form.format(*texts), "utf-8")
    files["existing"].write_text(form.format("Ein Hund!", "Der Hund,", "Vogel!"), "utf-8")
    former = ["--previous", str(files["old"]), "--existing", str(files["existing"])]
    words = [str(trained), "--output", str(files["out"]), "--overwrite", *former, "--document"]
    translate([*words, str(files["old"])])
    assert files["out"].read_bytes() == files["existing"].read_bytes()
    files["new"].write_text(form.format("a dog .", "a bird finds a child .", texts[2]), "utf-8")
    translate([*words, str(files["new"])])
    expected = form.format("Ein Hund!", "Vogel findet Kind .", "Vogel!")
    assert files["out"].read_text("utf-8") == expected
    assert "2 of 3 texts come from memory" in capsys.readouterr().err
    files["existing"].write_text(form.format("Ein Hund!", "", "Vogel!"), "utf-8")
    if kind == "json":  # its texts have names
        translate([*words, str(files["old"])])
        expected = form.format("Ein Hund!", "Ein Hund!", "Vogel!")
        assert files["out"].read_text("utf-8") == expected
        return
    with pytest.raises(ValueError, match=f"existing.{kind} is no translation of .*old.{kind}"):
        translate([*words, str(files["new"])])


def write_versions(tmp_path, kind, old, existing, new):
    """Returns the words of a call that translates the new version."""
    files = [tmp_path / f"{name}.{kind}" for name in ("old", "existing", "new", "out")]
    for file, content in zip(files, (old, existing, new), strict=False):
        file.write_text(content, "utf-8")
    previous, existing, new, out = map(str, files)
    words = ["--document", new, "--output", out, "--previous", previous, "--existing", existing]
    return words, files[-1]


@pytest.mark.parametrize(
    ("kind", "old", "existing"),
    [
        ("html", '<p><a href="/en">a dog</a></p>', '<p><a href="/de">H&uuml;ndchen</a></p>'),
        ("srt", "1\n00:01 --> 00:02\na dog sees\na cat .\n", "1\n00:01 --> 00:02\nDer\nHund da\n"),
        ("md", "a dog\nsees a cat .\n", "Der Hund\nsieht eine\nKatze.\n"),
        ("json", '["a dog"]', '["H\\u00fcnd\\/chen"]'),
    ],
)
def test_a_translation_that_is_kept_is_kept_to_the_byte(trained, tmp_path, kind, old, existing):
    words, out = write_versions(tmp_path, kind, old, existing, old)
    translate([str(trained), *words])
    assert out.read_text("utf-8") == existing


def test_front_matter_is_read_in_all_versions(trained, tmp_path):
    page = "---\ntitle: {}\nname: a cat\n---\n\n{}\n"
    versions = (
        page.format(*row)
        for row in (("a dog", "a cat"), ("Hündchen", "Kater"), ("a dog", "a bird"))
    )
    words, out = write_versions(tmp_path, "md", *versions)
    translate([str(trained), *words, "--front-matter", "title"])
    assert "title: Hündchen\nname: a cat" in out.read_text("utf-8")


@pytest.mark.parametrize("name", ["a.po", "a.xlf", "a.ts"])
def test_a_file_that_holds_translations_is_a_memory_and_no_former_version(tmp_path, name):
    file = tmp_path / name
    file.write_text(FORMS[name].format("Open"), "utf-8")
    document = read_document(name, file.read_bytes())
    with pytest.raises(ValueError, match=f"{name}.*--memory"):
        read_versions(str(file), str(file), document)


def test_a_link_that_changed_is_not_that_of_the_former_version(trained, tmp_path):
    link = '<p><a href="{}">{}</a></p>'
    versions = (link.format(*row) for row in (("/en", "a dog"), ("/de", "Hund!"), ("/x", "a dog")))
    words, out = write_versions(tmp_path, "html", *versions)
    translate([str(trained), *words])
    assert out.read_text("utf-8") == link.format("/x", "Hund!")


def test_former_versions_that_are_mixed_up_are_told(trained, tmp_path, capsys):
    words, _ = write_versions(tmp_path, "txt", "Dogge!\n", "a dog .\n", "a dog .\n")
    translate([str(trained), *words])
    assert "0 of 1 texts come from memory" in capsys.readouterr().err


UNIT = "<source>{}</source>"
FORMS = {
    "a.po": HEAD + 'msgid "{}"\nmsgstr ""\n',
    "a.json": '["{}"]',
    "a.html": "<p>{}</p>",
    "a.ts": f"<TS><context><message>{UNIT}</message></context></TS>",
    "a.xlf": f'<xliff version="1.2"><file><trans-unit>{UNIT}</trans-unit></file></xliff>',
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<b>a dog</b>", "<i>Hund</i>!"),
        ("<i><b>a dog</b></i>", "<b>Hund</b> da"),
        ("<b>a dog</b>", "Hund"),
        ("see <a href='/en'>a dog</a> .", "<a href='/de'>Hund</a>!"),
        ("see <b>a dog</b> .", "Ein Hund, so"),
        ("see <b>a dog</b> .", "<b>Ein</b> <b>Hund</b>"),
        ("see a dog .", "Ein <i>Hund</i>"),
    ],
)
def test_an_identical_text_has_the_tags_of_its_translation(trained, tmp_path, name, source, target):
    file, memory, output = (tmp_path / part for part in (name, "m.tsv", f"out-{name}"))
    if name == "a.ts" or (name == "a.xlf" and source[0] == "<"):
        source, target = (html.escape(text, quote=False) for text in (source, target))
    memory.write_text(f"{source}\t{target}\n", "utf-8")
    file.write_text(FORMS[name].format(source), "utf-8")
    words = ["--document", str(file), "--output", str(output), "--memory", str(memory)]
    translate([str(trained), *words])
    if name == "a.xlf" and "<i>" in target:  # no element of its source
        target = html.escape(target)
    assert re.search(rf"""[>"]{re.escape(target)}["<]""", output.read_text("utf-8"))


def test_what_was_moved_has_its_former_translation(trained, tmp_path):
    old, existing = "a dog .\na cat .\n", "Dogge!\nMieze!\n"
    words, out = write_versions(tmp_path, "txt", old, existing, "a cat .\na dog .\na cat .\n")
    translate([str(trained), *words])
    assert out.read_text("utf-8") == "Mieze!\nDogge!\nMieze!\n"


def test_fields_of_one_name_are_not_mixed_up(trained, tmp_path):
    old, existing = '{"a": "dog", "b": "cat", "a": "bird"}', '{"a": "D", "b": "C", "a": "B"}'
    words, out = write_versions(tmp_path, "json", old, existing, '{"b": "cat", "a": "bird"}')
    translate([str(trained), *words])
    assert out.read_text("utf-8") == '{"b": "C", "a": "B"}'


TEXT, OUTPUT = "a bird finds a child .", "Vogel findet Kind ."
ENGLISH = '{"a": "{n, plural, one {# dog} other {# dogs}}"}'
POLISH = '{"a": "{n, plural, one {# pies} few {# psy} many {# psów} other {# psa}}"}'
ANDROID_A = '<resources><string name="a">{}</string>{}</resources>'
B = '<string name="b">weg</string>'


@pytest.mark.parametrize(
    ("kind", "old", "existing", "expected", "left"),
    [
        (
            "json",
            f'{{"a": "x y", "b": "{TEXT}"}}',
            '{"a": "X!"}',
            f'{{"a": "X!", "b": "{OUTPUT}"}}',
            "",
        ),
        ("json", '{"a": "x y"}', '{"a": "X!",\n "z": "weg"}', '{"a": "X!"}', "line 2"),
        ("json", f'{{"a": "{TEXT}"}}', '{"a": ""}', f'{{"a": "{OUTPUT}"}}', ""),
        ("json", f'["x y", "{TEXT}"]', '["X!", "", "weg"]', f'["X!", "{OUTPUT}"]', "line 1"),
        ("json", ENGLISH, POLISH, POLISH, ""),
        ("json", POLISH, ENGLISH, ENGLISH, ""),
        (
            "xml",
            ANDROID_A.format("x y", ""),
            ANDROID_A.format("X!", B),
            ANDROID_A.format("X!", ""),
            "1",
        ),
    ],
)
def test_what_fits_of_a_former_translation_is_kept(
    trained, tmp_path, heard, kind, old, existing, expected, left
):
    words, out = write_versions(tmp_path, kind, old, existing, old)
    translate([str(trained), *words])
    assert out.read_text("utf-8") == expected
    assert left in "".join(heard.messages)


UNITS = """<xliff version="1.2"><file original="a" source-language="en" datatype="plaintext"
 target-language="de"><body>
<trans-unit id="1"><source>a <g id="1">dog</g> runs .</source><target state="translated">\
Der <g id="1">Hund</g> &amp; so.</target></trans-unit>
<trans-unit id="2"><source>a <g id="1">dog</g> runs .</source></trans-unit>
<trans-unit id="3"><source>a <g id="7">dog</g> runs .</source></trans-unit>
<trans-unit id="4"><source>a small <g id="1">dog</g> runs .</source></trans-unit>
<trans-unit id="5"><source>a cat runs .</source><target state="new">Katze</target></trans-unit>
</body></file></xliff>"""


def test_the_units_of_xliff_serve_the_others(trained, tmp_path):
    file, output = tmp_path / "a.xliff", tmp_path / "out.xliff"
    file.write_text(UNITS, "utf-8")
    translate([str(trained), "--document", str(file), "--output", str(output)])
    units = output.read_text("utf-8").split("</trans-unit>")
    assert units[1].endswith('>Der <g id="1">Hund</g> &amp; so.</target>')
    assert units[2].endswith('>Der <g id="7">Hund</g> &amp; so.</target>')
    assert units[3].endswith('>Der <g id="1">Hund</g> &amp; so.</target>')
    assert "needs-review-translation" in units[3]
    assert "needs-review-translation" not in units[1]
    qualifiers = ["", "exact-match", "fuzzy-match", "fuzzy-match", "mt-suggestion"]
    for unit, qualifier in zip(units, qualifiers, strict=False):
        assert f'state-qualifier="{qualifier}"' in unit or not qualifier


def test_tags_at_the_edges_of_a_text_are_not_put_elsewhere(tmp_path):
    units = "".join(
        f"<trans-unit><source>{source}</source><target>{target}</target></trans-unit>"
        for source, target in (
            ('go to <x id="a"/>', '<x id="a"/> ist da'),
            ('see <x id="a"/>', 'siehe <x id="a"/>'),
        )
    )
    xliff = f'<xliff version="1.2"><file><body>{units}</body></file></xliff>'
    pairs = read_document("a.xlf", xliff.encode()).pairs
    assert [pair.source for pair in pairs] == ['go to <x id="a"/>', "see"]
    file = tmp_path / "a.po"
    file.write_text(f'{HEAD}msgid "go to<br>"\nmsgstr "<br>dorthin"\n', "utf-8")
    assert read_memory([str(file)], None, None).exact("go to") is None


def test_what_a_model_has_written_into_xliff_is_no_memory(trained, tmp_path):
    file, output, again = (tmp_path / f"{name}.xliff" for name in ("a", "out", "again"))
    unit = '<trans-unit id="{}"><source>{}</source></trans-unit>'
    head, first, tail = (
        '<xliff version="1.2"><file target-language="de"><body>',
        unit.format(1, "a dog sees a cat ."),
        "</body></file></xliff>",
    )
    file.write_text(head + first + tail, "utf-8")
    translate([str(trained), "--document", str(file), "--output", str(output)])
    grown = output.read_text("utf-8").replace(tail, unit.format(2, "A dog sees a cat") + tail)
    assert read_document("a.xliff", grown.encode()).pairs == []
    reviewed = grown.replace('id="1"', 'id="1" approved="yes"')
    assert len(read_document("a.xliff", reviewed.encode()).pairs) == 1
    file.write_text(grown, "utf-8")
    translate([str(trained), "--document", str(file), "--output", str(again)])
    assert "exact-match" not in again.read_text("utf-8")


def test_former_versions_whose_parts_are_in_another_order_fit_together(tmp_path):
    form = '<w:document xmlns:w="w"><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:document>'
    parts = {"document": ("a dog", "Hund"), "header1": ("a cat", "Katze")}
    for number, names in enumerate((list(parts), list(reversed(parts)), list(parts))):
        with zipfile.ZipFile(tmp_path / f"{number}.docx", "w") as packed:
            for name in names:
                packed.writestr(f"word/{name}.xml", form.format(parts[name][number % 2]))
    old, existing, new = (str(tmp_path / f"{number}.docx") for number in range(3))
    former, _ = read_versions(old, existing, read_document(new, (tmp_path / "2.docx").read_bytes()))
    assert [kept.plain for kept in former] == ["Hund", "Katze"]


def test_a_link_of_a_former_docx_is_that_of_the_new_one(trained, tmp_path):
    form = (
        '<w:document xmlns:w="w"><w:p><w:hyperlink id="{}"><w:r><w:t>{}</w:t></w:r></w:hyperlink>'
        "</w:p></w:document>"
    )
    for name, row in (
        ("old", ("7", "a dog")),
        ("existing", ("5", "Hund")),
        ("new", ("7", "a dog")),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.docx", "w") as packed:
            packed.writestr("word/document.xml", form.format(*row))
    old, existing, new, out = (
        str(tmp_path / f"{n}.docx") for n in ("old", "existing", "new", "out")
    )
    words = ["--document", new, "--previous", old, "--existing", existing, "--output", out]
    translate([str(trained), *words])
    with zipfile.ZipFile(out) as packed:
        written = packed.read("word/document.xml").decode().replace(' xml:space="preserve"', "")
    assert written == form.format("7", "Hund")


def test_formatted_words_of_a_former_version_stay_formatted(trained, tmp_path):
    form = (
        '<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>{} </w:t></w:r><w:r><w:rPr><w:b/></w:rPr>'
        "<w:t>{}</w:t></w:r></w:p>{}</w:body></w:document>"
    )
    more = "<w:p><w:r><w:t>a bird finds a child .</w:t></w:r></w:p>"
    documents = {
        "old.docx": form.format("a dog sees", "a cat .", ""),
        "existing.docx": form.format("Die Katze sieht", "der Hund.", ""),
        "new.docx": form.format("a dog sees", "a cat .", more),
    }
    for name, content in documents.items():
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.writestr("word/document.xml", content)
    paths = [str(tmp_path / name) for name in documents]
    output = tmp_path / "out.docx"
    words = ["--previous", paths[0], "--existing", paths[1], "--output", str(output)]
    translate([str(trained), "--document", paths[2], *words])
    with zipfile.ZipFile(output) as packed:
        written = packed.read("word/document.xml").decode()
    expected = documents["existing.docx"].removesuffix("</w:body></w:document>")
    assert written.replace(' xml:space="preserve"', "").startswith(expected)
    assert "Vogel findet Kind ." in written
