"""What a person types is taken, or refused with a message that names the cause."""

import pytest

from vanilla_transformer.serving.page_text import MOST_CHARACTERS, MOST_LINES, check_text


def test_lines_are_split_and_blank_ones_dropped():
    assert check_text("one\r\n\n  two \n") == ("one", "  two ")


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f467 \U0001f389",  # emoji, two of them joined
        "\u0645\u0631\u062d\u0628\u0627",  # from right to left
        "\u202eabc",  # turned round
        "e\u0301",
        "a\tb",
        "<script>alert(1)</script>",
        "{{x}} ${y}",
    ],
)
def test_unusual_text_is_taken_as_it_is(text):
    assert check_text(text) == (text,)


def test_as_much_as_is_allowed_is_taken():
    assert len(check_text("\n".join(["a"] * MOST_LINES))) == MOST_LINES
    assert check_text("a" * MOST_CHARACTERS) == ("a" * MOST_CHARACTERS,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "The text is empty"),
        ("", "The text is empty"),
        (" \t", "The text is blank"),
        ("\n" * 10_000, "The text has 10,001 lines, and all are blank"),
        ("a" * 1_000_000, "The text has 1,000,000 characters, and the page takes 2,000"),
        ("a\n" * 100, "The text has 101 lines, and the page takes 20"),
        ("a\x00b", r"Character 2 of line 1 is a control character \(U\+0000\)"),
        ("a\nbc\x1b[1m", r"Character 3 of line 2 is a control character \(U\+001B\)"),
        ("\x85", r"The text is blank|control character \(U\+0085\)"),
        ("ab\ud83d", r"Character 3 of line 1 is half of a surrogate pair \(U\+D83D\)"),
    ],
)
def test_a_message_names_the_cause(text, message):
    with pytest.raises(ValueError, match=message) as error:
        check_text(text)
    assert str(error.value).encode("utf-8")  # it can be sent, whatever the text was
