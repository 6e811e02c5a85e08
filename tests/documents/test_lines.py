"""Texts are divided into lines."""

import pytest

from vanilla_transformer.documents.lines import split_lines, split_texts


def test_lines_and_blank_lines_stay_where_they_are():
    (document,), lines = split_lines(["one two\r\n\n  \nthree\n"])
    assert lines == ["one two", "three"]
    parts = document.in_language(pytest.fail)
    assert parts == [0, "\r", "\n", "\n", "\n", 1, "\n"]


def test_long_lines_are_cut_and_joined_as_the_target_language_joins_sentences():
    split = split_texts(["a b.\nc d. e f"], lambda texts: [text.split() for text in texts], 2)
    assert [segment.text for segment in split.segments] == ["a b.", "c d.", "e f"]
    (document,) = split.documents
    assert document.segments == [0, 1, 2]
    assert document.in_language(lambda: "de") == [0, "\n", 1, " ", 2]
    assert document.in_language(lambda: "ja") == [0, "\n", 1, "", 2]
