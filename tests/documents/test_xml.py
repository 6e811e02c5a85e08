"""Files of programs in XML, tables and books: which of their texts are translated, and how."""

import re
import zipfile
from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import pytest
from capital_texts import in_capitals, unchanged

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.named_tags import name_tags, with_named_tags
from vanilla_transformer.documents.xml import XmlFile
from vanilla_transformer.documents.xml_schemas import SCHEMAS
from vanilla_transformer.text.memory import Memory
from vanilla_transformer.text.token_links import TokenLinks


@pytest.mark.parametrize(
    ("value", "texts", "written"),
    [
        (r"it\'s \"new\"\u0021", ['it\'s "new"!'], r"IT\'S \"NEW\"!"),
        ('"  it\'s  "', ["it's"], r'"  IT\'S  "'),
        (r"one\n\ttwo", ["one\n\ntwo"], r"ONE\n\tTWO"),
        (r"\u0020at: \u0020", ["at:"], r"\u0020AT: \u0020"),
        (r"a\u0020b", ["a b"], "A B"),
        ("<![CDATA[ a]]> <b>b </b>", ["a b "], " A <b>B </b>"),
        (r"<b>a</b>\u0020b", ["a b"], "<b>A</b> B"),
        ("\n  one\n  two ", ["one   two"], "\n  ONE   TWO "),
        (r"\@a \?", ["@a ?"], r"\@A ?"),
        (r"a \ud83d\ude00 \ud83d b", ["a \U0001f600 \ufffd b"], "A \U0001f600 \ufffd B"),
        ("@string/name", [], None),
        ("?android:attr/name", [], None),
        ("<![CDATA[a <b>dog</b>]]>", ["a dog"], "A &lt;b&gt;DOG&lt;/b&gt;"),
    ],
)
def test_strings_of_android(value, texts, written):
    source = f'<resources><string name="a">{value}</string></resources>'
    document = read_document("values/strings.xml", source.encode())
    assert [text.marked.plain for text in document.texts] == texts
    assert document.write(unchanged(document)).decode() == source
    assert in_capitals(document).decode() == source.replace(value, written or value)


def test_entities_that_a_file_declares_stay():
    head = '<!DOCTYPE resources [<!ENTITY notes "x"><!ENTITY app.name "y">]>'
    source = head + "<resources><string>a &notes; b&amp;c &app.name;</string></resources>"
    document = read_document("strings.xml", source.encode())
    assert [text.marked.plain for text in document.texts] == ["a  b&c"]
    assert document.write(unchanged(document)).decode() == source
    assert in_capitals(document).decode() == source.replace("a &", "A &").replace(
        "b&amp;c", "B&amp;C"
    )


def test_android_takes_texts_of_languages_alone():
    source = """<resources>
    <string name="a" translatable="false">code</string><item type="id">code</item>
    <plurals name="b"><item quantity="one">%d dog</item><item quantity="other">dogs</item></plurals>
    <string-array name="c"><item>first</item></string-array>
    <integer-array name="d"><item>code</item></integer-array>
    <style name="e"><item name="f">code</item></style>
    <string name="g">by <xliff:g id="x" example="Bob">%1$s</xliff:g> now</string>
</resources>"""
    document = read_document("strings.xml", source.encode())
    assert [text.marked.plain for text in document.texts] == ["%d dog", "dogs", "first", "by  now"]


QT = """<!DOCTYPE TS><TS version="2.1">
<message><source>&amp;Open %1</source><translation type="unfinished"/></message>
<message><source>done</source><translation>fertig</translation></message>
<message><source>gone</source><translation type="vanished">weg</translation></message>
<message numerus="yes"><source>%n dog(s)</source><translation type="unfinished">
  <numerusform>old</numerusform>
  <numerusform/>
</translation></message>
<message><source>one\r\ntwo</source></message>
</TS>"""


