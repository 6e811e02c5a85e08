"""Draws the modules that a shape walk recorded, arranged as in figure 1 of Vaswani et al. (2017).

Boxes stand in columns, one for each stack, and are read from the bottom up. Lengths are in inches.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYER = re.compile(r"(.*(?:en|de)coder)\.layers\.\d+")
_COLOURS = {  # close to those of the paper; black text is readable on all of them
    "embedding": "#fbdcdc",
    "norm": "#f3f3b8",
    "attention": "#ffdcae",
    "feed_forward": "#bfe3f5",
    "head": "#d9daf0",
}
_BOTTOM = 0.42  # above the text below a column
_GAP = 0.24  # between two boxes
_SPLIT = 0.1  # more, where a residual connection begins
_FRAME = 0.14  # more, where the frame around a layer begins or ends
_LINE = 0.165  # height of a line of text
_MARGIN = 0.85  # beside a column: residual connections and the number of layers

Records = Mapping[str, ShapeRecord]
"""The first call of each module, by its name."""


@dataclass
class Block:
    """One box of the drawing.

    Attributes:
        lines: Texts from top to bottom; the first is the heading.
        splits: Whether a residual connection begins below the box.
        joins: Whether it ends at the box.
        takes_source: Whether the encoder's output enters the box.
        bottom: The lower edge, which `_place_blocks` sets.
    """

    colour: str
    lines: tuple[str, ...]
    splits: bool = False
    joins: bool = False
    takes_source: bool = False
    bottom: float = 0.0

    @property
    def top(self) -> float:
        """The upper edge."""
        return self.bottom + 0.14 + _LINE * len(self.lines)

    @property
    def width(self) -> float:
        """Width of the longest text, about."""
        return max(0.085 * len(self.lines[0]), *(0.067 * len(line) for line in self.lines[1:]))


@dataclass(frozen=True)
class Column:
    """One stack: what lies below the layers, one layer, and what lies above."""

    start: str
    end: str
    layers: int
    below: list[Block]
    layer: list[Block]
    above: list[Block]

    def blocks(self) -> list[Block]:
        """Returns all boxes, from the lowest one up."""
        return [*self.below, *self.layer, *self.above]


def plot_shapes(walk: ShapeWalk) -> "Figure":
    """Draws the stacks of a model of this package as figure 1 of the paper, with names and shapes.

    The drawing follows the calls that were recorded: where norms stand, the kind of feed-forward
    sublayer, the number of layers, and the stacks that the model has. All layers of a stack have
    the same shapes, so that one of them is drawn.
    """
    records: dict[str, ShapeRecord] = {}
    for record in walk.records:
        records.setdefault(record.name, record)
    columns = _find_columns(records)
    width = 0.3 + max(block.width for column in columns for block in column.blocks())
    height = max(map(_place_blocks, columns))
    total = len(columns) * (width + 2 * _MARGIN)
    figure = new_figure((total, height))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, total), ylim=(0, height))
    axes.set_axis_off()
    source: tuple[float, float] | None = None
    for number, column in enumerate(columns):
        middle = number * (width + 2 * _MARGIN) + _MARGIN + width / 2
        source = _draw_column(axes, column, middle, width, 1 if number else -1, source)
    return figure


# Boxes --------------------------------------------------------------------------------------------


def _find_columns(records: Records) -> list[Column]:
    """Finds the stacks whose layers were called, the encoder first."""
    layers = Counter(match[1] for name in records if (match := _LAYER.fullmatch(name)))
    stacks = sorted(layers, key=lambda path: path.endswith("decoder"))
    heads = [
        record
        for record in records.values()
        if record.kind.endswith("Linear") and not re.search(r"coder\.", f".{record.name}")
    ]
    columns = []
    for path in stacks:
        above = [*_blocks_of_stack(records, path, ("final_norm",))]
        end = f"hidden states {_first_shape(records[path].outputs)}" if path in records else ""
        if heads and path == stacks[-1]:  # above all stacks
            above += [_make_block("head", head, "Linear") for head in heads]
            end = f"logits {_first_shape(heads[-1].outputs)}"
        tokens = records.get(f"{path}.embed_tokens")
        side = "decoder_" if f"{path}.layers.0.encoder_attn" in records else ""
        below = ("embed_tokens", "embed_positions", "embed_norm")
        columns.append(
            Column(
                start=f"{side}input_ids {_first_shape(tokens.inputs)}" if tokens else "",
                end=end,
                layers=layers[path],
                below=[*_blocks_of_stack(records, path, below)],
                layer=[*_blocks_of_layer(records, path)],
                above=above,
            )
        )
    return columns


def _blocks_of_stack(records: Records, path: str, names: tuple[str, ...]) -> Iterator[Block]:
    """Yields a box for each of a stack's own modules that computes something."""
    for name in names:
        record = records.get(f"{path}.{name}")
        if record is None or record.kind == "Identity" or not record.outputs:
            continue
        if name != "embed_positions":
            colour = "embedding" if name == "embed_tokens" else "norm"
            yield _make_block(colour, record, record.kind)
        elif "embedding" in record.outputs:
            yield _make_block("embedding", record, f"Add {record.kind}")


