"""Documents: their texts, and what stays around translated ones."""

import re
import zipfile
from collections import Counter
from dataclasses import replace
from io import BytesIO
from random import Random
from xml.etree import ElementTree

import pytest
from capital_texts import in_capitals, unchanged

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.text.token_links import TokenLinks

SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>A dog runs\r\nand sleeps now.</i>\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000\r\n- Who?\r\n- A <b>big</b> dog.\r\n\r\n"
    "3\r\n00:00:05,000 --> 00:00:06,000\r\n{\\an8}12 + 3\r\n"
)
VTT = (
    "WEBVTT\n\nNOTE this stays\n\nname\n00:01.000 --> 00:02.000 align:left\n"
    "<v Ann>you &amp; <00:01.500>me</v>\n"
)
JSON = """{
  "title": "Say \\"hi\\" to <b>{{name}}</b>",\t"title": ["a", {"b": "c\\u00e9"}],
  "n": [1, 2.50, true, null, "12", ""]
}
"""
XLIFF_1 = """<?xml version='1.0' encoding="utf-8"?>
<xliff version="1.2"><file original="a>b"><body>
  <trans-unit id="1">
    <source>Say <g id="1">hi &amp; &quot;bye&quot;</g><x id="2"/> now</source>
  </trans-unit>
  <trans-unit id="2"><source>done</source><target>fertig</target></trans-unit>
  <trans-unit id="3" approved="yes"><source>none</source><target/></trans-unit>
  <trans-unit id="4" translate="no"><source>code</source></trans-unit>
  <trans-unit id="5"><source><bpt id="1">&lt;b></bpt>old<ept id="1">&lt;/b></ept> text</source>
    <target xml:lang="de" state="needs-translation">x</target>
    <alt-trans><source>other</source><target>andere</target></alt-trans></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="u">
<segment state="initial"><source>A <pc id="1">dog</pc> <ph id="2"/>runs</source></segment>
<ignorable><source>not this</source></ignorable>
<segment state="final"><source>old</source><target>alt</target></segment>
</unit></file></xliff>
"""
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def packed(**members):
    """A zip file: members by their names, where `__` stands for `/` and `_` for `.`."""
    with BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as content:
            content.writestr("mimetype", "stays", zipfile.ZIP_STORED)
            for name, text in members.items():
                content.writestr(name.replace("__", "/").replace("_", "."), text)
            content.writestr("media/image.png", bytes(range(256)))
        return file.getvalue()


