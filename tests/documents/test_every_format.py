"""Every kind of document: nothing changes where no text does, and capitals change texts alone."""

import re
import zipfile
from collections import Counter
from dataclasses import replace
from io import BytesIO
from random import Random

import pytest
from capital_texts import unchanged
from transformers import GenerationConfig

from vanilla_transformer import Translator, VanillaTransformerTokenizer
from vanilla_transformer.documents.formats import FORMATS, read_document
from vanilla_transformer.documents.marked_text import Tag, TextTranslation, split_text
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.translation import translate_document
from vanilla_transformer.inference.engine import Hypothesis
from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.text.token_links import TokenLinks

TWO_LANGUAGES = {".po", ".pot", ".ts", ".xlf", ".xliff"}
PLACEHOLDERS = ["{userName}", "%s", "%1$s"]


class Writer:
    """Writes random documents; with one seed, they differ in the case of their texts alone."""

    def __init__(self, seed, is_translated, placeholders=PLACEHOLDERS):
        self.random, self.is_translated = Random(seed), is_translated
        self.placeholders = placeholders

    def text(self, *others, sep=" "):
        """Some words, and between them other things."""
        parts = []
        for _ in range(self.random.randint(1, 4)):
            word = self.random.choice(["dog", "a cat", "sees it.", "caf\xe9"])
            parts.append(word.upper() if self.is_translated else word)
            if others and self.random.random() < 0.4:
                other = self.random.choice(others)
                parts.append(other if isinstance(other, str) else other())
        return sep.join(parts)

    def message(self, *others):
        return self.text(*self.placeholders, *others)

    def choice(self):
        branches = f"one {{# {self.message()}}} other {{{self.message()}}}"
        return f"{{theCount, plural, {branches}}}"

    def some(self, make, sep="\n"):
        return sep.join(make(number) for number in range(self.random.randint(1, 4)))

    def pick(self, *rows):
        return self.random.choice(rows)

    def some_of(self, kinds):
        return self.some(lambda _: self.pick(*kinds)())

    def pair(self, make):
        """A source, and its translation if there is one already."""
        state, self.is_translated = self.is_translated, False
        seed = self.random.random()
        self.random.seed(seed)
        source = make()
        self.random.seed(seed)
        self.is_translated = state
        target = make()
        return source, target if state else ""


def packed(parts):
    with BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as content:
            content.writestr("mimetype", "application/KEPT", zipfile.ZIP_STORED)
            for name, text in parts.items():
                content.writestr(name, text)
        return file.getvalue()


def lines(w):
    return w.some(lambda _: f"{w.pick('', '  ')}{w.text()}{w.pick('', ' ')}", "\r\n")


def markdown(w):
    def text():
        return w.text("`Code`", lambda: f"**{w.text()}**", lambda: f"[{w.text()}](Url)")

    kinds = [
        lambda: f"# {text()}\n",
        lambda: w.some(lambda _: f"- {text()}") + "\n",
        lambda: f"> {text()}\n",
        lambda: "```\nCode\n```\n",
        lambda: f"| {text()} | {text()} |\n|---|--:|\n| {text()} | 1 |\n",
        lambda: f"{text()}\n",
    ]
    return w.some_of(kinds)


def html(w, empty=">"):
    def text():
        image, code = f'<Img Alt="Xy"{empty}', "<Code>Xy</Code>"
        return w.text("&amp;", image, code, lambda: f"<B Id='Xy'>{w.text()}</B>")

    kinds = [
        lambda: f"<P Class='Xy'>{text()}</P>",
        lambda: f"<!-- Xy --><Ul><Li>{text()}</Li></Ul>",
        lambda: f"<Td>{text()}<Br{empty}{text()}</Td>",
        lambda: "<Script>Xy</Script>",
    ]
    return w.some_of(kinds)


def xhtml(w):
    return f"<Html><Head><Title/><Script/></Head><A Id='Xy'/>{html(w, '/>')}</Html>"


def json(w, note='"Key": null'):
    def text():
        return w.pick(w.choice, lambda: w.message("<b>", "\\\\", '\\"', "\\n"))()

    kinds = [lambda: f'"{text()}"', lambda: f'["{text()}", 1.50]', lambda: f'{{"Key": "{text()}"}}']
    rows = w.some(lambda _: f'  "Key": {w.pick(*kinds)()},')
    return f"{{{rows}\n {note}}}"


