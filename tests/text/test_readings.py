"""What a model reads of a text, and the way back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.text.edits import Edit, apply_edits, spans_after
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.readings import Reading, StandIns, edits_to_unify_spaces
from vanilla_transformer.text.terms import Glossary, Term, edits_to_annotate
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import spaced_words

TOKENS = StandIns(tuple(f"<ph{number}>" for number in range(1, 9)))
TERMS = Glossary([Term("hard disk", "Festplatte"), Term("file", "文件")])
PIECES = ["%d", "%s", "{{ x  | upper }}", "%%", "😀", "https://example.org/a", "hard disk", "file"]
PIECES += ["hard  disk", "monde", "10", "!", "文件", "ไทย", "<ph3>", "{0}"]
SPACES = ["", " ", "  ", "\u00a0", " \u202f", "\u200b", "\u3000", "\n", "\u00ad", "\t \ufeff"]


def read_of(text, count=8):
    """Reads a text as a reader does: parts after the first ones are left out, terms annotated."""
    kept = kept_spans(text)
    matches = TERMS.find(text, "en", kept)
    reading = TOKENS.reading(text, kept[:count]).with_edits(edits_to_unify_spaces(text))
    reading = reading.without(kept[count:])
    return reading.with_edits(edits_to_annotate(text, [(m.span, m.term.target) for m in matches]))


@pytest.mark.parametrize(
    ("text", "count", "read"),
    [
        ("%d\u00a0%% effectués", 8, "<ph1> effectués"),
        ("Hi {{ x  | upper }} and  {{\u00a0y }}", 8, "Hi <ph1> and <ph2>"),
        ("Bonjour\u00a0😀 monde", 0, "Bonjour monde"),
        ("Bonjour \u202f😀\u00a0monde 😀", 0, "Bonjour monde"),
        ("😀  Hi", 0, "Hi"),
        ("the\u00a0file", 0, "the<|term|> file<|trans|>文件<|end|>"),
        ("Hard  disk  file", 0, "<|term|> Hard disk<|trans|> Festplatte<|end|>"
         "<|term|> file<|trans|>文件<|end|>"),
    ],
)  # fmt: skip
def test_of_edits_that_overlap_the_longest_counts(text, count, read):
    assert read_of(text, count).text == read


@given(
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(SPACES)), max_size=9),
    st.integers(0, 8),
)
def test_the_way_back_leads_to_the_original(pieces, count):
    reading = read_of("".join(map("".join, pieces)), count)
    text = reading.text
    assert apply_edits(text, reading.undone) == reading.original
    ends = [0, *(n for span in spans_after(reading.edits) for n in span), len(text)]
    for begin, end in zip(ends[::2], ends[1::2], strict=True):  # what no edit has changed
        if begin < end:
            assert text[begin:end] == reading.original[slice(*reading.in_original((begin, end)))]


def test_parts_of_what_is_read_stand_for_parts_of_the_original():
    reading = TOKENS.reading("Open %s/{0} now", [(5, 7), (8, 11)])
    assert reading.text == "Open <ph1>/<ph2> now"
    assert [reading.in_original(span) for span in ((0, 4), (5, 10), (11, 16), (17, 20))] == [
        *[(0, 4), (5, 7), (8, 11), (12, 15)]
    ]
    inserted = Reading("a dog runs", [Edit(5, 5, " [Hund]")])
    assert inserted.text == "a dog [Hund] runs"
    assert [inserted.in_original(span) for span in ((2, 5), (5, 12), (7, 11), (13, 17))] == [
        *[(2, 5), (5, 5), (5, 5), (6, 10)]
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Save 😊 now", "Save now"),
        ("😊 Hi!", "Hi!"),
        ("Done 😊", "Done"),
        ("Done 😊 😊", "Done"),
        ("😊 😊 Hi", "Hi"),
        ("Done 😊😊!", "Done!"),
        ("😊 😊", "😊 😊"),
    ],
)
def test_a_reading_may_lack_parts(text, read):
    spans = kept_spans(text)
    reading = Reading(text).without(spans)
    assert reading.text == read
    assert all(reading.in_original((0, n))[0] <= len(text) for n in range(len(read)))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Open the\u200bfile", "Open the file"),
        ("Ouvrir\u2060le\u200b\ufeff%s", "Ouvrir le\u200b\ufeff%s"),
        ("打开\u200b文件", "打开\u200b文件"),
        ("ไทย\u200bภาษา a\u200bb", "ไทย\u200bภาษา a b"),
        ("the \u200bfile\u200b", "the file\u200b"),
        ("docu\u00admen\u00adta\u00adtion \u00ad.", "documentation \u00ad."),
        ("Doku\u00admente\u200bdie", "Dokumente die"),
        ("文\u00ad件", "文件"),
        ("10\u00a0km  -  \u3000it", "10 km - it"),
        ("\u00a0of\u202f%s\u00a0 ", "\u00a0of %s\u00a0 "),
    ],
)
def test_signs_that_are_not_seen_within_words_are_read_as_a_space_or_not_at_all(text, read):
    reading = TOKENS.reading(text, ()).with_edits(edits_to_unify_spaces(text))
    assert reading.text == read


@pytest.mark.parametrize(
    ("text", "output", "links", "restored"),
    [
        ("Open the\u200bfile", "Ouvrir le fichier", [0, 1, 2], "Ouvrir le\u200bfichier"),
        ("Open\u2060the\u200bfile", "Abre el archivo", [0, 1, 2], "Abre\u2060el\u200barchivo"),
        ("Open the\u200bfile", "Datei öffnen", [2, 0], "Datei öffnen"),
        ("Open the\u200bfile", "le ouvrir fichier", [1, 0, 2], "le ouvrir fichier"),
        ("run 10\u00a0km now", "lauf 10 km nun", [0, 1, 2, 3], "lauf 10\u00a0km nun"),
        ("10\u00a0% of it", "10 % davon", [0, 1, 2], "10\u00a0% davon"),
        ("a   b  c", "ah be ce", [0, 1, 2], "ah   be  ce"),
        ("a  b c", "be ah ce", [1, 0, 2], "be ah ce"),
        ("yes\u00a0! no", "ja! nein", [0, 2], "ja! nein"),
    ],
)
def test_other_white_space_returns_between_the_same_words(text, output, links, restored):
    reading = Reading(text, edits_to_unify_spaces(text))
    words = [match.span() for match in re.finditer("[^\\s\u200b\u2060]+", text)]
    edits = reading.edits_to_restore_spaces(output, TokenLinks(words, spaced_words(output), links))
    assert apply_edits(output, edits) == restored


@pytest.mark.parametrize(
    ("source", "output", "restored"),
    [
        ("Move %s to {0}.", "Nach <ph2> <ph1> bewegen.", "Nach {0} %s bewegen."),
        ("%d files", "<ph1>Dateien", "%d Dateien"),
        ("Use --force", "Nutze<ph1>!", "Nutze --force!"),
        ("Open /etc/hosts", "Datei<ph1>", "Datei /etc/hosts"),
        ("Give it (%s, --all)", "(<ph1>, „<ph2>“)", "(%s, „--all“)"),
        ("See http://a.org", "Auf <ph1>siehe", "Auf http://a.org siehe"),
        ("the <ph3> token %s", "<ph2> <ph1> <ph1> <ph7>", "%s <ph3> <ph3> <ph7>"),
        ("no span", "<ph1>", "<ph1>"),
        (" ".join("%s" for _ in range(9)) + " {9}", "<ph8> {9}", "%s {9}"),
        ("See /etc/hosts", "100%<ph1>", "100% /etc/hosts"),
    ],
)
def test_the_parts_come_back_from_their_tokens(source, output, restored):
    reading = TOKENS.reading(source, kept_spans(source))
    assert apply_edits(output, reading.edits_to_replace_stand_ins(output)) == restored


@pytest.mark.parametrize(
    ("source", "read", "output", "restored"),
    [
        ("Delete % d files", "Delete %d files", "%d Dateien löschen", "% d Dateien löschen"),
        ("% s: %s", "%s: %s", "%s", "% s"),
        ("% 5.1f%% of %d", "%5.1f%% of %d", "%d の %5.1f%%", "%d の % 5.1f%%"),
    ],
)
def test_a_placeholder_with_a_space_in_it_is_read_without_it(source, read, output, restored):
    spans = kept_spans(source, flags=frozenset({"c-format"}))
    reading = StandIns(()).reading(source, spans)
    assert reading.text == read
    assert apply_edits(output, reading.edits_to_replace_stand_ins(output)) == restored


@pytest.mark.parametrize(
    ("source", "output", "origins"),
    [
        ("% d of % d", "%d von %d", [(0, 3), (7, 10)]),
        ("%d of % d", "%d von %d", [(0, 2), (6, 9)]),
        ("% s, %s and % s", "%s %s %s %s", [(0, 3), (5, 7), (12, 15), (12, 15)]),
        ("<ph1> of % d, % d", "<ph1> %d", [(9, 12)]),
    ],
)
def test_equal_stand_ins_stand_for_parts_in_their_order(source, output, origins):
    reading = StandIns(()).reading(source, kept_spans(source, flags=frozenset({"c-format"})))
    edits = reading.edits_to_replace_stand_ins(output)
    assert [edit.in_source for edit in edits] == origins


@pytest.mark.parametrize(
    ("pair", "result"),
    [
        (("a %s b {x}", "{x} b %s a"), ("a <ph1> b <ph2>", "<ph2> b <ph1> a")),
        (("%s to %s", "%s bis %s"), ("<ph1> to <ph2>", "<ph1> bis <ph2>")),
        (("%s and %d", "%s %s und %d"), ("%s and <ph1>", "%s %s und <ph1>")),
        (("a %s", "b"), ("a %s", "b")),
        (("see <ph4> %s", "siehe %s <ph4>"), ("see <ph1> <ph2>", "siehe <ph2> <ph1>")),
        (("{0}" * 9, "{0}" * 9), ("".join(TOKENS.tokens) + "{0}",) * 2),
    ],
)
def test_what_both_sides_of_a_pair_have_gets_tokens(pair, result):
    assert TOKENS.in_pair(*pair) == result


def test_tokens_that_are_words_stand_for_whole_words():
    tokens = StandIns(TOKENS.tokens, whole_words=True)
    pair = "%d files (%s) in {0}", "{0} hat %d ( %s )"
    assert tokens.in_pair(*pair) == ("<ph1> files (%s) in <ph2>", "<ph2> hat <ph1> ( %s )")