def docx(body, **members):
    document = (
        f'<?xml version="1.0"?>\r\n<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    )
    return packed(word__document_xml=document, **members)


def members(content):
    with zipfile.ZipFile(BytesIO(content)) as file:
        return [(info.filename, info.compress_type, file.read(info)) for info in file.infolist()]


def member(content, name="word/document.xml"):
    text = next(data for path, _, data in members(content) if path == name).decode()
    ElementTree.fromstring(text)  # it is well-formed
    return text


def run(text, properties=""):
    return f"<w:r>{properties}<w:t>{text}</w:t></w:r>"


def written_run(text, properties=""):
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


BOLD, FOOTNOTE = "<w:rPr><w:b/></w:rPr>", '<w:r><w:footnoteReference w:id="2"/></w:r>'


@pytest.mark.parametrize(
    ("name", "content", "changes"),
    [
        (
            "a.srt",
            SRT,
            {
                "A dog runs\r\nand sleeps now.": "A DOG RUNS\r\nAND SLEEPS NOW.",
                "Who?": "WHO?",
                "A <b>big</b> dog.": "A <b>BIG</b> DOG.",
            },
        ),
        ("a.vtt", VTT, {"you &amp; <00:01.500>me": "YOU &amp; <00:01.500>ME"}),
        (
            "a.json",
            JSON,
            {
                '"Say \\"hi\\" to <b>{{name}}</b>"': '"SAY \\"HI\\" TO <b>{{NAME}}</b>"',
                '["a"': '["A"',
                '"c\\u00e9"': '"C\\u00c9"',
            },
        ),
        (
            "a.txt",
            "\ufeffA line\r\n\r\n  and\u2028one\n",
            {"A line": "A LINE", "and": "AND", "one": "ONE"},
        ),
        ("a.htm", "<p>A <b>dog</b>\n<p>x", {"A <": "A <", "dog": "DOG", ">x": ">X"}),
        (
            "a.xlf",
            XLIFF_1,
            {
                "now</source>": 'now</source>\n    <target state="translated" '
                'state-qualifier="mt-suggestion">SAY <g id="1">HI &amp; "BYE"</g>'
                '<x id="2"/> NOW</target>',
                'state="needs-translation">x': 'state="translated" state-qualifier="mt-suggestion">'
                '<bpt id="1">&lt;b></bpt>OLD<ept id="1">&lt;/b></ept> TEXT',
            },
        ),
        (
            "a.XLIFF",
            XLIFF_2,
            {
                '<segment state="initial">': '<segment state="translated">',
                "runs</source>": 'runs</source><target>A <pc id="1">DOG</pc> <ph id="2"/>RUNS'
                "</target>",
            },
        ),
    ],
)
def test_only_texts_change(name, content, changes):
    written = in_capitals(read_document(name, content.encode())).decode()
    for old, new in changes.items():
        content = content.replace(old, new, 1)
    assert written == content


@pytest.mark.parametrize(
    ("lines", "output", "expected"),
    [
        ("A dog\nruns and runs and runs", "Ein Hund rennt weit", "Ein\nHund rennt weit"),
        ("one two\nthree four", "eins", "eins"),
        ("one two\nthree four", "\u72ac\u8d70\u4e86\u8def", "\u72ac\u8d70\n\u4e86\u8def"),
        ("\u72ac\n\u8d70", "a dog", "a\ndog"),
    ],
)
def test_a_cue_has_as_many_lines_as_before_in_the_same_shares(lines, output, expected):
    head = "00:00:01,000 --> 00:00:02,500\n"
    document = read_document("a.srt", f"{head}{lines}\n".encode())
    assert document.write([TextTranslation(output)]).decode() == f"{head}{expected}\n"


TIMES = ["00:00:01,000 --> 00:00:02,500", "00:00:03,000 --> 00:00:04,000"]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["1", TIMES[0], "a", "2", TIMES[1], "b"], ["a", "b"]),
        (["1", TIMES[0], "a --> b", "c", "", "2", TIMES[1], "b"], ["a --> b c", "b"]),
        (
            ["1", TIMES[0], "a", "", "more", "", "2", TIMES[1], "b", " ", "x"],
            ["a", "more", "b", "x"],
        ),
        (["1", TIMES[0], "a", TIMES[1], "b"], ["a", "b"]),
        (["1", TIMES[0], "", "2", TIMES[1], "1986", "a"], ["1986 a"]),
        (["a", "b"], []),
    ],
)
def test_cues_end_where_the_next_one_begins(lines, texts, line_break):
    source = line_break.join(lines)
    document = read_document("a.srt", source.encode())
    assert [text.marked.plain for text in document.texts] == texts
    assert document.write(unchanged(document)).decode() == source
    expected = source.upper() if texts else source
    assert in_capitals(document).decode() == expected


@pytest.mark.parametrize("written", ["&lt;br&gt;", "&lt;BR/&gt;", "<br>", "&lt;b&gt;"])
def test_a_tag_of_webvtt_that_is_text_stays_text(written):
    source = f"WEBVTT\n\n00:01.000 --> 00:02.000\nwrite {written} there\n"
    document = read_document("a.vtt", source.encode())
    outputs = [replace(text, plain=text.plain.replace("w", "W")) for text in unchanged(document)]
    assert document.write(outputs).decode() == source.replace("w", "W")


def test_notes_and_names_of_webvtt_stay():
    source = f"WEBVTT\n\n{TIMES[0]}\na\n\nNOTE b\n\nc\n{TIMES[1]}\nd\n".replace(",", ".")
    assert [text.marked.plain for text in read_document("a.vtt", source.encode()).texts] == [
        "a",
        "d",
    ]


@pytest.mark.parametrize(
    ("name", "frame"),
    [("a.vtt", f"{TIMES[0]}\n{{}}"), ("a.json", '["{}"]'), ("a.srt", f"1\n{TIMES[0]}\n{{}}")],
)
@pytest.mark.parametrize("tag", ["<img alt='A -> B'>", "<b x='<y>'>", "<a href='a>b' c>"])
def test_tags_with_brackets_in_their_attributes(name, frame, tag):
    source = frame.format(f"see {tag} now")
    document = read_document(name, source.encode())
    assert in_capitals(document).decode() == frame.format(f"SEE {tag} NOW")