def subtitles(w, head="", dot=","):
    def cue(number):
        times = f"00:00:0{number}{dot}000 --> 00:00:0{number}{dot}900"
        return f"{number}\r\n{times}\r\n- <i>{w.text()}</i>\r\n- {w.text()}\r\n\r\n"

    return head + w.some(cue, "")


def po(w):
    def message(number):
        source, target = w.pair(w.message)
        head = f'#: File.c:{number}\n#, c-format\nmsgctxt "Xy{number}"\n'
        return f'{head}msgid "{source}"\nmsgstr "{target}"\n'

    head = 'msgid ""\nmsgstr "Language: de\\n"\n\n'
    return f'{head}{w.some(message)}\n#~ msgid "Old"\n#~ msgstr ""\n'


def xliff(w):
    def unit(number):
        source, target = w.pair(lambda: w.message("&amp;", "<x id='Xy'/>"))
        state = ' state="translated" state-qualifier="mt-suggestion"'
        target = f"<target{state}>{target}</target>" if target else ""
        return f'<trans-unit id="Id{number}"><source>{source}</source>{target}</trans-unit>'

    return f'<xliff><file target-language="de"><!-- Xy -->{w.some(unit)}</file></xliff>'


def qt(w):
    def message(number):
        source, target = w.pair(lambda: w.text("%1", "%n", "&amp;", "&lt;b&gt;"))
        is_plural = w.random.random() < 0.5  # one output does for several forms until it is read
        state, plural = "" if target and not is_plural else ' type="unfinished"', ""
        if is_plural:
            plural, form = ' numerus="yes"', f"\n  <numerusform>{target}</numerusform>"
            target = f"{form}{form}\n"
        location = f'<location filename="File.cpp" line="{number}"/><source>{source}</source>'
        return f"<message{plural}>{location}<translation{state}>{target}</translation></message>"

    messages = w.some(message)
    return f'<!DOCTYPE TS>\n<TS version="2.1" language="de"><context>{messages}</context></TS>\n'


def android(w):
    def text():
        others = ("\\'", '\\"', "\\n", "&amp;", "<xliff:g id='Xy'>Xy</xliff:g>")
        return w.message(*others, lambda: f"<b>{w.text()}</b>")

    kinds = [
        lambda: f'<string name="Xy">\\u0020{text()}</string>',
        lambda: f'<string name="Xy">"{text()}"</string>',
        lambda: '<string name="Xy" translatable="false">xy</string>',
        lambda: '<string name="Xy">@string/Other</string><item name="Xy">xy</item>',
        lambda: f'<plurals name="Xy"><item quantity="one">{text()}</item></plurals>',
        lambda: f'<string-array name="Xy"><item>{text()}</item></string-array>',
    ]
    head = "<?xml version='1.0' encoding='utf-8'?>\n<resources xmlns:xliff='X'>\n"
    return f"{head}{w.some_of(kinds)}\n</resources>\n"


def resx(w):
    def data():
        value = f"{w.message('&lt;b&gt;')}\r\n{w.text()}"
        return f'<data name="Xy">\r\n  <value>{value}</value>\r\n  <comment>xy</comment></data>'

    kinds = [
        data,
        lambda: '<data name="Xy" type="System.Int32"><value>xy</value></data>',
        lambda: '<data name="&gt;&gt;Xy.Name"><value>xy</value></data>',
        lambda: '<resheader name="v"><value>xy</value></resheader>',
    ]
    return f"<root>{w.some_of(kinds)}</root>"


def word(w):
    def paragraph(_):
        texts = [w.text("&amp;"), w.text()]
        first, last = (f'<w:t xml:space="preserve">{text} </w:t></w:r>' for text in texts)
        note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
        return f"<w:p><w:pPr/><w:r><w:rPr><w:b/></w:rPr>{first}<w:r>{last}{note}</w:p>"

    body = f"<w:document xmlns:w='W'>{w.some(paragraph)}</w:document>"
    return {"word/document.xml": body, "word/Other.xml": "<a>xy</a>"}


