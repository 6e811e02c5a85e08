"""Makes the figures that the package draws in, their titles, and labels of any text."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_JOINERS = "\u200c\u200d"
_VARIATIONS = range(0xFE00, 0xFE10)  # they choose a variant of the character before
_SPACE = "\N{OPEN BOX}"
_FALLBACK_FONTS = (
    *("Noto Sans", "Noto Emoji", "Symbola", "WenQuanYi", "Droid Sans Fallback", "Unifont"),
    *("Arial Unicode MS", "Malgun Gothic", "Microsoft YaHei", "Apple SD Gothic", "Hiragino Sans"),
)
"""Begins of the names of fonts with many scripts, for characters that the usual font lacks."""


def new_figure(size: tuple[float, float], dpi: float = 100) -> "Figure":
    """Makes an empty figure, `size` inches wide and high. It needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=dpi, layout="constrained")


def add_title(figure: "Figure", title: str) -> None:
    """Writes a title above a figure."""
    if title:
        labels = make_labels([title], longest=100)
        figure.suptitle(labels.texts[0], fontsize=12, **labels.style)


def add_scale(figure: "Figure", image: Any, axes: Any, name: str) -> None:
    """Draws the colours of an image and their meaning beside the axes."""
    shrink = min(0.8, 4 / figure.get_figheight())
    bar = figure.colorbar(image, ax=axes, shrink=shrink, aspect=25, pad=0.02)
    bar.set_label(name, fontsize=10, parse_math=False)
    bar.outline.set_visible(False)


@dataclass(frozen=True)
class Labels:
    """Texts that can be drawn.

    Attributes:
        texts: The labels, in the order of the texts.
        style: Arguments for matplotlib: fonts of many scripts, and no formulas.
    """

    texts: list[str]
    style: dict[str, Any]

    def width(self, size: float) -> float:
        """Returns the room in inches that the longest text needs, about, at a size in points."""
        return 0.0088 * size * max((sum(map(_width_of, text)) for text in self.texts), default=0)


def make_labels(texts: Iterable[object], longest: int = 24) -> Labels:
    r"""Makes labels of any texts.

    A control character becomes its escape (`\n`), a space at an end becomes `␣`, and a long text
    ends with `…`. Matplotlib draws a character that no installed font has as a box, and warns.

    Args:
        longest: Width at which a text is cut, in characters; a wide one, such as 한, counts twice.
    """
    from matplotlib import font_manager, rcParams

    installed = sorted(font_manager.get_font_names())
    fallbacks = [name for name in installed if name.startswith(_FALLBACK_FONTS)]
    families = [*rcParams["font.family"], "DejaVu Sans", *fallbacks]
    shown = [_shorten_text(_show_characters(str(text)), longest) for text in texts]
    return Labels(shown, {"fontfamily": families, "parse_math": False})


def _show_characters(text: str) -> str:
    """Replaces characters that cannot be seen, or would change the text around them."""
    text = re.sub("^ +| +$", lambda spaces: _SPACE * len(spaces[0]), text)
    return "".join(
        char if char.isprintable() or char in _JOINERS else char.encode("unicode_escape").decode()
        for char in text or '""'
        if ord(char) not in _VARIATIONS
    )


def _width_of(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _shorten_text(text: str, longest: int) -> str:
    widths = [_width_of(char) for char in text]
    if sum(widths) <= longest:
        return text
    kept = sum(total < longest for total in accumulate(widths))
    return text[:kept] + "…"
