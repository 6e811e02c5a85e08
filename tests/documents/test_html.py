"""HTML: what is text is found as browsers find it, and all else stays as it is."""

import html
import re
from collections import Counter

import pytest
from capital_texts import unchanged
from hypothesis import given
from hypothesis import strategies as st
from justhtml import stream

from vanilla_transformer.documents.html import places_of_html, split_markup
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.named_tags import name_tags, with_named_tags
from vanilla_transformer.documents.places import FileTemplate
from vanilla_transformer.text.token_links import TokenLinks

PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>A dog &amp; a cat</title><meta charset=utf-8>
<script>if (a < b && "</p>") { document.write("<p>hidden</p>"); }</script>
<style>p > a { color: red }</style></head>
<!-- a comment with <p>tags</p> -->
<body class='x' data-text="a > b"><p>See&nbsp;the <b>dog</b>, 3 < 4 &copy; 2020.<br/>
  <img alt="a picture" src=x.png> Tom &#38; Jerry</p>
<p translate="no">kept</p><span class="notranslate big">kept <i>too</i></span>
<pre>two
lines</pre><code>kept = 1</code><textarea>kept</textarea><p>&nbsp;</p><p>...</p></body></html>"""
TEXTS = [
    "A dog & a cat",
    "See\u00a0the dog, 3 < 4 \u00a9 2020.",
    "Tom & Jerry",
    "two\nlines",
]


def read_page(source):
    return FileTemplate(source, places_of_html(source))


def texts_of(source):
    return [text.marked.plain for text in read_page(source).texts]


def shouted(source):
    """HTML whose texts are in capitals, each letter where it was."""
    page = read_page(source)
    outputs = []
    for text in page.texts:
        named, names = name_tags(text.marked)
        spans = [(place, place + 1) for place in range(len(named.plain))]
        links = TokenLinks(spans, spans, range(len(spans)))
        outputs.append(with_named_tags(place_tags(named, named.plain.upper(), links), names))
    return page.join(outputs)


def test_a_page_keeps_its_markup():
    assert texts_of(PAGE) == TEXTS
    page = read_page(PAGE)
    assert page.join(unchanged(page)) == PAGE
    expected = PAGE.replace("A dog &amp; a cat", "A DOG &amp; A CAT")
    expected = expected.replace("See&nbsp;the <b>dog</b>", "SEE&nbsp;THE <b>DOG</b>")
    expected = expected.replace(", 3 < 4 &copy;", ", 3 &lt; 4 &copy;")
    expected = expected.replace("Tom &#38; Jerry", "TOM &#38; JERRY")
    expected = expected.replace("two\nlines", "TWO\nLINES")
    assert shouted(PAGE) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a dog", "A DOG"),
        ("", ""),
        ("  a\n dog ", "  A DOG "),
        ("a < b > c", "A &lt; B &gt; C"),
        ("&lt;script&gt;x", "&lt;SCRIPT&gt;X"),
        ("at&t", "AT&amp;T"),
        ("a<br>b<BR/>c", "A<br>B<BR/>C"),
        ("<a title='x > y' href=\"a>b\">x</a>", "<a title='x > y' href=\"a>b\">X</a>"),
        ("<p a=>x</p >", "<p a=>X</p >"),
        ("a <!-->b <!--->c <!-- x --!>d", "A <!-->B <!--->C <!-- x --!>D"),
        ("a<!-- open", "A<!-- open"),
        ("a <b x='open", "A <b x='open"),
        ("a </>b </ x>c <?php d?>e", "A </>B </ x>C <?php d?>E"),
        ("<SCRIPT>a</b></ScRiPt >b", "<SCRIPT>a</b></ScRiPt >B"),
        ("<style>a", "<style>a"),
        ("<script><!--<script></script>a</script>b", "<script><!--<script></script>a</script>B"),
        ("<script><!--<script>--></script>b", "<script><!--<script>--></script>B"),
        ("<script><!--><script></script>b", "<script><!--><script></script>B"),
        ("<script><!-- a</script>b", "<script><!-- a</script>B"),
        ("<script><!--<scripts></script>b", "<script><!--<scripts></script>B"),
        ("<p translate=no><style></p></style>a</p>b", "<p translate=no><style></p></style>a</p>B"),
        ("<title>a <b> c</title>", "<title>A &lt;B&gt; C</title>"),
        ("<textarea><!-- a</textarea>b", "<textarea><!-- a</textarea>B"),
        ("<svg><text>a</text></svg>b", "<svg><text>a</text></svg>B"),
        ("<svg/>b", "<svg/>B"),
        ("a <code>x</code> b", "A <code>x</code> B"),
        ("<div translate=no>a<div>b</div>c</div>d", "<div translate=no>a<div>b</div>c</div>D"),
        ("<br translate=no>d", "<br translate=no>D"),
        (
            "<div translate=no>a<div translate=yes>b<div>c</div>d</div>e</div>f",
            "<div translate=no>a<div translate=yes>B<div>C</div>D</div>e</div>F",
        ),
        ("<p class=notranslate>a<b translate>b</p>c", "<p class=notranslate>a<b translate>B</p>C"),
        (
            "<code translate='yes'>a<var>b</var></code>",
            "<code translate='yes'>A<var>b</var></code>",
        ),
        ("<i data-translate=no>a</i>", "<i data-translate=no>A</i>"),
        # of an attribute that is given twice, the first one counts
        ("<p translate=no translate=yes>a</p>b", "<p translate=no translate=yes>a</p>B"),
        ("<p CLASS=notranslate class=x>a</p>b", "<p CLASS=notranslate class=x>a</p>B"),
        ("<p translate translate=no>a</p>b", "<p translate translate=no>A</p>B"),
        ("<![CDATA[ a > b ]]>c", "<![CDATA[ a > b ]]>C"),
        (
            "\u05e9\u05dc\u05d5\u05dd <b>\U0001f600 a</b>",
            "\u05e9\u05dc\u05d5\u05dd <b>\U0001f600 A</b>",
        ),
    ],
)
def test_text_is_found_as_browsers_find_it(source, expected):
    assert shouted(source) == expected


@pytest.mark.parametrize(
    ("source", "output", "written"),
    [
        ("the <code>open</code> command", "den {0} Befehl", "den <code>open</code> Befehl"),
        (
            "the <code>a</code>, <code>b</code> x",
            "die {0}, {1} y",
            "die <code>a</code>, <code>b</code> y",
        ),
        ("<code>a</code> or <code>b</code>", "oder", "<code>a</code> oder <code>b</code>"),
        ("<code>a</code>s or x", "oder y", "<code>a</code>oder y"),
        ("<code>a</code> or x", "\u6216x", "<code>a</code>\u6216x"),
    ],
)
def test_code_has_the_spaces_of_its_source(source, output, written):
    page = read_page(source)
    (text,) = page.texts
    named, names = name_tags(text.marked)
    spans = [[m.span() for m in re.finditer(r"\S+", x)] for x in (named.plain, output)]
    placed = place_tags(named, output, TokenLinks(*spans, range(len(spans[1]))))
    assert page.join([with_named_tags(placed, names)]) == written


def events(source):
    """What a parser that passes the standard's tests finds besides text."""
    return [event for event in stream(source) if event[0] != "text"]