def slides(w):
    def paragraph(_):
        texts = [w.text(), w.text()]
        first, last = (f"<a:t>{text} </a:t></a:r>" for text in texts)
        return f"<a:p><a:r><a:rPr b='1'/>{first}<a:br/><a:r><a:rPr/>{last}</a:p>"

    slide = f"<p:sld xmlns:a='A' xmlns:p='P'>{w.some(paragraph)}</p:sld>"
    return {"ppt/slides/slide1.xml": slide}


def sheets(w):
    def rich():
        first, last = (f'<t xml:space="preserve">{text} </t></r>' for text in [w.text(), w.text()])
        return f"<si><r><rPr><b/></rPr>{first}<r>{last}</si>"

    kinds = [
        lambda: f"<si><t>{w.text('&amp;')}\n{w.text()}</t><phoneticPr/></si>",
        rich,
        lambda: "<si><t>Header</t></si>",
    ]
    cells = f"<c><is><t>{w.text()}</t></is></c><c><f>Xy</f><v>xy</v></c>"
    return {
        "xl/tables/table1.xml": '<table name="T"><tableColumn id="1" name="Header"/></table>',
        "xl/sharedStrings.xml": f"<sst>{w.some_of(kinds)}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet>{cells}</worksheet>",
    }


def writing(w):
    def paragraph(_):
        span = lambda: f"<text:span>{w.text()}</text:span>"  # noqa: E731
        return f"<text:p>{w.text('<text:tab/>', span)}</text:p>"

    body = f"<office:text xmlns:office='O' xmlns:text='T'>{w.some(paragraph)}</office:text>"
    return {"content.xml": body, "meta.xml": "<a>xy</a>"}


def book(w):
    page = f"<?xml version='1.0'?>{xhtml(w)}"
    return {"OEBPS/One.xhtml": page, "Two.html": xhtml(w), "content.opf": "<a>xy</a>"}


BUILDERS = {
    ".arb": lambda w: json(w, '"@Key": {"Key": "xy", "Keys": ["xy"]}'),
    ".docx": word,
    ".epub": book,
    ".htm": html,
    ".html": html,
    ".json": json,
    ".markdown": markdown,
    ".md": markdown,
    ".odp": writing,
    ".odt": writing,
    ".po": po,
    ".pot": po,
    ".pptx": slides,
    ".resx": resx,
    ".srt": subtitles,
    ".ts": qt,
    ".txt": lines,
    ".vtt": lambda w: subtitles(w, "WEBVTT\n\nNOTE xy\n\n", "."),
    ".xhtml": xhtml,
    ".xlf": xliff,
    ".xliff": xliff,
    ".xlsx": sheets,
    ".xml": android,
}


def build(suffix, seed, is_translated, placeholders=PLACEHOLDERS):
    content = BUILDERS[suffix](Writer(seed, is_translated, placeholders))
    return packed(content) if isinstance(content, dict) else content.encode()


def parts(content):
    """The parts of a zip file; all other content is one."""
    if not content.startswith(b"PK"):
        return content
    with zipfile.ZipFile(BytesIO(content)) as file:
        return [(info.filename, info.compress_type, file.read(info)) for info in file.infolist()]


def capitals(text):
    return re.sub(
        r"\{[^{}]*\}|%\d?\$?[a-z]|[^\W\d_]+",
        lambda part: part[0] if part[0][0] in "{%" else part[0].upper(),
        text,
    )


@pytest.mark.parametrize("suffix", FORMATS)
def test_texts_alone_change(suffix):
    for seed in range(25):
        source = build(suffix, seed, is_translated=False)
        document = read_document(f"a{suffix}", source)
        assert parts(document.write([None] * len(document.texts))) == parts(source)
        if suffix not in TWO_LANGUAGES:
            assert parts(document.write(unchanged(document))) == parts(source)
        outputs = [
            TextTranslation(capitals(marked.plain), marked.tags, marked.edges)
            for marked in (text.marked for text in document.texts)
        ]
        expected = build(suffix, seed, is_translated=True)
        assert parts(document.write(outputs)) == parts(expected)


def reversed_words(random, words):
    """The words in their other order, each with the number of its source."""
    return list(enumerate(words))[::-1]


def mixed_words(random, words):
    """Words and placeholders, of which some are missing, twice there, or in another order."""
    return random.choices(list(enumerate(words)), k=random.randint(0, len(words) + 1))