def test_qt():
    document = read_document("a.ts", QT.encode())
    assert [text.marked.plain for text in document.texts] == ["Open %1", "%n dog(s)", "one\ntwo"]
    assert document.texts[0].flags == {"qt-format"}
    assert document.write([None] * 3).decode() == QT
    outputs = ["\xd6ffnen: %1", "%n Hund(e)", "eins\nzwei"]
    expected = (
        QT.replace(
            '<translation type="unfinished"/>', "<translation>&amp;\xd6ffnen: %1</translation>"
        )
        .replace("old", "%n Hund(e)")
        .replace("<numerusform/>", "<numerusform>%n Hund(e)</numerusform>")
        .replace("two</source>", "two</source><translation>eins\r\nzwei</translation>")
    )
    assert document.write(list(map(TextTranslation, outputs))).decode() == expected
    doubtful = TextTranslation(outputs[0], is_doubtful=True)
    assert document.write([doubtful, None, None]).decode() == QT.replace(
        "/>", ">&amp;\xd6ffnen: %1</translation>", 1
    )
    assert document.write([None] * 3, "pt-BR").decode() == QT.replace("<TS", '<TS language="pt-BR"')
    assert read_document("a.ts", b'<TS sourcelanguage="en" language="de"/>').language == "de"


END = {"a.ts": "</TS>", "a.xlf": "</xliff>"}


@pytest.mark.parametrize(
    ("name", "tag", "attribute"),
    [
        ("a.ts", '<TS version="2.1"{}>', "language"),
        ("a.ts", '<TS{} version="2.1">', "language"),
        ("a.xlf", '<xliff version="2.0"{}>', "trgLang"),
        ("a.xlf", '<xliff version="1.2"><file a="/>"{}/>', "target-language"),
    ],
)
def test_the_first_tag_names_the_language_once(name, tag, attribute):
    plain, empty, french = (
        tag.format(named and f' {attribute}="{named.strip()}"') for named in ("", " ", "fr")
    )
    head = f"<?a {plain}?><!-- {plain} -->\n<!-- {french} -->"
    for own in (plain, empty):
        document = read_document(name, f"{head}{own}{END[name]}".encode())
        assert document.language == ""
        written = document.write([], "de").decode()
        assert read_document(name, written.encode()).language == "de"
        assert written.replace(f' {attribute}="de"', "", 1) == f"{head}{plain}{END[name]}"


@pytest.mark.parametrize(
    "variants",
    [
        "<lengthvariant>{0}</lengthvariant><lengthvariant>{0}</lengthvariant>",
        '<numerusform variants="yes"><lengthvariant>{0}</lengthvariant></numerusform>\n'
        "<numerusform>{0}</numerusform>",
        "<numerusform>{0}</numerusform>\n<numerusform>{0}</numerusform>",
    ],
)
def test_each_variant_of_qt_gets_the_output(variants):
    source = (
        "<TS><message><source>dog</source>"
        '<translation type="unfinished" variants="yes">{}</translation></message></TS>'
    ).format
    document = read_document("a.ts", source(variants.format("")).encode())
    unfinished, expected = ' type="unfinished"', source(variants.format("Hund"))
    written = document.write([TextTranslation("Hund")]).decode()
    assert written.replace(unfinished, "") == expected.replace(unfinished, "")
    assert (unfinished in written) == (variants.count("<numerusform") > 1)


@pytest.mark.parametrize("kind", ["vanished", "obsolete"])
@pytest.mark.parametrize("target", ["weg", "", "\n  <numerusform/>"])
def test_messages_that_are_gone_stay_so(kind, target):
    translation = f'<translation type="{kind}">{target}</translation>'
    source = f"<TS><message><source>gone</source>{translation}</message></TS>"
    document = read_document("a.ts", source.encode())
    assert not document.texts
    assert document.write([]).decode() == source


MRK = '<mrk mtype="seg" mid="{}">{}</mrk>'


