"""Texts are divided into lines."""

import pytest

from vanilla_transformer.text.lines import split_lines
from vanilla_transformer.text.sentences import Cut


def test_lines_and_blank_lines_stay_where_they_are():
    (layout,), lines = split_lines(["one two\r\n\n  \nthree\n"])
    assert lines == ["one two", "three"]
    parts = layout.in_language(pytest.fail)
    assert "".join(map(str, parts)) == "0\r\n\n  \n1\n"


def test_tabs_part_a_line():
    (layout,), lines = split_lines(["Open\tCtrl+O\t\t%s files\n"])
    assert lines == ["Open", "Ctrl+O", "%s files"]
    assert "".join(map(str, layout.in_language(pytest.fail))) == "0\t1\t\t2\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text files (*.txt)|*.txt|All files (*.*)|*.*", "0|1|2|3"),
        ("Images (*.png *.xpm);;XML files (*.xml);;All files (*)", "0;;1;;2"),
        ("one apple|{n} apples", "0|1"),
        ("no cars | one car | {count} cars", "0 | 1 | 2"),
        ("{0} none|{1} one|[2,*] many files", "{0} 0|{1} 1|[2,*] 2"),
        ("[0,9]few|[10,*]{n} many", "[0,9]0|[10,*]1"),
        ("|URL|the file at URL", "|0|1"),
        ("first || (a | b) second | c", "0 || 1 | 2"),
        ("File<br/>Open<BR>it", "0<br/>1<BR>2"),
        ("{0} files of {1}, [1,2] of it; done;;", "0"),
        ("[--all|--none] <on|off> (a|b) {{x | cut('a')}} x", "0"),
        ("put \"|\" before it, or '|', \\| not", "0"),
    ],
)
def test_the_parts_of_a_line_are_lines(text, expected):
    (layout,), lines = split_lines([text])
    parts = layout.in_language(pytest.fail)
    assert "".join(map(str, parts)) == expected
    assert "".join(lines[part] if isinstance(part, int) else part for part in parts) == text


@pytest.mark.parametrize("text", ["", " ", "\n", "\r", "\t\u3000", "\ufeff", " \u200b\r\n\n"])
def test_white_space_alone_stays_as_it_is(text):
    (layout,), lines = split_lines([text])
    assert lines == []
    assert "".join(map(str, layout.in_language(pytest.fail))) == text


@pytest.mark.parametrize(
    "text", ["0 ", "\t0\u00a0\u3000", "\ufeff0\r\n 1\u200b", "0\r1\r", "0\u20281\f2\x85\u2029\v"]
)
def test_what_surrounds_a_line_stays_around_it(text):
    (layout,), lines = split_lines([text])
    assert "".join(lines) == "012"[: len(lines)]
    assert "".join(map(str, layout.in_language(pytest.fail))) == text


def test_pieces_of_long_lines_are_joined_as_the_target_language_joins_sentences():
    (layout,), _ = split_lines(["a b.\nc d. e f"])
    layout = layout.with_parts([[0], [1, Cut(" ", "sentences"), 2]])
    assert layout.segments == [0, 1, 2]
    assert layout.in_language(lambda: "de") == [0, "\n", 1, " ", 2]
    assert layout.in_language(lambda: "ja") == [0, "\n", 1, "", 2]