def translated(marked, random, change):
    """An output with the tags of its source, line by line."""
    sources = [match.span() for match in re.finditer(r"\S+", marked.plain)]
    output, spans, aligned = "", [], []
    for number, line in enumerate(marked.plain.split("\n")):
        output += "\n" * bool(number)
        for word, text in change(random, line.split()):
            spans.append((len(output), len(output) + len(text)))
            aligned.append(min(len(sources) - 1, word))
            output += f"{text} "
    return place_tags(marked, output.strip(" "), TokenLinks(sources, spans, aligned))


@pytest.mark.parametrize("change", [reversed_words, mixed_words])
@pytest.mark.parametrize("suffix", FORMATS)
def test_other_outputs_keep_what_is_no_text(suffix, change):
    for seed in range(15):
        random = Random(seed)
        document = read_document(f"a{suffix}", build(suffix, seed, is_translated=False))
        outputs = [translated(text.marked, random, change) for text in document.texts]
        for before, text in zip(document.texts, outputs, strict=True):
            assert Counter(tag.text for tag in before.marked.tags) == Counter(
                tag.text for tag in text.tags
            )
        written = document.write(outputs, "de")
        again = read_document(f"a{suffix}", written)
        assert again.write([None] * len(again.texts)) == written
        if change is reversed_words and suffix not in TWO_LANGUAGES:
            assert len(again.texts) == len(document.texts)
            for before, text in zip(document.texts, again.texts, strict=True):
                assert sorted(before.marked.plain.split()) == sorted(text.marked.plain.split())


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_damaged_file_is_refused_by_its_name_or_written(suffix):
    for seed in range(60):
        random = Random(seed)
        content = bytearray(build(suffix, seed % 5, is_translated=False))
        begin = random.randrange(len(content))
        end = begin + random.choice([0, 1, 1, 20, len(content)])
        content[begin:end] = random.choice([b"", b"\0", b"\xff", b"<", b'"', b"&", b"{", b"\n"])
        try:
            document = read_document(f"a{suffix}", bytes(content))
        except ValueError as error:
            if str(error).startswith(f"a{suffix}"):
                continue
            raise
        outputs = [
            TextTranslation(capitals(marked.plain), marked.tags, marked.edges)
            for marked in (text.marked for text in document.texts)
        ]
        document.write(outputs, "de")


PLACEHOLDER = re.compile(r"\{[:\w]*\}|~[AS]|%\d?\$?[a-z]|%1")


def reordered(text):
    found = PLACEHOLDER.findall(text)
    return PLACEHOLDER.sub(lambda _: found.pop(), text)


CHANGES = {
    "reverses words": lambda text: " ".join(text.split(" ")[::-1]),
    "drops": lambda text: PLACEHOLDER.sub("", text),
    "doubles": lambda text: PLACEHOLDER.sub(r"\g<0> \g<0>", text),
    "reorders": reordered,
}


