"""Makes the figures that the package draws in."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(size: tuple[float, float], dpi: float = 100) -> "Figure":
    """Makes an empty figure. It needs no display.

    Args:
        size: Width and height in inches.
        dpi: Pixels per inch.

    Returns:
        A matplotlib figure.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'matplotlib is not installed: pip install "vanilla-transformer[plot]"'
        ) from error
    return Figure(figsize=size, dpi=dpi, layout="constrained")
