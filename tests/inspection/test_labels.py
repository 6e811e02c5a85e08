"""Labels of any text: characters that can be seen, fonts that have them, one note if none has."""

import unicodedata
import warnings
from pathlib import Path

import pytest

from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.inspection.labels import make_labels, spread_indices

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra `plot`")
font_manager = pytest.importorskip("matplotlib.font_manager")
FT2Font = pytest.importorskip("matplotlib.ft2font").FT2Font
FAMILIES = ("STIXGeneral", "DejaVu Sans")
BUNDLED = Path(matplotlib.get_data_path())


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


@pytest.fixture
def only_dejavu(monkeypatch):
    """A machine with no fonts but DejaVu, and the list of its files that tests may extend."""
    fonts = [
        font
        for font in font_manager.fontManager.ttflist
        if font.name.startswith(("DejaVu", "Last Resort")) and BUNDLED in Path(font.fname).parents
    ]
    files = []
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: files)
    return files


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


def test_wide_characters_count_twice(only_dejavu):
    assert make_labels(["한" * 12]).texts == ["□" * 12]
    assert make_labels(["한" * 13]).texts == ["□" * 11 + "…"]


def test_without_a_font_there_is_one_note_for_each_package(only_dejavu, heard, tmp_path):
    for _ in range(2):
        labels = make_labels(["한국어", "中文", "ひらがな", "👨", "ไทย", "dog"])
        assert labels.texts == ["□□□", "□□", "□□□□", "□", "□□□", "dog"]
        drawn(labels, tmp_path)
    assert len(heard.messages) == 3
    for package in ("fonts-noto-cjk", "fonts-symbola", "fonts-noto-core"):
        assert sum(f"apt-get install {package}" in message for message in heard.messages) == 1
    assert "Chinese, Japanese or Korean characters" in "".join(heard.messages)


def test_a_font_that_was_installed_later_is_found(monkeypatch, heard, tmp_path):
    other, usual, text = bundled("STIXGeneral"), bundled("DejaVu Sans"), of_one_font()
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [usual])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [usual.fname])
    assert make_labels([text]).texts == ["□"]
    assert len(heard.messages) == 1
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [usual.fname, other.fname])
    labels = make_labels([text, "dog"])
    assert labels.texts == [text, "dog"]
    assert labels.style["fontfamily"][-1] == "STIXGeneral"
    assert "STIXGeneral" in drawn(labels, tmp_path)
    assert len(heard.messages) == 1


def test_what_no_one_font_can_draw_together_is_boxes(monkeypatch, heard, tmp_path):
    fonts = [bundled("DejaVu Sans"), bundled("STIXGeneral")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    text = of_one_font() + "\u05b8"  # a Hebrew mark, which only the other font has
    labels = make_labels([text, f"a{text}b", of_one_font(), "\u05d0\u05b8"])
    assert labels.texts == ["□□", "a□□b", of_one_font(), "\u05d0\u05b8"]
    drawn(labels, tmp_path)
    assert heard.messages == ["Labels with marks of several scripts are drawn as □."]


def test_a_damaged_font_file_is_passed_over(only_dejavu, heard, tmp_path):
    damaged = tmp_path / "Damaged.ttf"
    damaged.write_bytes(b"no font")
    only_dejavu.append(str(damaged))
    assert make_labels(["中"]).texts == ["□"]
    assert len(heard.messages) == 1


def test_korean_and_chinese_are_drawn_where_a_font_is_installed(heard, tmp_path):
    if not any("cjk" in path.lower() for path in font_manager.findSystemFonts()):
        pytest.skip("needs a font such as Debian's package fonts-noto-cjk")
    labels = make_labels(["한국어", "中文", "transformer"])
    assert labels.texts == ["한국어", "中文", "transformer"]
    assert "CJK" in labels.style["fontfamily"][-1]
    assert "NotoSansCJK" in drawn(labels, tmp_path)
    assert not heard.messages


def test_right_to_left_text_and_marks_are_drawn(only_dejavu, heard, tmp_path):
    texts = ["العربية", "עברית", "e\u0301\u0302", "\u0645\u06cc\u200c\u062e"]
    labels = make_labels(texts)
    assert labels.texts == texts
    drawn(labels, tmp_path)
    assert not heard.messages


def test_labels_keep_their_distance():
    assert spread_indices(5, cell=0.2, pitch=0.15) == [0, 1, 2, 3, 4]
    assert spread_indices(5, cell=0.1, pitch=0.15) == [0, 2, 4]
    assert spread_indices(7, cell=0.05, pitch=0.15) == [0, 3, 6]
    assert spread_indices(0, cell=0.05, pitch=0.15) == []