class Changing:
    """An engine that changes what it reads."""

    name, batch_tokens = "changing", 1024

    def __init__(self, tokenizer, change):
        self.tokenizer, self.change = tokenizer, change

    def problems(self, search):
        return []

    def generate(self, sources, search, batch_tokens, align=False, on_batch=None):
        rows = []
        for source in sources:
            text = self.change(self.tokenizer.decode(source, skip_special_tokens=True))
            *ids, end = self.tokenizer(text_target=text)["input_ids"]
            last = len(source) - 1
            links = tuple(min(n * len(source) // (len(ids) + 1), last) for n in range(len(ids) + 1))
            rows.append([Hypothesis(tuple(ids), end, links)] * search.n_best)
        return rows


@pytest.fixture(scope="module", params=CHANGES)
def changing(request):
    return translator_with(CHANGES[request.param])


def translator_with(change):
    tokenizer = VanillaTransformerTokenizer.train(["a"], kind="byte_bpe", vocab_size=300)
    settings = GenerationConfig(
        decoder_start_token_id=0, eos_token_id=2, pad_token_id=1, max_length=2000
    )
    engine = Changing(tokenizer, change)
    return Translator(Engines(engine), tokenizer, settings, 1000)


def values(text):
    """The placeholders of printf in a text, each by the number of its value."""
    found = re.findall(r"%(?:(\d)\$)?([sd])", text)
    return sorted((number or str(place), kind) for place, (number, kind) in enumerate(found, 1))


@pytest.mark.parametrize("placeholders", [["{userName}", "%s", "%d"], ["%1$s", "%2$d", "{0}"]])
@pytest.mark.parametrize("suffix", FORMATS)
def test_what_a_model_does_to_placeholders_is_put_right(suffix, placeholders, changing):
    for seed in range(4):
        source = build(suffix, seed, False, placeholders)
        document = read_document(f"a{suffix}", source)
        translated = translate_document(changing, document)
        for text, written in zip(document.texts, translated.written, strict=True):
            if written is not None:
                assert sorted(PLACEHOLDER.findall(re.sub(r"\d\$", "", written.plain))) == sorted(
                    PLACEHOLDER.findall(re.sub(r"\d\$", "", text.marked.plain))
                )
                assert values(written.plain) == values(text.marked.plain)
                tags = [sorted(tag.text for tag in side.tags) for side in (text.marked, written)]
                assert tags[0] == tags[1]
        read_document(f"a{suffix}", translated.content)


@pytest.mark.parametrize(
    "text",
    [
        "The %d files of <a id='%s'>it</a> now",
        "Open <a id='%s'>%d files</a> in %u now",
        "See <a id='%s'>docs</a> and <a id='%s'>forum</a> now",
        "<b id='%s'>Now %d of %u</b>",
        "Copy <x id='%s'/> to <x id='%d'/> now",
        "See <a id='%02d'>docs</a> and <a id='%1d'>forum</a> now",
    ],
)
@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("a.po", '#, c-format\nmsgid "{0}"\nmsgstr "{1}"\n'),
        ("a.json", '["{0}"]'),
        ("a.xml", "<resources><string>{0}</string></resources>"),
        ("a.xlf", "<xliff><segment><source>{0}</source><target>{1}</target></segment></xliff>"),
    ],
)
def test_values_in_tags_stay_in_their_order(changing, name, frame, text):
    def order(part):
        return re.findall(r"%[^a-z]*[sdu]|docs|forum", part)

    document = read_document(name, frame.format(text, "").encode())
    translated = translate_document(changing, document)
    assert translated.written == [None] * len(translated.untranslated) or order(
        translated.content.decode()
    ) == order(frame.format(text, text))


@pytest.mark.parametrize("text", ["Hello %s you", "Go \U0001f600 now", "By {x}: <b>it</b>"])
@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.po"])
def test_a_text_whose_output_has_only_placeholders_stays_and_is_named(name, text):
    frames = {"a.json": '["{}"]', "a.po": 'msgid "{}"\nmsgstr ""'}
    content = frames.get(name, "{}").replace("{}", text).encode()
    translated = translate_document(translator_with(lambda text: ""), read_document(name, content))
    assert (translated.content, len(translated.untranslated)) == (content, 1)


@pytest.mark.parametrize(
    ("text", "output", "is_written"),
    [
        ("1st", "1.", True),
        ("Uh-huh...", "...", True),
        ("Mail address", "eMail", True),
        ("No. %s", "\u2116 %s", True),
        ("%s of %d", "%s / %d", True),
        ("%s of %d.", "%s %d.", False),
        ("(C)", "\xa9", True),
        ("infinity", "\u221e", True),
        ("Hello ~A you", "~A", False),
    ],
)
def test_an_output_may_be_a_sign_where_its_source_has_words(text, output, is_written):
    flag = "lisp" if "~" in text else "c"
    content = f'#, {flag}-format\nmsgid "{text}"\nmsgstr ""\n'
    document = read_document("a.po", content.encode())
    (written,) = translate_document(translator_with(lambda _: output), document).written
    assert (written and written.plain) == (output if is_written else None)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("lisp-format", "Copy ~A to ~S now"),
        ("scheme-format", "~A files of ~S"),
        ("rust-format", "{} files of {:x} now"),
        ("python-brace-format", "Copy {:d} files to {}"),
        ("lua-format", "%q of %s"),
    ],
)
def test_values_without_numbers_stay_in_their_order(changing, flag, text):
    message = f'#, {flag}\nmsgid "{text}"\nmsgstr ""\n'
    (written,) = translate_document(changing, read_document("a.po", message.encode())).written
    orders = [
        re.findall(r"~\w|\{\S*\}|%\w", side) for side in (text, written.plain if written else text)
    ]
    assert orders[0] == orders[1]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.json", "[\"See <a href='/%E4%BD'>docs</a> and <a href='/a%20d%c3'>forum</a> now\"]"),
        ("a.md", "Bring [Wendy](https://x.org/Wendy%27s) to [Max](https://x.org/Max%27s) now\n"),
        (
            "a.html",
            "<p>See <a href='/a%20c'>docs</a> and <a href='/%E2%80%99s%2f'>forum</a> now</p>",
        ),
    ],
)
def test_signs_of_addresses_are_no_values(changing, name, source):
    assert translate_document(changing, read_document(name, source.encode())).untranslated == []