@pytest.mark.parametrize(
    ("target", "segments", "written"),
    [
        ("<target> </target>", "", "A B"),
        ("<target>\n  </target>", "", "A B"),
        ("<target><mrk/> </target>", "", "A B"),
        ("<target/>", MRK.format(0, "a b"), MRK.format(0, "A B")),
        (f"<target>{MRK.format(0, '')}</target>", MRK.format(0, "a b"), MRK.format(0, "A B")),
        (
            f"<target>{MRK.format(0, '')} {MRK.format(1, ' ')}</target>",
            f"{MRK.format(0, 'a')} {MRK.format(1, 'b')}",
            f"{MRK.format(0, 'A')} {MRK.format(1, 'B')}",
        ),
        ("", MRK.format(0, "a b"), MRK.format(0, "A B")),
        ("<target>.</target>", "", None),
        ("<target><x/></target>", "", None),
        (f"<target>{MRK.format(0, 'X')}</target>", MRK.format(0, "a b"), None),
    ],
)
def test_a_target_of_white_space_and_empty_segments_is_no_translation(target, segments, written):
    own = f"<seg-source>{segments}</seg-source>" * bool(segments)
    frame = f"<xliff><trans-unit><source>a b</source>{own}{{}}</trans-unit></xliff>"
    source = frame.format(target)
    result = in_capitals(read_document("a.xlf", source.encode())).decode()
    expected = f"<target>{written}</target>" if written else target
    assert re.sub("(<target)[^>]*", r"\1", result) == frame.format(expected)


MIXED = [  # segments of a source; those of its target; what is written
    (["a", "b"], ["Ä", ""], ["Ä", "B"]),
    (["a", "b", "c"], [" ", "Ä", ""], ["A", "Ä", "C"]),
    (["a <x id='1'/> b", "1", "c"], ["", "", "Ä"], ["A <x id='1'/> B", "", "Ä"]),
]


@pytest.mark.parametrize(("sources", "targets", "written"), MIXED)
def test_segments_without_a_translation_are_translated_beside_others(sources, targets, written):
    rows = [
        "".join(MRK.format(number, text) for number, text in enumerate(row))
        for row in (sources, targets, written)
    ]
    frame = f"<xliff><trans-unit><source>a</source><seg-source>{rows[0]}</seg-source>"
    frame += "<target{}>{}</target></trans-unit></xliff>"
    document = read_document("a.xlf", frame.format("", rows[1]).encode())
    assert document.write([None] * len(document.texts)).decode() == frame.format("", rows[1])
    state = ' state="translated" state-qualifier="mt-suggestion"'
    assert in_capitals(document).decode() == frame.format(state, rows[2])
    pairs = [row for row in zip(sources, targets, strict=True) if row[1].strip()]
    assert [pair[:2] for pair in document.pairs] == pairs


def test_a_lacking_segment_stands_behind_the_one_before_it():
    sources, target = "\n ".join(MRK.format(n, "ab"[n % 2]) for n in range(4)), MRK.format(0, "X")
    unit = "<source>x</source><seg-source>{}</seg-source><target>{}</target>"
    content = f"<xliff><trans-unit>{unit}</trans-unit></xliff>".format(sources, target)
    written = in_capitals(read_document("a.xlf", content.encode())).decode()
    assert f"{sources.upper()}<".replace(">A<", ">X<", 1) in f"{written.upper()}<"
    assert read_document("a.xlf", written.encode()).texts == []


@pytest.mark.parametrize("state", [' approved="yes"', ' translate="no"'])
def test_segments_of_a_finished_unit_stay_empty(state):
    rows = MRK.format(0, "a") + MRK.format(1, "b"), MRK.format(0, "A") + MRK.format(1, "")
    unit = "<source>a</source><seg-source>{}</seg-source><target>{}</target>".format(*rows)
    source = f"<xliff><trans-unit{state}>{unit}</trans-unit></xliff>"
    assert not read_document("a.xlf", source.encode()).texts


def test_pairs_of_segments():
    for segments, target in [(MRK.format(0, "a"), MRK.format(0, "b")), (MRK.format(0, "a"), "b")]:
        unit = f"<source>a</source><seg-source>{segments}</seg-source><target>{target}</target>"
        document = read_document(
            "a.xlf", f"<xliff><trans-unit>{unit}</trans-unit></xliff>".encode()
        )
        assert [pair[:2] for pair in document.pairs] == [("a", "b")]


