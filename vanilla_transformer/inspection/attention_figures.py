"""Draws attention weights: all heads of a layer or of all layers, and source against target.

The colours run from white (0) to dark blue, so that they stay readable in shades of grey. A further
picture shows the effect of each head on a score, as `head_scores` measures it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from vanilla_transformer.inspection.figures import (
    Labels,
    add_scale,
    add_title,
    make_labels,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = "Blues"
_FULL_WIDTH = 9.0  # inches; at this width the labels are readable on a page
_MOST_INCHES = 32.0


def plot_heads(
    weights: torch.Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    top: float | None = 1.0,
) -> "Figure":
    """Draws a heat map for each head of a layer, or of all layers.

    Args:
        weights: Attention weights of shape (heads, query_len, key_len), or (layers, heads,
            query_len, key_len): then each row of panels is a layer.
        rows: The tokens that attend, of length query_len. If there is no room for all, each second
            one is named, or each third, and so on.
        columns: The tokens that are attended to, of length key_len.
        top: Weight of the darkest colour. None: the largest weight in the picture, which shows
            more of long texts, where each weight is small.

    Raises:
        ValueError: If the weights do not fit the tokens.
    """
    weights = _check_weights(weights, (3, 4), len(rows), len(columns))
    panels = weights.flatten(0, -3)
    is_layered = weights.dim() == 4
    wide, cell = _choose_grid(weights, len(rows), len(columns))
    high = -(-len(panels) // wide)
    labels = make_labels(columns), make_labels(rows)
    margins = 1.5 + labels[1].width(8), 0.7 + labels[0].width(8)
    widths = wide * (0.1 + cell * len(columns)), high * (0.3 + cell * len(rows))
    figure = new_figure((margins[0] + widths[0], margins[1] + widths[1]))
    grid = figure.subplots(high, wide, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index >= len(panels):
            axes.set_visible(False)
            continue
        image = _draw_weights(axes, panels[index])
        image.set_clim(0, panels.nan_to_num().max().item() if top is None else top)
        if not is_layered or index < wide:
            axes.set_title(f"head {index}", fontsize=10, fontweight="bold")
        if is_layered and index % wide == 0:
            axes.set_ylabel(f"layer {index // wide}", fontsize=10, fontweight="bold")
        if index % wide == 0:
            _name_cells(axes, "y", labels[1], cell)
        if index + wide >= len(panels):  # no panel below: the last row may be short
            _name_cells(axes, "x", labels[0], cell)
    add_title(figure, title)
    figure.supxlabel("token that is attended to", fontsize=10)
    figure.supylabel("token that attends", fontsize=10)
    add_scale(figure, image, grid, "attention weight")
    return figure


def plot_alignment(
    source: Sequence[str],
    target: Sequence[str],
    weights: torch.Tensor,
    *,
    links: Collection[tuple[int, int]] = (),
    title: str = "",
    source_label: str = "source",
    target_label: str = "target",
) -> "Figure":
    """Draws a source against a target, with the weight between each pair of tokens.

    Args:
        source: Tokens of the source, of length source_len; they are the columns.
        target: Tokens of the target, of length target_len; they are the rows.
        weights: Weights from 0 to 1, of shape (target_len, source_len), such as the mean over the
            heads of a layer of cross-attention, `maps.cross[layer].mean(0)`.
        links: Pairs (index in the source, index in the target) that get a dot, such as a word
            alignment. Places count from 0.

    Raises:
        ValueError: If the weights do not fit the tokens.
    """
    cell = min(0.36, _MOST_INCHES / max(len(source), len(target), 1))
    margins = 1.5 + make_labels(target).width(11), 0.5 + make_labels(source).width(11)
    figure = new_figure((margins[0] + cell * len(source), margins[1] + cell * len(target)))
    add_title(figure, title)
    axes = figure.subplots()
    size = 11 if cell > 0.19 else 8
    image = draw_alignment(axes, source, target, weights, links=links, cell=cell, size=size)
    names = make_labels([source_label, target_label], longest=60)
    axes.set_xlabel(names.texts[0], fontsize=11, **names.style)
    axes.set_ylabel(names.texts[1], fontsize=11, **names.style)
    add_scale(figure, image, axes, "attention weight")
    return figure


def draw_alignment(
    axes: Any,
    source: Sequence[str],
    target: Sequence[str],
    weights: torch.Tensor,
    *,
    links: Collection[tuple[int, int]] = (),
    cell: float = 0.36,
    size: float = 11,
) -> Any:
    """Draws an alignment into a part of a figure; returns the image, for a colour bar.

    The smaller side of a cell, in inches, decides how many tokens are named.
    """
    weights = _check_weights(weights, (2,), len(target), len(source))
    image = _draw_weights(axes, weights)
    image.set_clim(0, 1)
    _name_cells(axes, "x", make_labels(source), cell, size)
    _name_cells(axes, "y", make_labels(target), cell, size)
    axes.spines[:].set_visible(False)
    if cell >= 0.2:  # room for white lines between the cells
        axes.set_xticks([edge + 0.5 for edge in range(len(source) - 1)], minor=True)
        axes.set_yticks([edge + 0.5 for edge in range(len(target) - 1)], minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="minor", length=0)
    if links:
        columns, rows = zip(*links, strict=True)
        axes.scatter(columns, rows, s=(20 * cell) ** 2, c="#d55e00", edgecolors="white", zorder=3)
    return image


def _check_weights(
    weights: torch.Tensor, dims: tuple[int, ...], query_len: int, key_len: int
) -> torch.Tensor:
    """Returns weights in float32 on the CPU; weights of other tokens would get wrong names."""
    weights = torch.as_tensor(weights).detach().float().cpu()
    if weights.dim() not in dims or weights.shape[-2:] != (query_len, key_len):
        raise ValueError(
            f"`weights` has the shape {tuple(weights.shape)}, but {query_len} tokens attend and "
            f"{key_len} are attended to."
        )
    return weights


def _choose_grid(weights: torch.Tensor, rows: int, columns: int) -> tuple[int, float]:
    """Returns the number of panels beside each other, and the size of a cell in inches."""
    heads = weights.shape[-3]
    if weights.dim() == 4:
        most = max(_FULL_WIDTH / heads, 0.8)
        return heads, min(0.2, max(most, 0.01 * columns) / columns, _MOST_INCHES / rows)
    cell = min(0.2, _MOST_INCHES / 4 / max(rows, columns))
    return min(heads, max(2, min(4, int(_FULL_WIDTH / (cell * columns))))), cell


def _draw_weights(axes: Any, weights: torch.Tensor) -> Any:
    """Draws one heat map without names of its cells."""
    image = axes.imshow(weights.numpy(), cmap=_COLOURS, aspect="auto", interpolation="auto")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_edgecolor("#888888")
    return image


def _name_cells(axes: Any, axis: str, labels: Labels, cell: float, size: float = 8) -> None:
    """Names the columns ("x") or rows ("y") of a heat map, as far as there is room."""
    step = max(1, math.ceil(0.017 * size / cell - 0.05))  # in long texts, not all have room
    ticks = range(0, len(labels.texts), step)
    texts = [labels.texts[tick] for tick in ticks]
    room = cell * step
    upright = axis == "y" or labels.width(size) <= 1.1 * room
    style = {"fontsize": size, "rotation": 0 if upright else 90, **labels.style}
    getattr(axes, f"set_{axis}ticks")(ticks, texts, **style)
    axes.tick_params(length=0)


def plot_head_scores(
    changes: Mapping[str, torch.Tensor], *, score: str = "score", title: str = ""
) -> "Figure":
    """Draws a heat map for each attention module: how a score changes without each head.

    All modules share one colour scale, which is symmetric around 0. Each cell also holds its
    number, with a sign, so that the picture can be read in shades of grey.

    Args:
        changes: As `head_scores` returns them: a tensor of shape (layers, heads) by module.
    """
    most = max(change.abs().nan_to_num().max().item() for change in changes.values()) or 1.0
    layers, heads = zip(*(change.shape for change in changes.values()), strict=True)
    size = max(6.0, 2.0 + 0.6 * max(heads)), 0.6 + sum(0.9 + 0.36 * count for count in layers)
    figure = new_figure(size)
    grid = figure.subplots(len(changes), 1, squeeze=False, height_ratios=layers)[:, 0]
    add_title(figure, title)
    for axes, (name, change) in zip(grid, changes.items(), strict=True):
        values = change.detach().float().cpu()
        image = axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
        for layer, row in enumerate(values.tolist()):
            for head, value in enumerate(row):
                colour = "white" if abs(value) > 0.6 * most else "black"
                style = {"ha": "center", "va": "center", "color": colour, "fontsize": 8}
                axes.text(head, layer, f"{value:+.2g}", **style)
        axes.set_title(name, fontsize=11)
        axes.set(xlabel="head", ylabel="layer")
        axes.set(xticks=range(change.shape[1]), yticks=range(change.shape[0]))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    add_scale(figure, image, list(grid), f"change of the {score}")
    return figure
