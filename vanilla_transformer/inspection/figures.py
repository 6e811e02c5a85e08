"""Makes the figures that the package draws in."""

from typing import TYPE_CHECKING

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.inspection.labels import make_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(size: tuple[float, float], dpi: float = 100, is_arranged: bool = True) -> "Figure":
    """Makes an empty figure. It needs no display.

    Args:
        size: Width and height in inches.
        dpi: Pixels per inch.
        is_arranged: Whether matplotlib arranges the parts so that they do not overlap.

    Returns:
        A matplotlib figure.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    with optional_packages():
        from matplotlib.figure import Figure
    return Figure(figsize=size, dpi=dpi, layout="constrained" if is_arranged else None)


def add_title(figure: "Figure", title: str) -> None:
    """Writes a title above a figure.

    Args:
        figure: The figure.
        title: Any text; an empty one takes no room.
    """
    if title:
        labels = make_labels([title], longest=100)
        figure.suptitle(labels.texts[0], fontsize=12, **labels.style)
