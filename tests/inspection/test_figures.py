"""Labels of any text: characters that can be seen, and fonts that have them."""

import unicodedata
import warnings

import pytest

from vanilla_transformer.inspection import figures
from vanilla_transformer.inspection.figures import make_labels, new_figure

font_manager = pytest.importorskip("matplotlib.font_manager", reason="needs the extra `plot`")
FT2Font = pytest.importorskip("matplotlib.ft2font").FT2Font


def bundled(name):
    """The upright face of a font that matplotlib brings along."""
    return next(
        font
        for font in font_manager.fontManager.ttflist
        if font.name == name and font.weight == 400 and font.style == "normal"
    )


def of_one_font():
    """A character that STIXGeneral has and DejaVu Sans does not."""
    charmaps = [
        FT2Font(bundled(name).fname).get_charmap() for name in ("STIXGeneral", "DejaVu Sans")
    ]
    codes = sorted(set(charmaps[0]) - set(charmaps[1]))
    return next(chr(code) for code in codes if unicodedata.category(chr(code)) in ("Lo", "Sm"))


def drawn(labels, folder):
    """The picture of labels as SVG; a warning of matplotlib is an error."""
    figure = new_figure((8, 4))
    axes = figure.subplots()
    axes.set_xticks(range(len(labels.texts)), labels.texts, rotation=90, **labels.style)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # drawn as a box
        for suffix in ("png", "pdf", "svg"):
            figure.savefig(folder / f"labels.{suffix}")
    return (folder / "labels.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
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
    ],
)
def test_every_text_becomes_one_that_can_be_seen(text, shown, tmp_path):
    labels = make_labels([text])
    assert labels.texts == [shown]
    drawn(labels, tmp_path)


def test_a_font_that_has_a_character_draws_it(monkeypatch, tmp_path):
    text = of_one_font()
    monkeypatch.setattr(figures, "_FALLBACK_FONTS", ("STIXGeneral",))
    labels = make_labels([text, "dog"])
    assert labels.style["fontfamily"][-1] == "STIXGeneral"
    assert "STIXGeneral" in drawn(labels, tmp_path)