def _blocks_of_layer(records: Records, path: str) -> Iterator[Block]:
    """Yields the boxes of a layer: for each sublayer a norm before it, itself, and the sum."""
    for name in ("self_attn", "encoder_attn", "feed_forward"):
        sublayer = f"{path}.layers.0.{name}"
        if sublayer not in records:
            continue
        before, after = records[f"{sublayer}_pre_norm"], records[f"{sublayer}_post_norm"]
        has_norm = before.kind != "Identity"
        if has_norm:
            norm = _make_block("norm", before, before.kind)
            norm.splits = True
            yield norm
        if name == "feed_forward":
            block = Block(name, tuple(_lines_of_feed_forward(records, sublayer)))
        else:
            block = Block("attention", tuple(_lines_of_attention(records, path, name)))
        block.splits, block.takes_source = not has_norm, name == "encoder_attn"
        yield block
        total = _make_block("norm", after, f"Add & {after.kind}")
        if after.kind == "Identity":
            total.lines = ("Add", _first_shape(after.outputs))
        total.joins = True
        yield total


def _lines_of_attention(records: Records, path: str, name: str) -> Iterator[str]:
    """Yields the heading, the name and the shapes of an attention module."""
    record = records[f"{path}.layers.0.{name}"]
    is_masked = path.endswith("decoder") and name == "self_attn"
    yield f"{'Masked ' * is_masked}Multi-Head Attention"
    yield f"{name} {_first_shape(record.outputs)}"
    shapes: dict[str, list[str]] = {}
    for part in ("q", "k", "v", "qkv"):
        if projection := records.get(f"{record.name}.{part}_proj"):
            shapes.setdefault(_first_shape(projection.outputs), []).append(part)
    yield "  ".join(f"{', '.join(parts)} {shape}" for shape, parts in shapes.items())
    positions = records.get(f"{path}.embed_positions")
    for part, use in (("rotation.0", "rotated"), ("bias", "biased")):
        if name == "self_attn" and positions and part in positions.outputs:
            yield f"{use} by embed_positions {positions.outputs[part]}"
            yield f"({positions.kind})"


def _lines_of_feed_forward(records: Records, name: str) -> Iterator[str]:
    """Yields the heading, the name and the shapes of a feed-forward sublayer."""
    activation = records.get(f"{name}.activation")
    kind = "" if activation is None else f" ({activation.kind.removesuffix('Activation')})"
    parts = [part for part in ("gate", "fc1") if f"{name}.{part}" in records]
    yield f"{'Gated ' * ('gate' in parts)}Feed Forward{kind}"
    yield f"feed_forward {_first_shape(records[name].outputs)}"
    yield f"{', '.join(parts)} {_first_shape(records[f'{name}.{parts[-1]}'].outputs)}"


def _make_block(colour: str, record: ShapeRecord, heading: str) -> Block:
    short = record.name.rpartition(".")[2]
    return Block(colour, (heading, f"{short} {_first_shape(record.outputs)}"))