PIECES = ["<p>", "</p>", "<b class='x'>", "</b>", "<!-- c -->", "&amp;", "&nbsp;", "a", "<", ">"]
PIECES += [" ", "&", "dog", "<br>"]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_no_output_of_a_model_becomes_markup(pieces):
    """Whatever stands in the place of the texts, the markup is that of the source."""
    source = "".join(pieces)
    page = read_page(source)
    output, no_links = "<script>alert('&')</script>", TokenLinks((), (), ())
    joined = page.join([place_tags(text.marked, output, no_links) for text in page.texts])
    assert Counter(map(str, events(joined))) == Counter(map(str, events(source)))
    assert texts_of(page.join(unchanged(page))) == [text.marked.plain for text in page.texts]


TAGS = ["<p>", "</p>", "<b x='>'", "<!--", "-->", "--!>", "<script>", "</script>", "<style>"]
TAGS += ["</style>", "<!doctype a>", "<", ">", "/", "'", "a", " ", "&lt;", "=", "-", "!", "?"]


@given(st.lists(st.sampled_from(TAGS), max_size=12))
def test_texts_are_those_of_a_parser_that_passes_the_tests_of_the_standard(pieces):
    source = "".join(pieces)
    tokens = [token for token, role in split_markup(source) if role == "text"]
    ours = [html.unescape(token.text) for token in tokens]
    theirs, raw = [], False
    for kind, data in stream(source):
        if kind == "start":
            raw = data[0] in ("script", "style")
        elif kind == "text" and not raw:
            theirs.append(data)
        elif kind == "end":
            raw = False
    assert "".join(ours) == "".join(theirs)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<p>你好\n  世界。\r\n\n今天</p>", ["你好世界。今天"]),
        ("<p>カー\nド 漢</p>", ["カード 漢"]),
        ("<p>你好\nworld\n한국\n어 สวัส\nดี</p>", ["你好 world 한국 어 สวัส ดี"]),
        ("<pre>你好\n世界</pre>", ["你好\n世界"]),
    ],
)
def test_a_line_break_between_characters_without_spaces_is_none(source, texts):
    assert texts_of(source) == texts


@pytest.mark.parametrize(
    "part",
    [
        *("<", "<a ", "<!--", "<a x='", "&nbsp;", "<p>", "</", "<a =", "<![CDATA[>", " "),
        *("<script>", "<script><!--", "<a class= ", "<p class='notranslat"),
        *(
            "<b>",
            "</b>",
            "<b></b>",
            "<b>a</b>",
            "<b>a ",
            "<i></b>",
            "<img>",
            "a<img>",
            "</i><b><u>",
        ),
    ],
)
def test_long_input_takes_linear_time(part):
    """A regular expression that tries all divisions would never end here."""
    for source in (part * 20_000, f"a{part * 20_000}b"):
        assert html.unescape(shouted(source))