def test_notes_of_arb_stay():
    source = (
        '{"@@locale": "en", "a": "text", "@a": {"description": "b", "c": {"d": "e"}}, "f": "g"}'
    )
    assert in_capitals(read_document("a.arb", source.encode())).decode() == source.replace(
        '"text"', '"TEXT"'
    ).replace('"g"', '"G"')


@pytest.mark.parametrize(
    ("charset", "source", "written"),
    [
        ("ISO-8859-1", b"<p>a</p>", b"<p>&#233; &#8364;</p>"),
        ("iso-8859-1", b"<p>caf\xe9</p>", b"<p>\xe9 &#8364;</p>"),
        ("UTF-8", b"<p>a</p>", "<p>\xe9 \u20ac</p>".encode()),
        ("utf-8", "<p>\xe9a</p>".encode(), "<p>\xe9 \u20ac</p>".encode()),
    ],
)
def test_html_is_written_as_it_says_that_it_is(charset, source, written):
    head = f'<meta charset="{charset}">'.encode()
    document = read_document("a.xhtml", head + source)
    assert document.write(unchanged(document)) == head + source
    assert document.write([TextTranslation("\xe9 \u20ac")]) == head + written


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.html", '<meta charset="iso-8859-1"><p>Stra\xdfe'),
        ("a.xhtml", "<?xml version='1.0' encoding='latin-1'?><p>Stra\xdfe</p>"),
        ("a.htm", "<?xml version='1.0' encoding='cp1252'?><p>Stra\xdfe"),
    ],
)
def test_a_byte_order_mark_counts_more_than_a_declaration(name, source):
    document = read_document(name, f"\ufeff{source}".encode())
    assert [text.marked.plain for text in document.texts] == ["Stra\xdfe"]
    written = document.write([TextTranslation("\u20ac")])
    assert written == f"\ufeff{source}".replace("Stra\xdfe", "\u20ac").encode()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_xliff_in_utf_16(encoding):
    source = f"\ufeff{XLIFF_2}".replace(
        "<xliff", '<?xml version="1.0" encoding="UTF-16"?><xliff', 1
    )
    document = read_document("a.xlf", source.encode(encoding))
    written = in_capitals(document).decode(encoding)
    assert "<target>A <pc" in written
    assert written.replace("<target>", "").startswith("\ufeff<?xml")


def test_the_language_of_a_target_is_set_where_it_is_missing():
    for source, language in ((XLIFF_1, ""), (XLIFF_2, "de"), (SRT, "")):
        name = "a.srt" if source is SRT else "a.xlf"
        document = read_document(name, source.encode())
        assert document.language == language
        written = document.write([None] * len(document.texts), "fr").decode()
        expected = (
            source.replace("<file", '<file target-language="fr"') if source is XLIFF_1 else source
        )
        assert written == expected
    without = XLIFF_2.replace(' trgLang="de"', "")
    document = read_document("a.xlf", without.encode())
    written = document.write([None] * len(document.texts), "fr").decode()
    assert written == without.replace("<xliff", '<xliff trgLang="fr"')


BEGIN = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> {} </w:instrText></w:r>'
LINK = f'{BEGIN}<w:r><w:fldChar w:fldCharType="separate"/></w:r>{{}}'
LINK += '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
BOX = "<w:r><w:drawing><w:txbxContent><w:p>{}</w:p></w:txbxContent></w:drawing></w:r>"
SDT = "<w:sdt><w:sdtPr><w:tag/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"