def _first_shape(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return str(next(iter(shapes.values()), ""))


def _place_blocks(column: Column) -> float:
    """Stacks the boxes of a column upon each other; returns its height with the text above."""
    y, first = _BOTTOM, len(column.below)
    for index, block in enumerate(column.blocks()):
        edge = _FRAME if index in (first, first + len(column.layer)) else 0
        block.bottom = y + edge + _GAP + _SPLIT * block.splits
        y = block.top
    return y + _FRAME + _GAP + 0.4


# Drawing ------------------------------------------------------------------------------------------


def _draw_column(
    axes: Any,
    column: Column,
    middle: float,
    width: float,
    side: int,
    source: tuple[float, float] | None,
) -> tuple[float, float]:
    """Draws a stack; returns the place of the output.

    Args:
        side: Where the residual connections run: -1 is left, 1 is right.
        source: The place of the encoder's output.
    """
    left, edge = middle - width / 2, middle + side * width / 2
    reach = width / 2 + 0.38
    low = column.layer[0].bottom - _GAP - _SPLIT - _FRAME / 2
    high = column.layer[-1].top + _FRAME
    frame = {"facecolor": "#f2f2f2", "edgecolor": "#777777", "zorder": 1}
    _draw_box(axes, (middle - reach, low), (middle + reach, high), 0.1, **frame)
    count = f"{column.layers} \N{MULTIPLICATION SIGN}"
    _draw_text(axes, middle + side * (reach + 0.26), (low + high) / 2, count, 13)
    split, y = 0.0, _BOTTOM
    for block in column.blocks():
        _draw_line(axes, (middle, y), (middle, block.bottom))
        y, center = block.top, (block.bottom + block.top) / 2
        box = {"facecolor": _COLOURS[block.colour], "edgecolor": "black", "linewidth": 1}
        _draw_box(axes, (left, block.bottom), (left + width, y), 0.05, **box, zorder=3)
        for number, line in enumerate(block.lines):
            size = 8.5 if number else 10
            _draw_text(axes, middle, y - 0.155 - _LINE * number, line, size, not number)
        split = block.bottom - _GAP if block.splits else split
        if block.joins:  # the residual connection runs beside the boxes
            lane = edge + side * 0.25
            _draw_line(axes, (middle, split), (lane, split), (lane, center), (edge, center))
        if block.takes_source and source is not None:
            channel = left - 0.62
            _draw_line(axes, source, (channel, source[1]), (channel, center), (left, center))
    end = y + (_FRAME if not column.above else 0) + _GAP
    _draw_line(axes, (middle, y), (middle, end))
    _draw_text(axes, middle, _BOTTOM - 0.14, column.start, 10)
    _draw_text(axes, middle, end + 0.14, column.end, 10)
    return middle, end - _GAP / 2


def _draw_box(
    axes: Any, low: tuple[float, float], high: tuple[float, float], rounding: float, **style: Any
) -> None:
    """Draws a box with round corners between two of them."""
    from matplotlib.patches import FancyBboxPatch

    corner = low[0] + rounding, low[1] + rounding
    sizes = high[0] - low[0] - 2 * rounding, high[1] - low[1] - 2 * rounding
    axes.add_patch(FancyBboxPatch(corner, *sizes, boxstyle=f"round,pad={rounding}", **style))


def _draw_line(axes: Any, *points: tuple[float, float]) -> None:
    """Draws a line through points, with an arrow at its end."""
    columns, rows = zip(*points, strict=True)
    style = {"color": "black", "linewidth": 1.1, "zorder": 2}
    axes.plot(columns, rows, solid_capstyle="butt", **style)
    arrow = {"arrowstyle": "-|>", "color": "black", "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", points[-1], points[-2], arrowprops=arrow, zorder=2)


def _draw_text(axes: Any, x: float, y: float, text: str, size: float, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    style = {"ha": "center", "va": "center", "fontsize": size, "fontweight": weight}
    axes.text(x, y, text, zorder=4, parse_math=False, **style)
