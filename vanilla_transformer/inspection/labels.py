"""Labels of figures: any text as characters that can be seen, in fonts that have them."""

import math
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from transformers.utils import logging

from vanilla_transformer.extras import optional_packages

logger = logging.get_logger(__name__)

MISSING = "\N{WHITE SQUARE}"
"""Stands for a character that no installed font has."""

_JOINERS = "\u200c\u200d"
_VARIATIONS = range(0xFE00, 0xFE10)  # they choose between forms of the character before
_SPACE = "\N{OPEN BOX}"
_FIRST_FONTS = ("Noto Sans CJK", "Noto Sans", "Sans", "Gothic", "Hei", "Noto Emoji", "Symbola")
_UNUSABLE_FONTS = ("Last Resort", "Color Emoji")  # boxes for all characters; bitmaps


@dataclass(frozen=True)
class Labels:
    """Texts that can be drawn.

    Attributes:
        texts: One for each text that was given.
        style: Arguments for matplotlib: fonts that have the characters, and no formulas.
    """

    texts: list[str]
    style: dict[str, Any]

    def width(self, size: float) -> float:
        """Returns the room in inches that the longest text needs, about, at a size in points."""
        return 0.0088 * size * max((sum(map(_width_of, text)) for text in self.texts), default=0)


def make_labels(texts: Iterable[object], longest: int = 24) -> Labels:
    r"""Makes labels of any texts, and finds the fonts for them.

    A control character becomes its escape (`\n`), a space at an end becomes `␣`, and a long text
    ends with `…`. A character that no installed font has becomes `□`; a warning, once, tells which
    fonts to install. Fonts that were installed after matplotlib's first start are found too.

    Args:
        texts: The texts, such as tokens.
        longest: Width at which a text is cut, in characters; a wide one, such as 한, counts twice.

    Returns:
        The labels.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    shown = [_shorten_text(_show_characters(str(text)), longest) for text in texts]
    families, missing = _find_fonts({ord(char) for text in shown for char in text})
    _warn_of_missing(missing)
    boxes = dict.fromkeys(missing, MISSING)
    drawable = [_make_drawable(text.translate(boxes), families) for text in shown]
    return Labels(drawable, {"fontfamily": families, "parse_math": False})


def _show_characters(text: str) -> str:
    """Replaces what cannot be seen, and what would change the text around it."""
    if not text:
        return '""'
    inner = text.strip(" ")
    start = len(text) - len(text.lstrip(" "))
    text = _SPACE * start + inner + _SPACE * (len(text) - start - len(inner))
    befores = " " + text[:-1]
    return "".join(map(_show_character, text, befores))


def _show_character(char: str, before: str) -> str:
    if ord(char) in _VARIATIONS or (char in _JOINERS and unicodedata.category(before)[0] == "S"):
        return ""  # parts of an emoji
    category = unicodedata.category(char)
    hidden = category in ("Cc", "Cs", "Zl", "Zp") or (category == "Cf" and char not in _JOINERS)
    return char.encode("unicode_escape").decode() if hidden else char


def _width_of(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _shorten_text(text: str, longest: int) -> str:
    widths = [_width_of(char) for char in text]
    if sum(widths) <= longest:
        return text
    kept = sum(total < longest for total in accumulate(widths))
    return text[:kept] + "…"


def _make_drawable(text: str, families: list[str]) -> str:
    """Replaces the characters beyond ASCII of a text whose parts no one font can draw together.

    A mark is drawn in the font of the character that it stands on; such a text has a mark of one
    script on a character of another one.
    """
    if text.isascii() or _is_drawable(text, families):
        return text
    logger.warning_once(f"Labels with marks of several scripts are drawn as {MISSING}.")
    return "".join(char if char.isascii() else MISSING for char in text)


def _is_drawable(text: str, families: list[str]) -> bool:
    """Lays a text out, and returns whether all glyphs were found."""
    with optional_packages():
        from matplotlib.font_manager import FontProperties, findfont, get_font
    font = get_font([findfont(FontProperties(family=[family])) for family in families])
    with warnings.catch_warnings(record=True) as problems:
        warnings.simplefilter("always")
        font.set_text(text)
    return not problems


def _find_fonts(characters: set[int]) -> tuple[list[str], set[int]]:
    """Finds fonts for characters.

    Returns:
        Names of fonts, the default ones first, and the characters that none of them has.
    """
    with optional_packages():
        from matplotlib import font_manager, rcParams
    families = [*rcParams["font.family"], "DejaVu Sans"]
    missing = set(characters)
    for family in families:
        missing -= _characters_of(family, missing)
    if missing:
        _add_new_fonts(font_manager)
    for family in _other_families(font_manager) if missing else ():
        if found := _characters_of(family, missing):
            families.append(family)
            missing -= found
        if not missing:
            break
    return families, missing


def _add_new_fonts(font_manager: Any) -> None:
    """Tells matplotlib of the fonts that were installed after it wrote its list of fonts."""
    known = {font.fname for font in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known and "Color" not in path:
            try:
                font_manager.fontManager.addfont(path)
            except (OSError, RuntimeError):  # a damaged file, or a format without outlines
                logger.debug("The font %s cannot be read.", path)


def _other_families(font_manager: Any) -> Iterator[str]:
    """Yields the names of all fonts, plain faces of many scripts first."""
    fonts = font_manager.fontManager.ttflist
    names = {font.name for font in fonts if font.style == "normal" and font.weight == 400}
    usable = [name for name in names if not any(part in name for part in _UNUSABLE_FONTS)]

    def rank(name: str) -> tuple[int, str]:
        places = (place for place, part in enumerate(_FIRST_FONTS) if part in name)
        return next(places, len(_FIRST_FONTS)), name

    yield from sorted(usable, key=rank)


def _characters_of(family: str, wanted: set[int]) -> set[int]:
    """Returns those of the wanted characters that the font has."""
    with optional_packages():
        from matplotlib.font_manager import FontProperties, findfont
        from matplotlib.ft2font import FT2Font
    try:
        face = FT2Font(findfont(FontProperties(family=[family]), fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):  # no such font, a damaged one, or bitmaps
        return set()
    return {code for code in wanted if face.get_char_index(code)}


def _warn_of_missing(missing: set[int]) -> None:
    """Warns once for each font package that would have the characters."""
    for package, kind in sorted({_package_for(code) for code in missing}):
        logger.warning_once(
            f"No installed font has some {kind} of the labels: they are drawn as {MISSING}. "
            f"Install a font that has them, such as Debian's and Ubuntu's package {package} "
            f"(apt-get install {package}), and draw again."
        )


def _package_for(code: int) -> tuple[str, str]:
    """Returns a package with fonts for a character, and what the character belongs to."""
    name = unicodedata.name(chr(code), "")
    if name.startswith(("CJK", "HANGUL", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "BOPOMOFO")):
        return "fonts-noto-cjk", "Chinese, Japanese or Korean characters"
    if name.startswith(("FULLWIDTH", "HALFWIDTH")):
        return "fonts-noto-cjk", "Chinese, Japanese or Korean characters"
    if unicodedata.category(chr(code)).startswith("S"):
        return "fonts-symbola", "symbols or emoji"
    return "fonts-noto-core", "characters"


def spread_indices(count: int, cell: float, pitch: float) -> list[int]:
    """Chooses which of many labels are drawn, so that they do not overlap.

    Args:
        count: Number of labels.
        cell: Distance between two of them in inches.
        pitch: Room that a label needs, in inches.

    Returns:
        Indices at equal distances; all of them if there is room.
    """
    return list(range(0, count, max(1, math.ceil(pitch / cell - 0.05))))