@pytest.mark.parametrize(
    ("paragraph", "texts", "expected"),
    [
        (  # two runs inside one word, one run in two parts
            f"<w:pPr/>{run('A d', BOLD)}<w:proofErr/>{run('og &amp; ')}{run('cat', '')}",
            ["A dog & cat"],
            f"<w:pPr/>{written_run('A D', BOLD)}<w:proofErr/>{written_run('OG &amp; CAT')}",
        ),
        (
            run("much more", BOLD) + run("", BOLD) + FOOTNOTE + run(" or a"),
            ["much more or a"],
            written_run("MUCH MORE", BOLD) + FOOTNOTE + written_run(" OR A"),
        ),
        (
            run("a") + run(" lot", BOLD) + run("", "<w:rPr/>") + FOOTNOTE + run(" x"),
            ["a lot x"],
            written_run("A") + written_run(" LOT", BOLD) + FOOTNOTE + written_run(" X"),
        ),
        (  # codes around the text stay around it
            f'<w:bookmarkStart/><w:hyperlink r="1">{run("all of it")}</w:hyperlink>{FOOTNOTE}',
            ["all of it"],
            f'<w:bookmarkStart/><w:hyperlink r="1">{written_run("ALL OF IT")}</w:hyperlink>'
            f"{FOOTNOTE}",
        ),
        (
            f"{run('see ')}<w:hyperlink>{run('here', BOLD)}</w:hyperlink>{FOOTNOTE}{run(' now')}",
            ["see here now"],
            f"{written_run('SEE ')}<w:hyperlink>{written_run('HERE', BOLD)}</w:hyperlink>{FOOTNOTE}"
            f"{written_run(' NOW')}",
        ),
        (
            "<w:r><w:t>one</w:t><w:br/><w:t>two</w:t><w:tab/><w:t>x</w:t></w:r>",
            ["one\ntwo\nx"],
            f"{written_run('ONE')}<w:r><w:br/></w:r>{written_run('TWO')}<w:r><w:tab/></w:r>"
            f"{written_run('X')}",
        ),
        (
            run("on ") + LINK.format("PAGE", run("3")) + run(" of ") + SDT.format(run("many")),
            ["on 3 of many"],
            written_run("ON ")
            + LINK.format("PAGE", written_run("3"))
            + written_run(" OF ")
            + SDT.format(written_run("MANY")),
        ),
        (
            run("go ") + LINK.format("HYPERLINK x", run("there")) + run(" now"),
            ["go there now"],
            written_run("GO ")
            + LINK.format("HYPERLINK x", written_run("THERE"))
            + written_run(" NOW"),
        ),
        (  # the end of this field is in another paragraph
            BEGIN.format("TOC") + run("x") + run("1"),
            ["x1"],
            BEGIN.format("TOC") + written_run("X1"),
        ),
        (  # a paragraph within another one
            run("out") + BOX.format(run("in")) + run(" side"),
            ["in", "out side"],
            written_run("OUT") + BOX.format(written_run("IN")) + written_run(" SIDE"),
        ),
        (BOX.format(run("in")) + run("12"), ["in"], BOX.format(written_run("IN")) + run("12")),
        (f"{run('a')}<w:del><w:r><w:delText>b</w:delText></w:r></w:del>", ["a"], None),
        (  # characters that are elements
            "<w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>mails in wood</w:t><w:softHyphen/>"
            "<w:t>land</w:t></w:r>",
            ["e-mails in woodland"],
            written_run("E-MAILS IN WOODLAND"),
        ),
        (run("12.5 %"), [], run("12.5 %")),
        ("", [], ""),
    ],
)
def test_paragraphs_of_docx(paragraph, texts, expected):
    content = docx(f'<w:p w:rsidR="1">{paragraph}</w:p><w:sectPr/>')
    document = read_document("a.docx", content)
    assert [text.marked.plain for text in document.texts] == texts
    assert members(document.write(unchanged(document))) == members(content)
    written = in_capitals(document)
    assert [each[:2] for each in members(written)] == [each[:2] for each in members(content)]
    assert members(written)[0] == members(content)[0]
    assert members(written)[-1] == members(content)[-1]
    if expected is not None:
        assert member(written) == member(content).replace(paragraph or "\0", expected)


def random_content(random, depth=0):
    """Runs, codes, links, controls, fields and text boxes, within each other."""
    parts = []
    for _ in range(random.randint(0, 4)):
        text = " ".join(random.choices(["a", "dog", "sees &amp;", "cat."], k=random.randint(0, 3)))
        kinds = [run(text, random.choice(["", BOLD, "<w:rPr><w:i/></w:rPr>"])), FOOTNOTE]
        kinds += ["<w:bookmarkStart/>", "<w:r><w:t>one</w:t><w:br/><w:t>two</w:t><w:tab/></w:r>"]
        if depth < 3:
            inner = random_content(random, depth + 1)
            kinds += [f"<w:hyperlink>{inner}</w:hyperlink>", SDT.format(inner)]
            kinds += [LINK.format("PAGE", inner), BOX.format(inner)]
        parts.append(random.choice(kinds))
    return "".join(parts)


def counts(xml):
    """How often there is each element but those that runs are made of."""
    names = Counter(element.tag.split("}")[1] for element in ElementTree.fromstring(xml).iter())
    return {name: count for name, count in names.items() if name not in ["r", "t", "rPr", "b", "i"]}


