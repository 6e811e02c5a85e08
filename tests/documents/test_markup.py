"""Inline markup: each tag of a source is in its output once, where the alignment puts it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.documents.marked_text import MarkedText, Tag
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.named_tags import name_tags, with_named_tags
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.token_links import TokenLinks

_TAG = re.compile(r"<(/?)(?!br>)(\w+)(/?)>")


def parse(source):
    """Reads a text with tags such as <b>, </b> and <x/>."""
    text, tags, position = "", [], 0
    for match in _TAG.finditer(source):
        text += source[position : match.start()]
        position = match.end()
        kind = "end" if match[1] else "empty" if match[3] else "begin"
        tags.append(Tag(len(text), match[0], kind))
    return MarkedText(text + source[position:], tuple(tags))


def words(text):
    """The spans of words, of signs, and of single letters of scripts without spaces."""
    pattern = r"[\u3040-\u9fff]|[^\W\u3040-\u9fff]+|[^\w\s]"
    return [match.span() for match in re.finditer(pattern, text)]


def placed(source, output, pairs):
    """Places the tags; `pairs` has the number of a source word for each output word."""
    marked = parse(source)
    sources = [*words(marked.plain), (0, 0)]  # with the end
    return place_tags(marked, output, TokenLinks(sources, words(output), pairs)).write()


@pytest.mark.parametrize(
    ("source", "pairs", "expected"),
    [
        # pairs around what they enclose, in its new place
        ("the <b>red</b> dog", (0, 1, 2), "der <b>rote</b> Hund"),
        ("I have <b>seen</b> it", (0, 1, 3, 2), "ich habe es <b>gesehen</b>"),
        ("<b>Today</b> I go", (1, 2, 0), "ich gehe <b>heute</b>"),
        ("<b>A</b> <i>B</i>", (1, 0), "<i>b</i> <b>a</b>"),
        ("the <b>big <i>red</i></b> dog", (0, 1, 2, 3), "der <b>große <i>rote</i></b> Hund"),
        ("<a><b>x</b></a> y", (1, 0), "ypsilon <a><b>iks</b></a>"),
        # an article that is linked with its noun, and a word that is linked with one far away
        ("the <b>man</b> saw me", (1, 1, 2, 3), "der <b>Mann</b> sah mich"),
        ("<b>one two</b> three four five", (0, 4, 2, 3, 4), "<b>eins zwei</b> drei vier fünf"),
        # a word between that is linked elsewhere
        ("<b>has gone</b> home", (0, 2, 1), "<b>ist heim gegangen</b>"),
        # what encloses all, or all but a sign
        ("<b>Hello world</b>", (2, 2, 2), "<b>hallo du Welt</b>"),
        ("<b>Hello world</b>.", (2, 2, 2), "<b>hallo Welt</b>."),
        ("<b>Hello world.</b>", (0, 1, 0), "<b>hallo Welt.</b>"),
        ("<b>Hello!</b> You", (0, 0, 2), "<b>hallo!</b> du"),
        ("<b>Hello!</b> You", (0, 0, 2), "<b>salut !</b> toi"),
        ("<b>Hello</b>, you", (0, 0, 2), "<b>hallo</b>, du"),
        ('say "<b>yes</b>"', (0, 1, 2, 3), "sag „<b>ja</b>“"),
        ('say <b>"yes"</b>', (0, 1, 2, 3), "sag <b>„ja“</b>"),
        ("yes<b>!</b> no", (0, 0, 2), "ja<b>!</b> nein"),
        ("(<b>one</b>) two", (3, 0, 1, 2), "zwei (<b>eins</b>)"),
        # white space
        ("a<b> red </b>dog", (0, 1, 2), "ein <b>roter</b> Hund"),
        ("one <x/>two three", (2, 1, 0), "drei <x/>zwei eins"),
        ("one<x/> two three", (0, 1, 2), "eins<x/> zwei drei"),
        ("one <x/>two", (1, 0), "<x/>zwei eins"),
        ("one<x/> two", (1, 0), "zwei eins<x/>"),
        ("one <x/>- two", (0, 1, 2), "eins <x/>- zwei"),
        ("one <x/>(two) three", (4, 1, 2, 3, 0), "drei <x/>(zwei) eins"),
        ("<x/> one <y/>“two", (1, 2, 0), "<x/><y/>“zwei eins"),
        ("Press <x/>, then", (0, 1, 2), "drück<x/>, dann"),
        ("<x/> one two", (1, 0), "<x/>zwei eins"),
        ("one two<x/>", (1, 0), "zwei eins<x/>"),
        ("one <b><x/></b>two", (0, 1), "eins <b><x/></b>zwei"),
        # nothing is linked with it
        ("one <b>up</b> two", (0, 2), "eins <b>zwei</b>"),
        ("one <b>up</b> <i>to</i> two", (0, 3), "<i>eins</i> <b>zwei</b>"),
        ("one <b>up</b> two", (0,), "<b>eins</b>"),
        # signs before an empty tag
        ("one (<x/>), two (<y/>)", (0, 1, 2, 3, 4, 5, 6), "eins (<x/>), zwei (<y/>)"),
        ("one (<x/>) two", (0, 1, 2, 3), "\u4e00\uff08<x/>\uff09\u4e8c"),
        ("Default: <x/>, type", (0, 1, 2, 3), "Standard:<x/> , Typ"),
        ("one <b>two</b>", (), "eins <b>zwei</b>"),
        ("one <b>two</b>", (), "<b></b>"),
        # within a word only where the output has the same
        ("H<b>2</b>O is", (0, 1), "H<b>2</b>O ist"),
        ("H<b><i>2</i></b>O is", (1, 0), "ist H<b><i>2</i></b>O"),
        ("super<x/>star one", (1, 0), "eins super<x/>star"),
        ("the <b>W</b>orld is", (0, 1, 2), "die <b>Welt</b> ist"),
        ("doghouse <b>own</b>s", (0, 1), "Hundehütte <b>besitzt</b>"),
        ("see <b>{0}</b> now", (0, 2, 3), "sieh <b>{0}</b> jetzt"),
        ("just right here <b>open {0}</b>", (5, 0, 1, 2, 3), "<b>{0}</b> nun eben hier öffnen"),
        ("<b>is gone</b> <i>{0}</i>", (0, 3, 1), "ist <i>{0}</i> <b>gegangen</b>"),
        # scripts without spaces
        ("I <b>like</b> you.", (0, 1, 1, 2, 3), "我<b>喜欢</b>你。"),
        ("我<b>喜欢</b>你。", (0, 2, 3, 4), "I <b>like</b> you."),
        ("the <b>man</b>", (0, 1), "l'<b>homme</b>"),
        ("un<b>do</b> it", (0, 0, 1), "<b>撤消</b>它"),
        ("<b>b</b>old it", (1, 0, 0), "它<b>粗体</b>"),
        ("it <b>un</b>does", (0, 1, 1, 1), "も<b>元に戻</b>"),
    ],
)
def test_tags_are_where_the_alignment_puts_them(source, pairs, expected):
    output = re.sub(r"\u200b|\s+", " ", _TAG.sub("", expected))
    if "'" in output or "{" in output:  # tokens that are no words of `words`
        spans = [match.span() for match in re.finditer(r"l'|homme|\{0\}|\w+", output)]
        marked = parse(source)
        links = TokenLinks(words(marked.plain), spans, pairs)
        assert place_tags(marked, output, links).write() == expected
        return
    assert placed(source, output, pairs) == expected


@pytest.mark.parametrize(
    ("source", "pairs", "expected"),
    [
        ("one two <x/>\nthree four", (0, 2, 3, 3), "eins zwei<x/>\ndrei vier"),
        ("one two\n<x/>three four", (0, 0, 1, 3), "eins zwei\n<x/>drei vier"),
        ("one <b>two</b>\nthree four", (0, 0, 1, 3), "eins <b>zwei</b>\ndrei vier"),
        ("one two\t<b>three</b> four", (0, 2, 3, 3), "eins zwei\t<b>drei</b> vier"),
        ("one<br><b>two</b> three", (1, 2, 2), "eins<br><b>zwei</b> drei"),
        ("one\n<x/>\ntwo <y/>\n\n<z/> six", (1, 0, 0), "eins\n<x/>\nzwei<y/>\n\n<z/>sechs"),
        ("<b>one\ntwo</b> six", (0, 1, 2), "<b>eins\nzwei</b> sechs"),
    ],
)
def test_no_tag_leaves_its_line(source, pairs, expected):
    marked, output = parse(source), re.sub("<[^r]+?>", "", expected)
    spans = [
        [found.span() for found in re.finditer("[a-z]{3,}", t)] for t in (marked.plain, output)
    ]
    assert place_tags(marked, output, TokenLinks(*spans, pairs)).write() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Save <b>{name}</b>", "<b>{name}</b> speichern"),
        ("Delete the file <b>{name}</b>?", "<b>{name}</b> silinsin mi?"),
        ("Could not open <b>%s </b>.", "<b>%s</b> kann man nicht öffnen."),
        ("Color: <b>%s</b>; <i>{}</i>", "Farbe: <b>%s</b>; <i>{}</i>"),
        ("Copy <b>{a} {b}</b> now", "nun <b>{a} {b}</b> kopieren"),
        ("See <b>https://a.org</b> first", "zuerst <b>https://a.org</b> ansehen"),
        # equal ones in their order, or in that of their numbers
        ("<i>%s</i> was not found in <b>%s</b>.", "<i>%s</i>, <b>%s</b> içinde yok."),
        ("<i>%s</i> was not found in <b>%s</b>.", "<b>%2$s</b> içinde <i>%1$s</i> yok."),
        ("<i>%d%%</i> of <b>%s</b>", "<b>%s</b> için <i>%%%d</i>"),
        # any text that each side has once
        ("Press <b>F1</b> now", "jetzt <b>F1</b> drücken"),
        ("<b>--all</b> it", "Schalter <b>--all</b> es"),
        ("the <b>微软</b> file", "文件的<b>微软</b>"),
        ("Use <b>a::b</b>, a or b", "statt a, b nimm <b>a::b</b>"),
    ],
)
def test_what_stands_in_both_has_its_tags_whatever_is_linked(source, expected):
    marked, output = parse(source), _TAG.sub("", expected)
    spans = words(marked.plain), words(output)
    for number in range(len(spans[0])):
        links = TokenLinks(*spans, [number] * len(spans[1]))
        assert place_tags(marked, output, links).write() == expected


@pytest.mark.parametrize(
    ("source", "read", "output", "expected"),
    [
        ("Saved as <x/>.", "Saved as {0}.", "Als {0} gesichert.", "Als <x/> gesichert."),
        ("of <x/>/<y/> it", "of {0}/{1} it", "{1} von {0}", "<y/> von <x/>"),
        ("a <x/><y/>, {0}", "a {1}, {0}", "{0}: {1}", "{0}: <x/><y/>"),
        ("in (<x/>) <b><y/></b>!", "in ({0}) {1}!", "{1}({0})", "<b><y/></b>(<x/>)"),
        ("Press <x/>+<y/> now", "Press {0}+{1} now", "Nun {0}+{1}", "Nun <x/>+<y/>"),
        ("at $<x/>, the <y/>-th", "at ${0}, the {1}-th", "{1}. um {0} $", "<y/>. um <x/> $"),
        ("<x/> = \u2014<y/> it", "{0} = \u2014{1} it", "{1} = {0}", "<y/> = <x/>"),
        ("a<x/> dog, the <y/>cat.<z/> Go", "a dog, the cat. Go", "a", None),
        ("Lost <x/> word", "Lost {0} word", "lost", "lost<x/>"),
    ],
)
def test_a_tag_that_stands_for_a_word_is_read_as_a_placeholder(source, read, output, expected):
    named, names = name_tags(parse(source))
    assert named.plain == read
    if expected:
        links = TokenLinks(words(read), words(output), [0] * len(words(output)))
        assert with_named_tags(place_tags(named, output, links), names).write() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u4fdd\u5b58 <x/> \u3002", "\u4fdd\u5b58<x/>\u3002"),
        ("<x/> \u30d5\u30a1\u30a4\u30eb <y/>", "<x/>\u30d5\u30a1\u30a4\u30eb<y/>"),
        ("\u4fdd\u5b58 <x/> PDF", "\u4fdd\u5b58<x/> PDF"),
        ("a <x/> b", "a <x/> b"),
    ],
)
def test_no_space_stands_between_a_tag_and_a_chinese_or_japanese_character(text, expected):
    assert parse(text).without_spaces().write() == expected


def test_a_pair_that_nothing_is_linked_with_leaves_what_stands_in_both():
    marked = parse("<b>Delete</b> {name} now?")
    output = "{name} jetzt?"
    links = TokenLinks(words(marked.plain), words(output), [1] * 5)
    assert place_tags(marked, output, links).write() == "{name} <b>jetzt</b>?"


PIECES = ["one", "two", " ", " ", ",", "\u4f60\u597d", "{0}", "<", "don't", "%s", "\n", "H2O", "!"]


@st.composite
def documents(draw, space=""):
    """A source with nested tags, an output and links at random."""
    text, tags, stack = "", [], []
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["text", "text", "begin", "end", "empty"]))
        if kind == "text":
            text += draw(st.sampled_from(PIECES)) + space
        elif kind == "empty":
            tags.append(Tag(len(text), f"<x{len(tags)}/>"))
        elif kind == "begin":
            stack.append(len(tags))
            tags.append(Tag(len(text), f"<b{len(tags)}>", "begin"))
        elif stack:
            tags.append(Tag(len(text), f"</b{stack.pop()}>", "end"))
    tags += [Tag(len(text), f"</b{begin}>", "end") for begin in reversed(stack)]
    output = "".join(draw(st.lists(st.sampled_from(PIECES), max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(output)), max_size=8)))
    targets = list(zip([0, *cuts], [*cuts, len(output)], strict=True))
    sources = [*words(text), (0, 0)]
    aligned = draw(st.lists(st.integers(0, len(sources) - 1), min_size=0, max_size=len(targets)))
    return MarkedText(text, tuple(tags)), output, TokenLinks(sources, targets, aligned)


def test_no_tag_is_lost_doubled_or_crossed_and_no_word_is_broken(pytestconfig):
    slow = pytestconfig.getoption("--slow")
    check = settings(max_examples=10_000 if slow else 500)(given(documents())(check_placed_tags))
    check()


def check_placed_tags(document):
    """Each tag is there once, pairs are nested, and none is within what is kept."""
    marked, output, links = document
    result = place_tags(marked, output, links)
    assert result.plain.split() == output.split()
    assert sorted(tag.text for tag in result.tags) == sorted(tag.text for tag in marked.tags)
    positions = [tag.position for tag in result.tags]
    assert positions == sorted(positions)
    stack = []
    for tag in result.tags:
        if tag.kind == "begin":
            stack.append(tag.text)
        elif tag.kind == "end":
            assert tag.text.replace("/", "") == stack.pop()
        assert not any(begin < tag.position < end for begin, end in kept_spans(result.plain))
    assert not stack


@pytest.mark.parametrize(
    "source", ["la <b>la la</b>", "<b>la la</b> la", "x <b>la, la</b>, la, la"]
)
def test_a_text_that_stands_twice_with_a_common_word_is_not_known(source):
    output = parse(source).plain
    assert placed(source, output, range(len(words(output)))) == source


@given(documents(space=" "))
def test_a_text_that_stays_keeps_its_tags(document):
    marked, _, _ = document
    spans = words(marked.plain)
    result = place_tags(marked, marked.plain, TokenLinks(spans, spans, range(len(spans))))
    assert "".join(result.write().split()) == "".join(marked.write().split())
