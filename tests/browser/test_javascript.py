"""The tables of patterns as a script: a browser finds the parts that Python finds."""

import pytest
import regex
from sites import served

from vanilla_transformer.browser.javascript import script, to_javascript
from vanilla_transformer.text.edits import apply_edits
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.lines import Line, split_lines
from vanilla_transformer.text.patterns import PATTERNS
from vanilla_transformer.text.percent_signs import edits_to_add_percents, edits_to_double_percents
from vanilla_transformer.text.readings import Reading, edits_to_unify_spaces
from vanilla_transformer.text.restoring import edits_to_restore
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.web import FOLDER

pytest_plugins = ["browsers"]
TEXTS = [text for row in PATTERNS for text in (row.examples, row.lookalikes)]
TEXTS += [
    "文件%s无法保存 100% %d%% of %1$s, %2$s",
    "Run --FORCE with -f, or OPTION --x; see /etc/hosts and C:\\Users\\x.",
    "Mail me@example.org 👩‍💻 &copy; &amp; &eacute; #ff8800 20 millions $US $name",
    "%1 and %2; $1 and $2; %50; {0} {{ x | upper }} <ph1> ${a} '{'",
]
DAMAGED = [
    ("The file %s is %d bytes", "Datei hat Bytes"),
    ("The file %s is %d bytes", "Datei %s hat %s %d Bytes"),
    ("See https://example.org/a for %(name)s", "Siehe https: //example. org/a für %(Name)s"),
    ("Use --force on /etc/hosts", "Verwende - - forc auf /etc/host"),
    ("Save &copy; and &amp; now", "Speichere © und jetzt"),
    ("{a} and {b} and {a}", "{b} und"),
    ("'%s' is not %1", "'' ist kein %1 %2"),
    ("%s", ""),
    ("a%db", "x"),
    ("lineWidth of setup.py 😊", "Breite von"),
    ("50% of %1, 1.5% of 3, 7 and 7%", "%1 の 50 が 1,5 3 7 7"),
    ("20% of %s 😊", "20%s"),
    ("Save 20%, 5% or 3% of %s", "20 Prozent, 5 v. H., 3\uff05オフ %s"),
    ("Delete %s", "%% %s löschen"),
    ("%s of it", "%s %% davon, 5 %%"),
    ("Move ~/a.txt to ~/b.txt now", "~/b.txt von ~/a.txt"),
    ("Copied ~/.bashrc to %s", "Nach %s kopiert: ~/.bashrc"),
    ("Open {nameOfFile} now", "Jetzt { name of file }} öffnen"),
    ("Open ${nameOfFile} now", "Jetzt ${name of file} öffnen"),
]


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "kept.js").write_text((FOLDER / "kept.js").read_text(encoding="utf-8"))
    (folder / "patterns.js").write_text(script(), encoding="utf-8")
    (folder / "index.html").write_text("")
    with served(folder) as server:
        page = chromium.new_page()
        page.goto(server.address)
        page.evaluate("async () => { window.kept = await import('/kept.js'); }")
        yield page
        page.close()


