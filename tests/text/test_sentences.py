# ruff: noqa: RUF001 - signs of other scripts are what is tested
"""Long lines are cut into short pieces, in every language, and nothing is left out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.text.sentences import Cut, cut_line, is_sure_end


def count_words(text):
    return len(text.split())


def pieces(*arguments):
    return cut_line(*arguments)[::2]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith came at 3.5.", 'He said: "Go!"', "Why?"]),
        ("zh", ["他说：“你好。”", "今天很好！", "你呢？"]),
        (None, ["他说：“你好。”", "今天很好！", "你呢？"]),
        ("hi", ["यह पहला है।", "यह दूसरा है॥", "तीसरा?"]),
        ("ur", ["یہ ہے۔", "وہ کیا ہے؟", "ہاں"]),
        ("km", ["នេះ។", "នោះ។"]),
        ("my", ["ဒါက ပထမ။", "ဒုတိယ။"]),
        ("am", ["ይህ ነው።", "ያ።"]),
        ("hy", ["Սա է։", "Այն։"]),
        ("el", ["Τι είναι;", "Αυτό."]),
    ],
)
def test_a_long_line_is_cut_between_sentences(language, sentences):
    for space in ("", " ") if language in ("zh", None) else (" ",):
        parts = cut_line(space.join(sentences), lambda text: text not in sentences, 0, language)
        assert parts[::2] == sentences
        assert parts[1::2] == [Cut(space, "sentences")] * (len(sentences) - 1)


def test_as_many_sentences_as_possible_are_together():
    line = "One two three.  Four five! Six seven eight nine?"
    second = Cut(" ", "sentences")
    assert cut_line(line, count_words, 5) == [
        "One two three.  Four five!",
        second,
        "Six seven eight nine?",
    ]


@pytest.mark.parametrize(
    ("clauses", "space"),
    [
        (["我们在公园里走路，", "孩子们在玩、", "狗在睡觉；", "天气１，０００很好。"], ""),
        (["we walk 1,000 steps,", "they (at 12:30,)", 'sleep; "so,"', "he said"], " "),
        (["نمشي في الحديقة،", "والأطفال يلعبون؛", "نعم"], " "),
    ],
)
def test_a_long_sentence_is_cut_between_clauses(clauses, space):
    parts = cut_line(space.join(clauses), lambda text: text not in clauses, 0)
    assert parts[::2] == clauses
    assert set(parts[1::2]) == {Cut(space, "sentences")}


def test_a_long_clause_is_cut_between_words():
    word = Cut(" ", "words")
    assert cut_line("a b c d e", count_words, 2) == ["a b", word, "c d", word, "e"]
    assert cut_line("Done. a b c", count_words, 2) == [
        "Done.",
        Cut(" ", "sentences"),
        "a b",
        word,
        "c",
    ]


@pytest.mark.parametrize(
    ("line", "limit", "expected", "between"),
    [
        ("สวัสดีครับ", 4, ["สวัส", "ดีค", "รับ"], "words"),
        ("今天天气很好", 4, ["今天天气", "很好"], "words"),
        ("Donaudampfschiff", 6, ["Donaud", "ampfsc", "hiff"], "letters"),
        ("한국어문장", 3, ["한국어", "문장"], "letters"),
        ("👩‍👩‍👧👩‍👩‍👧", 5, ["👩‍👩‍👧", "👩‍👩‍👧"], "letters"),
        ("e\u0301e\u0301", 3, ["e\u0301", "e\u0301"], "letters"),
        ("a" + "\u0301" * 5, 4, ["a" + "\u0301" * 3, "\u0301" * 2], "letters"),
    ],
)
def test_a_long_word_is_cut_between_its_letters(line, limit, expected, between):
    parts = cut_line(line, len, limit)
    assert parts[::2] == expected
    assert set(parts[1::2]) == {Cut("", between)}


def test_a_character_with_too_many_tokens_is_a_piece():
    assert pieces("ab", lambda text: 3 * len(text), 2) == ["a", "b"]


@pytest.mark.parametrize(
    ("between", "space", "expected"),
    [
        ("sentences", "", {"en": " ", "zh": "", "ja": "", "th": " ", "ko": " ", None: " "}),
        ("sentences", "  ", {"en": "  ", "zh": "", "th": "  ", None: "  "}),
        ("sentences", "\u3000", {"en": " ", "ja": ""}),
        ("words", "", {"en": " ", "zh": "", "th": "", None: " "}),
        ("words", " ", {"en": " ", "ja": "", "km": "", None: " "}),
        ("letters", "", {"en": "", "zh": "", None: ""}),
    ],
)
def test_pieces_are_joined_as_the_target_language_joins_them(between, space, expected):
    cut = Cut(space, between)
    assert {tag: cut.in_language(tag) for tag in expected} == expected


WORD = st.sampled_from(["a", "bb", "c.", "d!", "e?\u201d", "\u3002", "x\u3002y", "१।", "，ก็", "f,"])
GAP = st.sampled_from(["", " ", "  ", "\t", "\u3000"])


@given(st.lists(st.tuples(GAP, WORD), min_size=1, max_size=12), GAP, st.integers(2, 6))
def test_the_parts_are_the_line_and_no_piece_is_too_long(units, end, limit):
    line = "".join(gap + word for gap, word in units) + end
    parts = cut_line(line, count_words, limit)
    assert all(count_words(piece) <= limit for piece in parts[::2])
    for count in (count_words, len):
        parts = cut_line(line, count, limit)
        assert "".join(getattr(part, "space", part) for part in parts) == line
        assert all(not cut.space.strip() for cut in parts[1::2])


def test_a_long_line_is_cut_with_few_counts_into_pieces_as_long_as_possible():
    counted = []

    def count_characters(text):
        counted.append(len(text))
        return len(text)

    line = " ".join("a" * (1 + number % 7) for number in range(2000))
    parts = pieces(line, count_characters, 100)
    for piece, following in itertools.pairwise(parts):
        assert len(piece) <= 100 < len(f"{piece} {following.split()[0]}")
    assert sum(counted) < 50 * len(line)


@pytest.mark.parametrize(
    ("sentence", "following", "is_sure"),
    [
        ("Close the file.", "Then open it.", True),
        ("Wirklich?", "Ja.", True),
        ("\u4ed6\u8d70\u4e86\u3002", "\u6211\u6765\u4e86\u3002", True),
        ("Im 19.", "Jahrhundert war das anders.", False),
        ("M.", "Dupont est arriv\u00e9.", False),
        ("Open config.json.", "in the editor.", False),
        ("Approx.", "5 files", False),
        ("\u201c\u8d70\u5427\uff01\u201d", "\u4ed6\u8bf4\u3002", False),
        ("No.", "Yes.", False),
    ],
)
def test_where_a_sentence_ends_for_sure(sentence, following, is_sure):
    assert is_sure_end(sentence, following) == is_sure