@pytest.mark.parametrize(
    ("sources", "targets", "written", "pairs", "is_named"),
    [
        ({0: "a", 1: "b"}, {0: "X"}, "XB", [("a", "X")], False),
        ({0: "a", 1: "b", 2: "c"}, {0: "X", 2: "Z"}, "XBZ", [("a", "X"), ("c", "Z")], False),
        ({0: "a", 1: "b", 2: "c", 3: "d"}, {0: "X", 1: ""}, "XBCD", [("a", "X")], False),
        ({0: "a", 1: "b", 2: "c", 3: "d"}, {0: "X", 2: "", 1: ""}, "XCDB", [("a", "X")], False),
        ({0: "a", 1: "b", 2: "c", 3: "1"}, {0: "X", 1: ""}, "XB", [("a", "X")], True),
        ({0: "a", 1: "2.0", 2: "c"}, {0: "X"}, "X", [("a", "X")], True),
        ({0: "a", 1: "b"}, {1: "Y"}, "Y", [("b", "Y")], True),
        ({0: "a", 1: "b"}, {0: "X", 2: ""}, "X", [("a", "X")], True),
        ({0: "a"}, {0: "X", 1: "Y"}, "XY", [("a", "X")], False),
        ({0: "a", 1: "b", 2: "c"}, {2: "Z", 1: ""}, "ZB", [("c", "Z")], True),
        ({0: "a", 1: "b", 2: "c"}, {2: "", 0: "X", 1: ""}, "CXB", [("a", "X")], False),
        ({0: "a", 1: "b"}, {1: "Y", 0: "X"}, "YX", None, False),
    ],
)
def test_segments_that_both_sides_have_belong_together(sources, targets, written, pairs, is_named):
    rows = ["".join(MRK.format(*row) for row in side.items()) for side in (sources, targets)]
    unit = f"<source>x</source><seg-source>{rows[0]}</seg-source><target>{rows[1]}</target>"
    content = f"<xliff>\n<trans-unit>{unit}</trans-unit></xliff>"
    document = read_document("a.xlf", content.encode())
    assert document.write([None] * len(document.texts)).decode() == content
    result = in_capitals(document).decode()
    assert "".join(ElementTree.fromstring(result).find(".//target").itertext()) == written
    if pairs is not None:
        assert [pair[:2] for pair in document.pairs] == pairs
    assert [place[:7] for place in document.untranslatable] == ["line 2 "] * is_named


def test_a_term_that_is_marked_is_no_segment():
    term = '<mrk mtype="term">file</mrk>'
    unit = f"<source>Open {term}</source><target>Datei öffnen</target>"
    document = read_document("a.xlf", f"<xliff><trans-unit>{unit}</trans-unit></xliff>".encode())
    assert (document.texts, document.untranslatable, len(document.pairs)) == ([], [], 1)


def test_resx():
    source = """<root><resheader name="version"><value>code</value></resheader>
<data name="a" xml:space="preserve"><value>&amp;Open {0}\r\nnow</value>
<comment>code</comment></data>
<data name="b" type="System.Drawing.Point"><value>code</value></data>
<data name="c" mimetype="application/x"><value>code</value></data>
<data name="&gt;&gt;d.Name"><value>code</value></data>
<data name=">>d.Name"><value>code</value></data>
</root>"""
    document = read_document("a.resx", source.encode())
    assert [text.marked.plain for text in document.texts] == ["Open {0}\nnow"]
    written = document.write([TextTranslation("{0} auf\njetzt")]).decode()
    assert written == source.replace("&amp;Open {0}\r\nnow", "{0} &amp;auf\r\njetzt")


def test_an_empty_target_of_xliff_2():
    segment = "<segment state='initial'><source>a</source><target/></segment>"
    document = read_document("a.xlf", f"<xliff>{segment}</xliff>".encode())
    written = segment.replace(" state='initial'", ' state="translated"')
    written = written.replace("<target/>", "<target>A</target>")
    assert in_capitals(document).decode() == f"<xliff>{written}</xliff>"