def in_units(text, span):
    """A span of characters as JavaScript counts them."""
    return [len(text[:place].encode("utf-16-le")) // 2 for place in span]


def test_a_browser_finds_the_same_parts(page):
    cut = [text[n:] for text in TEXTS for n in range(0, len(text), 3)]
    texts = [*TEXTS, *cut, *(f"x{text}y" for text in TEXTS), " ".join(TEXTS)]
    found = page.evaluate(
        "(texts) => texts.map((text) => kept.keptSpans(text).map(([b, e]) => [b, e]))", texts
    )
    for text, spans in zip(texts, found, strict=True):
        assert spans == [in_units(text, span) for span in kept_spans(text)], text


def test_a_browser_puts_parts_back_as_python_does(page):
    rows = [pair for source, output in DAMAGED for pair in ((source, output), (source, source))]
    for source, output in rows:
        words = [[m.span() for m in regex.finditer(r"\S+", text)] for text in (source, output)]
        count = len(words[0]) - 1
        sources = [words[0][min(n, count)] for n in range(len(words[1]))]
        spans = kept_spans(source)
        copies = Copies.find(source, spans, output)
        links = TokenLinks(sources, words[1], range(len(words[1])))
        edits = [] if copies.are_right else edits_to_restore(copies, links)
        written = apply_edits(output, edits)
        parts = Copies.find(source, spans, written).in_output
        written = apply_edits(written, edits_to_add_percents(source, spans, written, parts))
        pairs = [
            {"source": in_units(source, one), "target": in_units(output, other)}
            for one, other in zip(sources, words[1], strict=True)
        ]
        found = page.evaluate(
            """([line, output, links]) => kept.keep(
                { line, spans: kept.keptSpans(line), spaces: [] }, output, () => links)""",
            [source, output, pairs],
        )
        stays = found["untranslated"] and "~/" not in source
        assert stays or found["text"] == written, (source, output)


SPACED = [
    "Open  the\u00a0file",
    "Save\u2003 all\tof   it",
    "Open\u200bthe fi\u00adle\u2060s",
    "\u6253\u5f00\u200b\u6587\u4ef6 \u3000 now",
    "One,  two: \u00a0three",
    "\u00a0at  the end\u200b",
    "caf\u00e9\u00a0\U0001f60a  x",
]


def test_a_browser_finds_the_same_lines(page):
    texts = ["a\nAll (*)|*", "[0,9]few|{n} many", '"a|b"', "Press Ctrl|Alt now", "no | :count x"]
    texts += ["first || (a | b) second | 'x|y' \\| \u201ec|d\u201c", "|yes|yY", "a<br>b\t c"]
    for text in texts:
        pieces = [str(piece) for piece in page.evaluate("(text) => kept.linesOf(text)", text)]
        lines = [piece.text for piece in split_lines(text) if isinstance(piece, Line)]
        assert ([piece.strip() for piece in pieces[::2] if piece.strip()], "".join(pieces)) == (
            lines,
            text,
        )


@pytest.mark.parametrize("source", SPACED)
def test_a_browser_reads_and_returns_white_space_as_python_does(page, source):
    edits = edits_to_unify_spaces(source)
    found = page.evaluate("(text) => kept.editsToUnifySpaces(text)", source)
    assert found == [[*in_units(source, edit.span), edit.text] for edit in edits]
    output = " ".join(word.upper() for word in Reading(source, edits).text.split())
    words = [[m.span() for m in regex.finditer(r"\w+|[^\s\w]", text)] for text in (source, output)]
    sources = [words[0][min(n, len(words[0]) - 1)] for n in range(len(words[1]))]
    links = TokenLinks(sources, words[1], range(len(words[1])))
    expected = apply_edits(output, Reading(source, edits).edits_to_restore_spaces(output, links))
    pairs = [
        {"source": in_units(source, one), "target": in_units(output, other)}
        for one, other in zip(sources, words[1], strict=True)
    ]
    keep = """([line, output, links]) => kept.keep(
        { line, spans: [], spaces: kept.editsToUnifySpaces(line).filter((edit) => edit[2]) },
        output, () => links).text"""
    assert page.evaluate(keep, [source, output, pairs]) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"\w[\w.]\"", r"[W][W.]" + '"'),
        (r"[A-Z]{4,}+x", r"(?=(?<all0>[A-Z]{4,}))\k<all0>x"),
        (r"(?i:a[bc])d", r"(?:[aA][bc])d"),
        (r"\p{Latin}\p{Sc}\U0001F600\d", r"\p{Script=Latin}\p{Sc}\u{1F600}[\p{Nd}]"),
    ],
)
def test_each_construct_has_its_counterpart(expression, expected):
    letters = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"
    assert to_javascript(expression) == expected.replace("W", letters)


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("50%% of %s", "50 % von %s"),
        ("50%% of %s", "50 %% von %s, 5%%%"),
        ("50% of %s", "50 % von %s"),
        ("%(a)d%% done", "%(a)d % fertig, 100% %s"),
        ("100%% {}", "{} 100 %%"),
    ],
)
def test_a_browser_doubles_percent_signs_as_python_does(page, source, output):
    spans = kept_spans(source)
    expected = apply_edits(output, edits_to_double_percents(source, spans, output))
    double = "([source, output]) => kept.withDoubledSigns(source, kept.keptSpans(source), output)"
    assert page.evaluate(double, [source, output]) == expected