@pytest.mark.parametrize(
    ("flag", "text", "output"),
    [
        ("", "Move ~/a.txt to ~/b.txt", "To ~/b.txt from ~/a.txt"),
        ("c-format", "Copied ~/.bashrc to %s", "To %s copied: ~/.bashrc"),
        ("c-format", "%m of %s", "By %s: %m"),
        ("c-format", "%'*d of %d", "To %3$d of %2$'*1$d"),
        ("php-format", "%'*10s of %d", "%2$d of %1$'*10s"),
        ("java-printf-format", "Size %s%nand %d", "To %2$d%nof %1$s"),
        ("java-printf-format", "%s at %tm", "On %2$tm: %1$s"),
    ],
)
def test_parts_that_are_no_values_have_no_numbers(flag, text, output):
    written = re.sub(r"\d\$", "", output)
    content = f'#, {flag}\nmsgid "{text}"\nmsgstr ""\n'.encode()
    translated = translate_document(
        translator_with(lambda _: written), read_document("a.po", content)
    )
    assert translated.content.decode() == content.decode().replace('""', f'"{output}"')


def test_an_existing_translation_need_not_be_that_of_a_person(changing):
    document = read_document("a.txt", b"Save it\n\nOpen it\n")
    existing = [TextTranslation("Sichern"), TextTranslation("\xd6ffnen", is_doubtful=True)]
    translated = translate_document(changing, document, existing=existing)
    assert translated.content.decode() == "Sichern\n\n\xd6ffnen\n"
    assert translated.written == existing


@pytest.mark.parametrize("name", ["a.json", "a.xml", "a.po"])
def test_lines_without_letters_stay(changing, name):
    lines = ["----- -----", "Show help", "| 1 | 2 |", "==> <==", "{0}: 5"]
    text = "\\n".join(lines)
    frames = {"a.json": '["{}"]', "a.xml": "<resources><string>{}</string></resources>"}
    frame = frames.get(name, '#, fuzzy\nmsgid "{0}"\nmsgstr ""\n')
    text = text if name != "a.xml" else text.replace("<", "&lt;").replace(">", "&gt;")
    document = read_document(name, frame.format(text).encode())
    (output,) = translate_document(changing, document).written
    assert output.plain.split("\n")[2:] == lines[2:]
    assert output.plain.startswith("----- -----\n")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.html", "<p>\ufdd0a <b>dog</b> b\ufdd1c <code>x</code> \ufdd2</p>"),
        ("a.json", '["{n, plural, other {\ufdd0a <b>dog</b> \ufdd2}}"]'),
        ("a.md", "\ufdd1 a *dog* b\ufdd0c"),
        ("a.txt", "\ufdd2 a dog \ufdd0"),
        ("a.xml", "<resources><string>a \ufdd2 <b>dog</b> \ufdd1</string></resources>"),
    ],
)
def test_characters_that_no_text_has_stay(name, source):
    document = read_document(name, source.encode())
    outputs = [
        replace(text, plain=text.plain.replace("dog", "cat")) for text in unchanged(document)
    ]
    assert document.write(outputs).decode() == source.replace("dog", "cat")


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("%<total>d of %<x>.2f", []),
        ("%<PRIu64> bytes", []),
        ("50%<b>off</b>, 5 %<br>", ["<b>", "</b>"]),
        ("%<total> of it", ["<total>"]),
    ],
)
def test_a_name_of_a_placeholder_is_no_tag(text, tags):
    assert [item.text for item in split_text(text) if isinstance(item, Tag)] == tags