REFERENCES = {
    "a.xlf": "<xliff><segment><source>{0}</source><target>{1}</target></segment></xliff>",
    "a.resx": '<root><data name="a"><value>{1}</value></data></root>',
    "a.ts": "<TS><message><source>{0}</source><translation>{1}</translation></message></TS>",
    "a.xml": '<resources><string name="a">{1}</string></resources>',
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("sign", ["&#13;\n", "&#xD;&#xA;", "&#10;", "&#x0d;"])
def test_a_reference_to_a_line_break_stays_one(name, sign):
    text = f"one &amp; two{sign}three"
    source = REFERENCES[name].format(text, "" if "{0}" in REFERENCES[name] else text)
    document = read_document(name, source.encode())
    # Android makes one space of all line breaks.
    space = " " * (name == "a.xml")
    assert document.texts[0].marked.plain == f"one & two{space or chr(10)}three"
    assert document.write([None]).decode() == source
    written = in_capitals(document).decode()
    expected = f">ONE &amp; TWO{space}{sign}THREE<"
    assert expected.split() == re.search(">ONE.*THREE<", written, re.S)[0].split()


@pytest.mark.parametrize("sign", ["&#10;", "&#13;&#10;", "&#xD;\r\n"])
def test_a_reference_to_a_line_break_cuts_no_sentence_of_open_document(sign):
    document = XmlFile(f"<p>One{sign}Two</p>".encode(), SCHEMAS[".odt"])
    assert [text.marked.plain for text in document.texts] == ["One Two"]
    assert in_capitals(document).decode() == f"<p>ONE {sign}TWO</p>"


@pytest.mark.parametrize(
    ("source", "output", "written"),
    [
        (
            'Press <x id="1"/> and close',
            "Drücke {0} und schließe",
            'Drücke <x id="1"/> und schließe',
        ),
        (
            'Press <x id="1"/><x id="2"/> and close',
            "Drücke {0} und schließe",
            'Drücke <x id="1"/><x id="2"/> und schließe',
        ),
        ('As noted<x id="1"/> here', "Wie gesagt hier", 'Wie gesagt<x id="1"/> hier'),
    ],
)
def test_a_tag_of_xliff_has_the_spaces_of_its_source(source, output, written):
    frame = "<xliff><segment><source>{}</source>{}</segment></xliff>"
    document = read_document("a.xlf", frame.format(source, "<target/>").encode())
    (text,) = document.texts
    named, names = name_tags(text.marked)
    words = [[match.span() for match in re.finditer(r"\S+", one)] for one in (named.plain, output)]
    placed = place_tags(named, output, TokenLinks(*words, range(len(words[1]))))
    placed = with_named_tags(placed, names)
    found = re.search("<target>(.*)</target>", document.write([placed]).decode())
    assert found[1] == written
    known = replace(placed, is_known=True)  # what is from a memory stays as it is
    assert f">{known.write()}</target>" in document.write([known]).decode()


ANGULAR = {
    "1.2": (
        '<xliff version="1.2"><file target-language="de"><body>{}</body></file></xliff>',
        '<trans-unit id="{0}"><source>Open</source>{1}{2}</trans-unit>',
        '<note priority="1" from="description">x</note><note priority="1" from="meaning">{}</note>',
    ),
    "2.0": (
        '<xliff version="2.0" trgLang="de"><file>{}</file></xliff>',
        '<unit id="{0}">{2}<segment><source>Open</source>{1}</segment></unit>',
        '<notes><note category="description">x</note><note category="meaning">{}</note></notes>',
    ),
}


@pytest.mark.parametrize("version", ANGULAR)
@pytest.mark.parametrize("asked", ["verb", "state", ""])
def test_a_meaning_of_angular_tells_equal_texts_apart(version, asked):
    file, unit, note = ANGULAR[version]
    rows = [("verb", "<target>Öffnen</target>"), ("state", "<target>Offen</target>"), (asked, "")]
    units = [
        unit.format(number, target, meaning and note.format(meaning))
        for number, (meaning, target) in enumerate(rows)
    ]
    document = read_document("a.xlf", file.format("".join(units)).encode())
    found = Memory(document.pairs).exact("Open", document.texts[0].context)
    assert (found and found.target) == {"verb": "Öffnen", "state": "Offen", "": None}[asked]


@pytest.mark.parametrize(
    ("state", "is_read"),
    [
        ('state="translated"', True),
        ('state="translated" state-qualifier="exact-match"', True),
        ('state="final" state-qualifier="leveraged-mt"', True),
        ('state="translated" state-qualifier="leveraged-mt"', False),
        ('state-qualifier="fuzzy-match"', False),
        ('state="translated" state-qualifier="rejected-grammar"', False),
        ('state="translated" state-qualifier="rejected-length"', False),
        ('state="translated" state-qualifier="leveraged-tm"', False),
    ],
)
@pytest.mark.parametrize("approved", ["", ' approved="yes"'])
def test_what_no_person_has_read_is_no_exact_match(state, is_read, approved):
    unit = f"<trans-unit{approved}><source>Open</source><target {state}>Auf</target></trans-unit>"
    xliff = f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>'
    found = Memory(read_document("a.xlf", xliff.encode()).pairs).exact("Open")
    assert (found is not None) == (is_read or bool(approved))


def test_a_comment_of_qt_tells_equal_texts_apart():
    message = "<message><source>Open</source><comment>{}</comment>{}</message>"
    done = "<translation>Offen</translation>"
    source = f"<TS>{message.format('state', done)}{message.format('verb', '')}</TS>"
    document = read_document("a.ts", source.encode())
    assert Memory(document.pairs).exact("Open").target == "Offen"
    assert Memory(document.pairs).exact("Open", document.texts[0].context) is None


def packed(parts):
    with BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as content:
            for name, text in parts.items():
                kind = zipfile.ZIP_STORED if name == "mimetype" else None
                content.writestr(name, text, kind)
        return file.getvalue()


def parts(content):
    with zipfile.ZipFile(BytesIO(content)) as file:
        return {info.filename: (info.compress_type, file.read(info)) for info in file.infolist()}


def test_xlsx():
    sheet = "xl/worksheets/sheet1.xml"
    shared = (
        "<sst><si><t>a dog_x000D_\nruns</t></si>"
        "<si><r><t>big </t></r><r><rPr><b/></rPr><t>dog</t></r>"
        '<rPh sb="0" eb="1"><t>code</t></rPh></si><si><t>Name &amp; Age</t></si></sst>'
    )
    content = packed(
        {
            "xl/sharedStrings.xml": shared,
            sheet: '<worksheet><c t="str"><f>code</f><v>code</v></c><c t="inlineStr"><is><t>cat</t>'
            "</is></c></worksheet>",
            "xl/tables/table1.xml": '<table name="t"><tableColumn id="1" name="Name &amp; Age"/>'
            "</table>",
        }
    )
    document = read_document("a.xlsx", content)
    assert [text.marked.plain for text in document.texts] == ["a dog\nruns", "big dog", "cat"]
    assert parts(document.write(unchanged(document))) == parts(content)
    written = parts(in_capitals(document))
    space = ' xml:space="preserve"'
    assert written["xl/sharedStrings.xml"][1].decode() == shared.replace(
        "a dog_x000D_\nruns", "A DOG_x000D_\nRUNS"
    ).replace("<t>big ", f"<t{space}>BIG ").replace("<t>dog", f"<t{space}>DOG")
    assert written[sheet][1] == parts(content)[sheet][1].replace(b"cat", b"CAT")


@pytest.mark.parametrize(
    ("sheet", "kept"),
    [
        ('<f>IF(A1="Done",1,&quot;Open&quot;)</f>', {"Done", "Open"}),
        (
            '<f t="shared" ref="A1">COUNTIF(A:A,"&lt;&gt;done")+B1="say ""no"""</f>',
            ["Done", 'Say "no"'],
        ),
        ('<f>SUMIF(A:A,"Op*")</f>', ["Open", "Opera"]),
        ("<f>SUM(A1:A9)</f><f/><v>Done</v>", []),
        (
            '<dataValidation type="list"><formula1>"Open, Done"</formula1></dataValidation>',
            {"Done", "Open"},
        ),
        ('<x14:formula1><xm:f>"Done,Late"</xm:f></x14:formula1>', ["Done"]),
        ('<cfRule type="cellIs"><formula>"Done"</formula></cfRule>', ["Done"]),
        ('<autoFilter><filters><filter val="Done"/></filters></autoFilter>', ["Done"]),
        ('<customFilter operator="notEqual" val="*era"/>', ["Opera"]),
    ],
)
def test_cells_of_xlsx_with_which_the_book_compares_stay_and_are_named(sheet, kept):
    cells = ["Done", "Open", "Opera", 'Say "no"', "Done it"]
    shared = f"<sst>{''.join(f'<si><t>{cell}</t></si>' for cell in cells)}</sst>"
    sheet = f"<worksheet xmlns:x14='x' xmlns:xm='m'>{sheet}</worksheet>"
    content = packed({"xl/sharedStrings.xml": shared, "xl/worksheets/sheet1.xml": sheet})
    document = read_document("a.xlsx", content)
    assert [text.marked.plain for text in document.texts] == [
        cell for cell in cells if cell not in kept
    ]
    assert [name.split('"', 1)[1].rsplit('"', 1)[0] for name in document.untranslatable] == sorted(
        kept
    )


def test_the_head_of_a_column_of_a_pivot_table_stays():
    cache = "<pivotCacheDefinition><cacheField name='Done' numFmtId='0'/></pivotCacheDefinition>"
    shared = "<sst><si><t>Done</t></si><si><t>Open</t></si></sst>"
    content = packed(
        {
            "xl/pivotCache/pivotCacheDefinition1.xml": cache,
            "xl/sharedStrings.xml": shared,
            "xl/worksheets/sheet1.xml": "<worksheet/>",
        }
    )
    assert [text.marked.plain for text in read_document("a.xlsx", content).texts] == ["Open"]


def test_epub():
    page = (
        "<?xml version='1.0' encoding='iso-8859-1'?><html><head><title/><script src='a.js'/></head>"
        "<body><p>A big<a id='page1'/> caf\xe9 <i/>here.</p></body></html>"
    )
    content = packed(
        {"mimetype": "application/epub+zip", "a/one.xhtml": page.encode("latin-1"), "a.opf": "<a/>"}
    )
    document = read_document("a.epub", content)
    assert [text.marked.plain for text in document.texts] == ["A big caf\xe9 here."]
    assert parts(document.write(unchanged(document))) == parts(content)
    written = parts(in_capitals(document))
    assert next(iter(written.items())) == (
        "mimetype",
        (zipfile.ZIP_STORED, b"application/epub+zip"),
    )
    changed = re.sub("A big|caf\xe9|here", lambda part: part[0].upper(), page)
    assert written["a/one.xhtml"][1].decode("latin-1") == changed


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.xml", b"<html/>"), ("a.resx", b"<a/>"), ("a.ts", b"<xliff/>"), ("a.xlf", b"<TS/>")],
)
def test_a_file_of_another_kind_is_refused(name, content):
    with pytest.raises(ValueError, match=rf"{name}.*<(?:html|a|xliff|TS)>"):
        read_document(name, content)


def test_labels_of_contents_in_a_book():
    label = "<navLabel><text>{}</text></navLabel><content src='a.html'/>".format
    author = "<docAuthor><text>Ann Lee</text></docAuthor>"
    frame = (
        "<?xml version='1.0'?><!DOCTYPE ncx PUBLIC '-//NISO//DTD ncx 2005-1//EN' 'ncx.dtd'><ncx>"
        "<head><meta name='a' content='b'/></head><docTitle><text>{}</text></docTitle>"
        f"{author}<navMap><navPoint id='p'>{label('{}')}<navPoint>{label('2')}</navPoint>"
        f"<navPoint>{label(' {} &amp; <i>{}</i> ')}</navPoint></navPoint></navMap></ncx>"
    )
    texts = ["A book", "One", "Two", "three"]
    pages = {"a.html": "<p>x</p>", "O/toc.ncx": frame.format(*texts)}
    document = read_document("a.epub", packed(pages))
    assert [text.marked.plain for text in document.texts] == ["A book", "One", "Two & three", "x"]
    written = parts(in_capitals(document))["O/toc.ncx"][1]
    assert written.decode() == frame.format(*map(str.upper, texts))