def test_codes_of_random_documents_are_neither_lost_nor_doubled():
    random = Random(0)
    for _ in range(300):
        content = docx(f"<w:p><w:pPr/>{random_content(random)}</w:p>")
        document = read_document("a.docx", content)
        assert member(document.write(unchanged(document))) == member(content)
        outputs = []
        for text in document.texts:
            lines = [" ".join(random.choices("xyz", k=3)) for _ in text.marked.plain.split("\n")]
            output = "\n".join(lines)
            sides = [
                [m.span() for m in re.finditer(r"\S+", side)]
                for side in (text.marked.plain, output)
            ]
            aligned = random.choices(range(len(sides[0])), k=len(sides[1]))
            outputs.append(place_tags(text.marked, output, TokenLinks(*sides, aligned)))
        written = member(document.write(outputs))
        assert counts(written) == counts(member(content))
        ends = "".join(re.findall(r'fldCharType="([be])', written))
        while "be" in ends:
            ends = ends.replace("be", "")
        assert not ends


def test_tags_of_runs_are_pairs():
    content = docx(f"<w:p>{run('a ')}{run('big', BOLD)}{run(' dog runs')}</w:p>")
    document = read_document("a.docx", content)
    ((first, second),) = [text.marked.tags for text in document.texts]
    assert (first.position, first.kind) == (2, "begin")
    assert (second.position, second.kind) == (5, "end")
    moved = replace(first, position=9), replace(second, position=14)
    written = member(document.write([TextTranslation("rennt ein gro\xdfer Hund", moved)]))
    assert re.findall(r"<w:t[^>]*>([^<]*)", written) == ["rennt ein", " gro\xdf", "er Hund"]
    assert re.findall(r"<w:b/></w:rPr><w:t[^>]*>([^<]*)", written) == [" gro\xdf"]


def test_other_members_of_docx_and_300_paragraphs():
    paragraphs = [f"<w:p>{run(f'dog {number}')}</w:p>" for number in range(300)]
    content = docx(
        "".join(paragraphs),
        word__header1_xml=f'<w:hdr xmlns:w="{W}"><w:p>{run("head")}</w:p></w:hdr>',
        word__settings_xml=f'<w:p xmlns:w="{W}">{run("stays")}</w:p>',
    )
    written = in_capitals(read_document("a.docx", content))
    assert re.findall(r">([^<]+)</w:t>", member(written)) == [f"DOG {n}" for n in range(300)]
    assert ">HEAD<" in member(written, "word/header1.xml")
    assert ">stays<" in member(written, "word/settings.xml")


def test_odt_and_pptx():
    note = "<text:note><text:note-citation>1</text:note-citation><text:p>note</text:p></text:note>"
    odt = (
        '<office:text xmlns:office="o" xmlns:text="t"><text:tracked-changes><text:p>gone</text:p>'
        "</text:tracked-changes><text:h>head</text:h><text:p>a <text:span>big\n  dog</text:span>"
        f"{note}<text:line-break/>runs \u20ac<text:page-number>3</text:page-number>.</text:p>"
        "</office:text>"
    )
    content = packed(content_xml=odt, meta_xml="<text:p>meta</text:p>")
    document = read_document("a.odt", content)
    assert [text.marked.plain for text in document.texts] == [
        "head",
        "note",
        "a big   dog\nruns \u20ac.",
    ]
    assert members(document.write(unchanged(document))) == members(content)
    for word in ("head", "note", "runs"):
        odt = odt.replace(f"{word}<", f"{word.upper()}<").replace("runs ", "RUNS ")
    odt = odt.replace("a <text:span>big\n  dog", "A <text:span>BIG   DOG")
    assert member(in_capitals(document), "content.xml") == odt
    slide = (
        '<p:sld xmlns:p="p" xmlns:a="a"><a:p><a:pPr/><a:r><a:rPr lang="en" err="1"/><a:t>a\tdo'
        '</a:t></a:r><a:r><a:rPr lang="en" err="1"/><a:t>g</a:t></a:r><a:br><a:rPr/></a:br>'
        '<a:r><a:rPr b="1"/><a:t>on</a:t></a:r><a:fld><a:rPr/><a:t>7</a:t></a:fld>'
        "<a:endParaRPr/></a:p></p:sld>"
    )
    content = packed(ppt__slides__slide1_xml=slide)
    document = read_document("a.pptx", content)
    assert [text.marked.plain for text in document.texts] == ["a\ndog\non"]
    assert member(in_capitals(document), "ppt/slides/slide1.xml") == (
        '<p:sld xmlns:p="p" xmlns:a="a"><a:p><a:pPr/><a:r><a:rPr lang="en" err="1"/><a:t>A</a:t>'
        '</a:r><a:r><a:rPr lang="en" err="1"/><a:t>\t</a:t></a:r><a:r><a:rPr lang="en" err="1"/>'
        "<a:t>DOG</a:t>"
        '</a:r><a:br><a:rPr/></a:br><a:r><a:rPr b="1"/><a:t>ON</a:t></a:r><a:fld><a:rPr/><a:t>7'
        "</a:t></a:fld><a:endParaRPr/></a:p></p:sld>"
    )


