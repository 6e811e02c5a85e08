"""Labels of any text: characters that can be seen."""

import warnings

import pytest

from vanilla_transformer.inspection.figures import make_labels, new_figure

pytest.importorskip("matplotlib", reason="needs the extra `plot`")


SHOWN = [
    ("$a$ \\alpha", "$a$ \\alpha"),
    ("a\nb\tc\0", "a\\nb\\tc\\x00"),
    ("\x85\u2028\u202eabc", "\\x85\\u2028\\u202eabc"),
    ("\udc80", "\\udc80"),
    ("", '""'),
    (" ", "␣"),
    ("  of a ", "␣␣of a␣"),
    ("▁hello", "▁hello"),
    ("❤\ufe0f", "❤"),
    ("a" * 24, "a" * 24),
    ("a" * 25, "a" * 23 + "…"),
    ("한" * 12, "한" * 12),
    ("한" * 13, "한" * 11 + "…"),
    ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    (7, "7"),
]


def test_every_text_becomes_one_that_can_be_seen(tmp_path):
    labels = make_labels([text for text, _ in SHOWN])
    assert labels.texts == [shown for _, shown in SHOWN]
    figure = new_figure((8, 4))
    figure.subplots().set_xticks(range(len(SHOWN)), labels.texts, rotation=90, **labels.style)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # drawn as a box
        for suffix in ("png", "pdf", "svg"):
            figure.savefig(tmp_path / f"labels.{suffix}")
