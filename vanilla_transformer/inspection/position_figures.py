"""Draws what the position module of a stack computes, for every position scheme.

Encodings that are added are a heat map, rotations are angles, biases are curves over the distance.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.model.modes import evaluation_mode
from vanilla_transformer.model.positions import LearnedPositions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Stack = Literal["encoder", "decoder"]

_STYLES = ("-", "--", ":", "-.")  # tell curves apart without colours
_MOST_CURVES = 8
_LENGTH = 64
_HEAT_MAP: dict[str, Any] = {"cmap": "cividis", "aspect": "auto", "interpolation": "nearest"}


def plot_positions(
    model: nn.Module, stack: Stack | None = None, length: int | None = None
) -> "Figure":
    """Draws the positions that a stack of a model computes.

    The model's own module computes them, so that trained values, offsets and scaled rotations are
    those of the model. The picture depends on `position_embedding_type`. Sinusoids and learned
    vectors: their values, and the cosine similarity of each two positions. "rope": the angle by
    which each pair of dimensions is rotated, and the cosines of some pairs. "alibi" and "relative":
    the bias of each head over the distance from the query to the key.

    Args:
        model: A model of this package, or a wrapper around one.
        stack: "encoder" or "decoder". None: the encoder, if the model has one.
        length: Number of positions, from 0. None: 64, or as many as are learned if these are fewer.

    Raises:
        ValueError: If the model has no such stack or no positions, if `length` is below 2, or if
            learned positions are fewer.
    """
    name, module = _find_positions(model, stack)
    if length is None:
        length = _LENGTH
        if isinstance(module, LearnedPositions):
            length = min(length, len(module.weight) - module.offset)
    if length < 2:
        raise ValueError(f"`length` is {length}: give at least 2 positions.")
    is_causal = name == "decoder"
    with evaluation_mode(model):
        encoding = _compute_positions(module, length, is_causal)
    heading = f"{name}: {type(module).__name__}"
    if encoding.embedding is not None:
        return _draw_embedding(encoding.embedding[0].float().cpu(), heading)
    if encoding.rotation is not None:
        cosines, sines = (part[0, 0].float().cpu() for part in encoding.rotation)
        return _draw_rotation(cosines, sines, heading)
    if encoding.bias is not None:
        return _draw_bias(encoding.bias[0, :, 0].float().cpu(), length, is_causal, heading)
    raise ValueError(
        f"The {name} has no positions to draw: its `position_embedding_type` is 'none'."
    )


def _find_positions(model: nn.Module, stack: Stack | None) -> tuple[str, nn.Module]:
    """Returns the name of a stack, and its position module."""
    if stack not in (None, "encoder", "decoder"):
        raise ValueError(f"`stack` is {stack!r}: choose 'encoder' or 'decoder'.")
    found = {}
    itself = "decoder" if getattr(model, "is_causal_stack", False) else "encoder"
    for path, module in model.named_modules():
        parts = path.split(".")
        if parts[-1] == "embed_positions":
            found[parts[-2] if len(parts) > 1 else itself] = module
    name = stack or next((name for name in ("encoder", "decoder") if name in found), None)
    if name not in found:
        raise ValueError(
            f"The model has no {name or 'stack'} with positions; it has {list(found) or 'none'}."
        )
    return str(name), found[name]


def _compute_positions(module: nn.Module, length: int, is_causal: bool) -> Any:
    """Calls a position module. A bias is computed for one query and the keys around it."""
    weight = next(module.parameters(), torch.empty(0))
    positions = torch.arange(length, device=weight.device)[None]
    encoding = module(positions, torch.float32)
    if encoding.bias is None:
        return encoding
    keys = torch.arange(length if is_causal else 2 * length - 1, device=weight.device)[None]
    return module(positions[:, -1:], torch.float32, keys)


def _make_panels(heading: str, widths: tuple[float, float]) -> tuple["Figure", Any, Any]:
    """Makes a figure with two panels of these relative widths."""
    figure = new_figure((9, 4))
    figure.suptitle(heading, fontsize=12)
    left, right = figure.subplots(1, 2, width_ratios=widths)
    return figure, left, right


def _name_axes(axes: Any, title: str, x: str, y: str = "") -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _draw_embedding(values: torch.Tensor, heading: str) -> "Figure":
    """Draws values of shape (length, d_model)."""
    figure, left, right = _make_panels(heading, (1.25, 1))
    most = values.abs().max().item() or 1.0
    image = left.imshow(values.numpy(), cmap="cividis", vmin=-most, vmax=most, aspect="auto")
    _name_axes(left, "value that is added", "dimension", "position")
    figure.colorbar(image, ax=left, pad=0.02).outline.set_visible(False)
    unit = F.normalize(values, dim=-1)
    image = right.imshow((unit @ unit.T).numpy(), cmap="Blues", vmax=1)
    _name_axes(right, "cosine similarity of two positions", "position")
    figure.colorbar(image, ax=right, shrink=0.9, pad=0.02).outline.set_visible(False)
    return figure


def _draw_rotation(cosines: torch.Tensor, sines: torch.Tensor, heading: str) -> "Figure":
    """Draws cosines and sines of shape (length, rotated_dim), as `PositionEncoding` holds them."""
    pairs = cosines.shape[-1] // 2
    angles = torch.atan2(sines, cosines)[:, pairs:].rad2deg() % 360
    figure, left, right = _make_panels(heading, (1, 1.25))
    image = left.imshow(angles.numpy(), vmin=0, vmax=360, **_HEAT_MAP)
    _name_axes(left, "angle of the rotation", "pair of dimensions", "position")
    bar = figure.colorbar(image, ax=left, pad=0.02, ticks=range(0, 361, 90), format="%d°")
    bar.outline.set_visible(False)
    shown = sorted({0, pairs // 8, pairs // 4, pairs // 2})
    curves = {f"pair {pair}": cosines[:, pair] for pair in shown}
    _draw_curves(figure, right, range(len(cosines)), curves)
    _name_axes(right, "cosine of the angle", "position")
    return figure


def _draw_bias(biases: torch.Tensor, length: int, is_causal: bool, heading: str) -> "Figure":
    """Draws biases of shape (heads, keys) of a query at position length - 1."""
    distances = range(1 - length, 1 if is_causal else length)
    figure, left, right = _make_panels(heading, (1.25, 1))
    last = len(biases) - 1
    shown = sorted({round(index * last / (_MOST_CURVES - 1)) for index in range(_MOST_CURVES)})
    _draw_curves(figure, left, distances, {f"head {head}": biases[head] for head in shown})
    edges = (distances[0] - 0.5, distances[-1] + 0.5, last + 0.5, -0.5)
    image = right.imshow(biases.numpy(), extent=edges, **_HEAT_MAP)
    right.yaxis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=right, pad=0.02).outline.set_visible(False)
    for axes, name in ((left, "bias on the score"), (right, "head")):
        _name_axes(axes, "", "position of the key - position of the query", name)
    return figure


def _draw_curves(
    figure: "Figure", axes: Any, places: range, curves: dict[str, torch.Tensor]
) -> None:
    """Draws curves, each in its own shade and style, and names them below the figure."""
    with optional_packages():
        from matplotlib import colormaps

    for number, (label, values) in enumerate(curves.items()):
        colour = colormaps["viridis"](0.75 * number / max(len(curves) - 1, 1))
        style = _STYLES[number % len(_STYLES)]
        axes.plot(places, values.numpy(), style, color=colour, linewidth=1.8, label=label)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    options: dict[str, Any] = {"frameon": False, "fontsize": 9, "columnspacing": 1.2}
    figure.legend(loc="outside lower center", ncols=len(curves), **options)
