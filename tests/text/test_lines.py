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
        ("Text files (*.txt)|*.txt|All files (*.*)|*.*", "0|*.txt|1|*.*"),
        ("Pictures|*.jpg; *.jpeg;*.png|All (*)|*", "0|*.jpg; *.jpeg;*.png|1|*"),
        ("Images (*.png *.xpm);;XML files (*.xml);;All files (*)", "0;;1;;2"),
        ("yes|no, a | b * c | d; done;;", "0"),
    ],
)
def test_the_kinds_of_files_of_a_dialog_are_lines(text, expected):
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
