"""Texts are split into segments and joined again without losing a character."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.documents.lines import split_lines, split_long_line


def count_words(text):
    return len(text.split())


def test_lines_and_blank_lines_stay_where_they_are():
    (document,), lines = split_lines(["one two\r\n\n  \nthree\n"])
    assert lines == ["one two", "three"]
    joined = document.join(lambda number: lines[number].upper())
    assert joined == "ONE TWO\r\n\n\nTHREE\n"


def test_a_long_line_is_split_between_sentences():
    line = "One two three.  Four five! Six seven eight nine?"
    assert split_long_line(line, count_words, 5) == [
        "One two three.  Four five!",
        " ",
        "Six seven eight nine?",
    ]
    assert split_long_line("\u4e00\u3002\u4e8c\u3002", len, 2) == [
        "\u4e00\u3002",
        "",
        "\u4e8c\u3002",
    ]


def test_a_long_sentence_is_split_between_words():
    assert split_long_line("a b c d e", count_words, 2) == ["a b", " ", "c d", " ", "e"]
    assert split_long_line("Done. a b c", count_words, 2) == ["Done.", " ", "a b", " ", "c"]


WORD = st.sampled_from(["a", "bb", "c.", "d!", "e?\u201d", "\u3002", "x\u3002y"])
GAP = st.sampled_from(["", " ", "  ", "\t"])


@given(st.lists(st.tuples(GAP, WORD), min_size=1, max_size=12), GAP, st.integers(1, 5))
def test_the_parts_are_the_line_and_no_piece_is_too_long(units, end, limit):
    line = "".join(gap + word for gap, word in units) + end
    parts = split_long_line(line, count_words, limit)
    assert "".join(parts) == line
    assert all(not separator.strip() for separator in parts[1::2])
    assert all(count_words(piece) <= limit for piece in parts[::2])


def test_a_long_line_is_split_with_few_counts_into_pieces_as_long_as_possible():
    counted = []

    def count_characters(text):
        counted.append(len(text))
        return len(text)

    line = " ".join("a" * (1 + number % 7) for number in range(2000))
    parts = split_long_line(line, count_characters, 100)
    assert "".join(parts) == line
    for piece, following in itertools.pairwise(parts[::2]):
        assert len(piece) <= 100 < len(f"{piece} {following.split()[0]}")
    assert sum(counted) < 50 * len(line)
