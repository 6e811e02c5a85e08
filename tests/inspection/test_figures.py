"""Labels of any text: characters that can be seen, and fonts that have them."""

import unicodedata
import warnings

import pytest

from vanilla_transformer.inspection import figures
from vanilla_transformer.inspection.figures import make_labels, new_figure, spread_indices

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
        (7, "7"),
    ],
)
def test_every_text_becomes_one_that_can_be_seen(text, shown, tmp_path):
    labels = make_labels([text])
    assert labels.texts == [shown]
    drawn(labels, tmp_path)


def test_wide_characters_count_twice():
    assert make_labels(["한" * 12]).texts == ["한" * 12]
    assert make_labels(["한" * 13]).texts == ["한" * 11 + "…"]


def test_a_font_that_has_a_character_draws_it(monkeypatch, tmp_path):
    text = of_one_font()
    monkeypatch.setattr(figures, "_FALLBACK_FONTS", ("STIXGeneral",))
    labels = make_labels([text, "dog"])
    assert labels.style["fontfamily"][-1] == "STIXGeneral"
    assert "STIXGeneral" in drawn(labels, tmp_path)


def test_a_character_without_a_font_is_a_box(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "_FALLBACK_FONTS", ("no such font",))
    figure = new_figure((4, 2))
    labels = make_labels(["\U00012000"])  # a sign of cuneiform
    figure.text(0.5, 0.5, labels.texts[0], **labels.style)
    with pytest.warns(UserWarning, match="CUNEIFORM SIGN A.* missing from font"):
        figure.savefig(tmp_path / "box.png")


def test_korean_and_chinese_are_drawn_where_a_font_is_installed(tmp_path):
    if not any(name.startswith("Noto Sans CJK") for name in font_manager.get_font_names()):
        pytest.skip("needs a font such as Debian's package fonts-noto-cjk")
    assert "NotoSansCJK" in drawn(make_labels(["한국어", "中文", "transformer"]), tmp_path)


def test_right_to_left_text_and_marks_are_drawn(tmp_path):
    texts = ["العربية", "עברית", "e\u0301\u0302", "\u0645\u06cc\u200c\u062e"]
    labels = make_labels(texts)
    assert labels.texts == texts
    drawn(labels, tmp_path)


def test_labels_keep_their_distance():
    assert spread_indices(5, cell=0.2, pitch=0.15) == [0, 1, 2, 3, 4]
    assert spread_indices(5, cell=0.1, pitch=0.15) == [0, 2, 4]
    assert spread_indices(7, cell=0.05, pitch=0.15) == [0, 3, 6]
    assert spread_indices(0, cell=0.05, pitch=0.15) == []