def test_codes_that_cross_elements_are_no_pair():
    unit = "<g id='1'>a<bpt id='1'/>b</g> c<ept id='1'/> d"
    content = f"<xliff><trans-unit><source>x {unit}</source></trans-unit></xliff>"
    (text,) = read_document("a.xlf", content.encode()).texts
    assert [tag.kind for tag in text.marked.tags] == ["begin", "empty", "end", "empty"]


def test_tags_that_xliff_holds_as_text():
    source = "<source>a &lt;b>big&lt;/b> dog<![CDATA[<hr>&]]></source>"
    document = read_document("a.xlf", f"<xliff><trans-unit>{source}</trans-unit></xliff>".encode())
    (text,) = document.texts
    assert (text.marked.plain, [tag.kind for tag in text.marked.tags]) == (
        "a big dog&",
        ["begin", "end", "empty"],
    )
    target = "A &lt;b&gt;BIG&lt;/b&gt; DOG&lt;hr&gt;&amp;</target>"
    assert target in in_capitals(document).decode()


def test_characters_of_the_declared_encoding():
    source = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<xliff><trans-unit><source>{}</source>{}'
    source += "</trans-unit></xliff>"
    document = read_document("a.xlf", source.format("caf\xe9", "").encode("latin-1"))
    written = document.write([TextTranslation("\xe9 \u20ac")])
    assert "<source>caf\xe9</source>" in written.decode("latin-1")
    assert written.endswith(b">\xe9 &#8364;</target></trans-unit></xliff>")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.txt", b"a\nb \xff\n", "line 2"),
        ("a.json", b'{"a":\n 1', "line 2"),
        ("a.json", b"[" * 9000, ""),
        ("a.po", b'msgid "a"\nnonsense\n', "line 2"),
        ("a.xlf", b"<a>\n<b></a>", "line 2"),
        ("a.docx", b"PK no zip", "zip"),
        ("a.docx", packed(content_xml="<a/>"), "zip"),
        ("a.docx", packed(word__document_xml="<a>"), "word/document.xml: .*line 1"),
        (
            "a.docx",
            docx("").replace(b"word/document.xml", b"word/documents.xm"),
            "word/document",
        ),
        ("a.pptx", packed(ppt__notesSlides__a_xml="<a/>"), "ppt/slides"),
        ("a.json", b'{"a":\n "\\ud800"}', "line 2"),
        ("a.xlf", b"<?xml version='1.0' encoding='klingon'?>\n<a/>", "line 1.*klingon"),
        ("a.html", b"<html>\n<meta charset=klingon>", "line 2.*klingon"),
        ("a.html", "<p>a</p>".encode("utf-16-le"), "zeros"),
        ("a.xhtml", "<p>a</p>".encode("utf-16-be"), "zeros"),
        ("a.epub", packed(a_html="<p>a</p>".encode("utf-16-le")), "a.html: .*zeros"),
        ("a.md", "a".encode("utf-16-le"), "zeros"),
        ("a.srt", b"1\n00:00:01,000 -> 00:00:02,000\nFoo\n", "'00:00:01.*02,000' are no times"),
        ("a.vtt", b"WEBVTT\n\n00:01.000 - 00:02.000\nFoo\n", "no times"),
        ("a.exe", b"", ".docx"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(name, content, place):
    with pytest.raises(ValueError, match=rf"{re.escape(name)}.*{place}"):
        read_document(name, content)


@pytest.mark.parametrize(
    ("name", "content", "written"),
    [
        ("a.html", b"<p><b>Foo</b></p>", b"<p>Foo</p>"),
        ("a.json", b'{"d":"<b>Foo</b>"}', b'{"d":"Foo"}'),
    ],
)
def test_a_stored_translation_without_the_tags_around_the_text_is_written(name, content, written):
    document = read_document(name, content)
    assert document.write([TextTranslation("Foo", is_known=True)]) == written
    assert document.write([None]) == content
