"""Draws the effect of each attention head on a score, as `head_scores` measures it."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from vanilla_transformer.inspection.figures import add_title, new_figure
from vanilla_transformer.inspection.labels import make_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NUMBERS = 16  # heads beside each other whose cells have room for a number


def plot_head_scores(
    changes: Mapping[str, torch.Tensor], *, score: str = "score", title: str = ""
) -> "Figure":
    """Draws a heat map for each attention module: how a score changes without each head.

    All modules share one colour scale, which is symmetric around 0. Each cell also holds its
    number, with a sign, so that the picture can be read in shades of grey. Cells of modules with
    more than 16 heads have no number.

    Args:
        changes: As `head_scores` returns them: a tensor of shape (layers, heads) by module.
        score: Name and unit of the score, such as "loss in nats".
        title: Text above the panels.

    Returns:
        A matplotlib figure. Save it with `.savefig("heads.png")`.

    Raises:
        ValueError: If there are no changes, or not two dimensions of them.
        ModuleNotFoundError: If matplotlib is not installed.
    """
    for name, change in changes.items():
        if change.dim() != 2 or change.numel() == 0:
            raise ValueError(
                f"`changes` of {name!r} have the shape {tuple(change.shape)}: give (layers, heads)."
            )
    if not changes:
        raise ValueError("`changes` are empty: give what `head_scores` returns.")
    most = max(change.abs().nan_to_num().max().item() for change in changes.values()) or 1.0
    shapes = [(change.shape[0], change.shape[1]) for change in changes.values()]
    figure, grid = _make_panels(shapes)
    add_title(figure, title)
    for axes, (name, change) in zip(grid, changes.items(), strict=True):
        image = _draw_changes(axes, change.detach().float().cpu(), most)
        axes.set_title(name, fontsize=11)
    shrink = min(1.0, 4 / figure.get_figheight())
    bar = figure.colorbar(image, ax=grid, pad=0.02, shrink=shrink, aspect=20)
    label = make_labels([f"change of the {score}"], longest=60)
    bar.set_label(label.texts[0], **label.style)
    bar.outline.set_visible(False)
    return figure


def _make_panels(shapes: list[tuple[int, int]]) -> tuple["Figure", list[Any]]:
    """Makes a figure with a panel for each shape (layers, heads): few heads side by side."""
    layers, heads = zip(*shapes, strict=True)
    if sum(heads) <= _MOST_NUMBERS:
        figure = new_figure((max(2.0 + 0.6 * sum(heads), 6.0), 1.5 + 0.45 * max(layers)))
        return figure, list(figure.subplots(1, len(shapes), squeeze=False, width_ratios=heads)[0])
    wide = 0.68 if max(heads) <= _MOST_NUMBERS else 0.25
    figure = new_figure(
        (2.0 + wide * max(heads), 0.6 + sum(0.9 + 0.36 * count for count in layers))
    )
    grid = figure.subplots(len(shapes), 1, squeeze=False, height_ratios=layers)
    return figure, list(grid[:, 0])


def _draw_changes(axes: Any, change: torch.Tensor, most: float) -> Any:
    """Draws the changes of one module, of shape (layers, heads)."""
    image = axes.imshow(change.numpy(), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    layers, heads = change.shape
    step = 1 if heads <= _MOST_NUMBERS else 4
    axes.set_xticks(range(0, heads, step))
    axes.set_yticks(range(layers))
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if heads > _MOST_NUMBERS:
        return image
    for layer in range(layers):
        for head in range(heads):
            value = change[layer, head].item()
            colour = "white" if abs(value) > 0.6 * most else "black"
            text = _format_change(value, most)
            axes.text(head, layer, text, ha="center", va="center", color=colour, fontsize=8)
    return image


def _format_change(value: float, most: float) -> str:
    """Formats a number with a sign and with as many places as the largest one needs for two."""
    places = 1 - math.floor(math.log10(most))
    rounded = round(value, max(places, 0)) + 0.0  # the sum turns -0.0 into 0.0
    return f"{rounded:+.{max(places, 0)}f}" if places <= 4 else f"{value:+.0e}"
