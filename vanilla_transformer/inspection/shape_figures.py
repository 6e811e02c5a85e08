"""Draws the modules that a shape walk recorded, arranged as in figure 1 of Vaswani et al. (2017).

Boxes stand in columns, one for each stack, and are read from the bottom up. Lengths are in inches.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.inspection.figures import add_title, new_figure
from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYER = re.compile(r"(.*?)((?:en|de)coder)\.layers\.(\d+)")
_COLOURS = {  # close to those of the paper; black text is readable on all of them
    "embedding": "#fbdcdc",
    "norm": "#f3f3b8",
    "attention": "#ffdcae",
    "feed_forward": "#bfe3f5",
    "head": "#d9daf0",
}
_SUBLAYERS = ("self_attn", "encoder_attn", "feed_forward")
_BOTTOM = 0.42  # above the text below a column
_GAP = 0.24  # between two boxes
_SPLIT = 0.1  # more, where a residual connection begins
_FRAME = 0.14  # more, where the frame around a layer begins or ends
_LINE = 0.165  # height of a line of text
_MARGIN = 0.85  # beside a column: residual connections and the number of layers


@dataclass(frozen=True)
class Block:
    """One box of the drawing.

    Attributes:
        lines: Texts from top to bottom; the first is the heading.
        splits: Whether a residual connection begins below the box.
        joins: Whether it ends at the box.
        takes_source: Whether the encoder's output enters the box.
    """

    colour: str
    lines: tuple[str, ...]
    splits: bool = False
    joins: bool = False
    takes_source: bool = False

    @property
    def height(self) -> float:
        """Height of the box in inches."""
        return 0.14 + _LINE * len(self.lines)

    @property
    def width(self) -> float:
        """Width of the longest text in inches, about."""
        return max(0.085 * len(self.lines[0]), *(0.067 * len(line) for line in self.lines[1:]))


@dataclass(frozen=True)
class Column:
    """One stack: what lies below the layers, one layer, and what lies above."""

    stack: str
    start: str
    end: str
    layers: int
    below: tuple[Block, ...]
    layer: tuple[Block, ...]
    above: tuple[Block, ...]


def plot_shapes(walk: ShapeWalk, title: str = "") -> "Figure":
    """Draws the stacks of a model of this package as figure 1 of the paper, with names and shapes.

    The drawing follows the calls that were recorded: where norms stand, the kind of feed-forward
    sublayer, the number of layers, and the stacks that the model has. All layers of a stack have
    the same shapes, so that one of them is drawn.

    Raises:
        ValueError: If no layer of an encoder or decoder was called.
    """
    records = {record.name: record for record in reversed(walk.records)}  # the first call counts
    columns = _find_columns(records)
    width = 0.3 + max(block.width for column in columns for block in _blocks_of(column))
    height = max(map(_height_of, columns)) + 0.4 * bool(title)
    total = len(columns) * (width + 2 * _MARGIN)
    figure = new_figure((total, height), is_arranged=False)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, total), ylim=(0, height))
    axes.set_axis_off()
    add_title(figure, title)
    pen = _Pen(axes, width)
    source: tuple[float, float] | None = None
    for number, column in enumerate(columns):
        middle = number * (width + 2 * _MARGIN) + _MARGIN + width / 2
        is_last = number == len(columns) - 1
        source = pen.draw_column(column, middle, 1 if is_last and number else -1, source)
    return figure


def _find_columns(records: Mapping[str, ShapeRecord]) -> list[Column]:
    """Finds the stacks whose layers were called, the encoder first."""
    found = [match.groups() for name in records if (match := _LAYER.fullmatch(name))]
    if not found:
        raise ValueError(
            "The walk has no layer of an encoder or decoder: walk a whole model of this package."
        )
    counts = Counter((stack, prefix + stack) for prefix, stack, _ in found)
    stacks = sorted(counts, reverse=True)  # the encoder first
    return [
        _make_column(records, *names, counts[names], is_last=names == stacks[-1])
        for names in stacks
    ]


def _make_column(
    records: Mapping[str, ShapeRecord], stack: str, path: str, layers: int, is_last: bool
) -> Column:
    """Collects the boxes of a stack; the last stack also gets the boxes above all stacks."""
    below = _norm_or_embedding(records, path, ("embed_tokens", "embed_positions", "embed_norm"))
    above = _norm_or_embedding(records, path, ("final_norm",))
    heads = [
        record
        for record in records.values()
        if is_last
        and (record.kind.endswith("Linear") and not re.search(r"coder\.", f".{record.name}"))
    ][::-1]
    has_source = f"{path}.layers.0.encoder_attn" in records
    start = f"{'decoder_' * has_source}input_ids"
    end = "logits" if heads else "hidden states"
    return Column(
        stack=stack,
        start=_with_shape(start, records.get(f"{path}.embed_tokens"), "inputs"),
        end=_with_shape(end, heads[-1] if heads else records.get(path), "outputs"),
        layers=layers,
        below=tuple(below),
        layer=tuple(_blocks_of_layer(records, stack, f"{path}.layers.0")),
        above=(*above, *(_make_block("head", head, "Linear") for head in heads)),
    )


def _with_shape(text: str, record: ShapeRecord | None, side: str) -> str:
    return "" if record is None else f"{text} {_first_shape(getattr(record, side))}"


def _norm_or_embedding(
    records: Mapping[str, ShapeRecord], path: str, names: Sequence[str]
) -> Iterator[Block]:
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


def _blocks_of_layer(records: Mapping[str, ShapeRecord], stack: str, layer: str) -> Iterator[Block]:
    """Yields the boxes of a layer: for each sublayer a norm before it, itself, and the sum."""
    for name in _SUBLAYERS:
        record = records.get(f"{layer}.{name}")
        if record is None:
            continue
        before = records.get(f"{layer}.{name}_pre_norm")
        has_norm = before is not None and before.kind != "Identity"
        if before is not None and has_norm:
            yield _make_block("norm", before, before.kind, splits=True)
        describe = _describe_feed_forward if name == "feed_forward" else _describe_attention
        lines = describe(records, record, stack, name)
        colour = "feed_forward" if name == "feed_forward" else "attention"
        is_cross = name == "encoder_attn"
        yield Block(colour, tuple(lines), splits=not has_norm, takes_source=is_cross)
        after = records[f"{layer}.{name}_post_norm"]
        shape = _first_shape(after.outputs)
        if after.kind == "Identity":
            yield Block("norm", ("Add", shape), joins=True)
        else:
            short = after.name.rpartition(".")[2]
            yield Block("norm", (f"Add & {after.kind}", f"{short} {shape}"), joins=True)


def _describe_attention(
    records: Mapping[str, ShapeRecord], record: ShapeRecord, stack: str, name: str
) -> Iterator[str]:
    """Yields the heading, the name and the shapes of an attention module."""
    is_masked = stack == "decoder" and name == "self_attn"
    yield f"{'Masked ' * is_masked}Multi-Head Attention"
    yield f"{name} {_first_shape(record.outputs)}"
    shapes: dict[str, list[str]] = {}
    for part in ("q", "k", "v", "qkv"):
        if projection := records.get(f"{record.name}.{part}_proj"):
            shapes.setdefault(_first_shape(projection.outputs), []).append(part)
    yield "  ".join(f"{', '.join(parts)} {shape}" for shape, parts in shapes.items())
    positions = records.get(f"{record.name.partition('layers.')[0]}embed_positions")
    for part, use in (("rotation.0", "rotated"), ("bias", "biased")):
        if name == "self_attn" and positions and part in positions.outputs:
            yield f"{use} by embed_positions {positions.outputs[part]}"
            yield f"({positions.kind})"


def _describe_feed_forward(
    records: Mapping[str, ShapeRecord], record: ShapeRecord, stack: str, name: str
) -> Iterator[str]:
    """Yields the heading, the name and the shapes of a feed-forward sublayer."""
    activation = records.get(f"{record.name}.activation")
    kind = "" if activation is None else f" ({activation.kind.removesuffix('Activation')})"
    parts = [part for part in ("gate", "fc1") if f"{record.name}.{part}" in records]
    yield f"{'Gated ' * ('gate' in parts)}Feed Forward{kind}"
    yield f"{name} {_first_shape(record.outputs)}"
    yield f"{', '.join(parts)} {_first_shape(records[f'{record.name}.{parts[-1]}'].outputs)}"


def _make_block(colour: str, record: ShapeRecord, heading: str, splits: bool = False) -> Block:
    short = record.name.rpartition(".")[2]
    return Block(colour, (heading, f"{short} {_first_shape(record.outputs)}"), splits=splits)


def _first_shape(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return str(next(iter(shapes.values()), ""))


def _blocks_of(column: Column) -> tuple[Block, ...]:
    return (*column.below, *column.layer, *column.above)


@dataclass(frozen=True)
class _Placed:
    """A box and its place: the arrow into it begins at `entry` and ends at `bottom`."""

    block: Block
    entry: float
    bottom: float

    @property
    def center(self) -> float:
        return self.bottom + self.block.height / 2

    @property
    def top(self) -> float:
        return self.bottom + self.block.height


def _place_blocks(column: Column) -> list[_Placed]:
    """Stacks the boxes of a column upon each other."""
    y, placed = _BOTTOM, []
    first = len(column.below)
    for index, block in enumerate(_blocks_of(column)):
        edge = _FRAME if index in (first, first + len(column.layer)) else 0
        bottom = y + edge + _GAP + _SPLIT * block.splits
        placed.append(_Placed(block, y, bottom))
        y = placed[-1].top
    return placed


def _height_of(column: Column) -> float:
    """Returns the height of a column with the text above it."""
    return _place_blocks(column)[-1].top + _FRAME + _GAP + 0.4


class _Pen:
    """Draws boxes of one width, and arrows, into a figure."""

    def __init__(self, axes: Any, width: float) -> None:
        with optional_packages():
            from matplotlib.patches import FancyBboxPatch
        self.make_box = FancyBboxPatch
        self.axes = axes
        self.width = width

    def draw_column(
        self, column: Column, middle: float, side: int, source: tuple[float, float] | None
    ) -> tuple[float, float]:
        """Draws a stack; returns the place of the output.

        Args:
            side: Where the residual connections run: -1 is left, 1 is right.
        """
        placed = _place_blocks(column)
        layer = placed[len(column.below) : len(column.below) + len(column.layer)]
        low = layer[0].bottom - _GAP - _SPLIT
        self._draw_frame(column, middle, side, (low - _FRAME / 2, layer[-1].top + _FRAME))
        split = 0.0
        for box in placed:
            self._draw_line([(middle, box.entry), (middle, box.bottom)])
            self._draw_block(box, middle)
            split = box.bottom - _GAP if box.block.splits else split
            edge = middle + side * self.width / 2
            lane = edge + side * 0.25
            if box.block.joins:
                self._draw_line(
                    [(middle, split), (lane, split), (lane, box.center), (edge, box.center)]
                )
            if box.block.takes_source and source is not None:
                self._draw_source(source, middle - self.width / 2, box.center)
        top = placed[-1].top + (_FRAME if not column.above else 0)
        self._draw_line([(middle, placed[-1].top), (middle, top + _GAP)])
        self._draw_text(middle, _BOTTOM - 0.14, column.start, 10)
        self._draw_text(middle, top + _GAP + 0.14, column.end, 10)
        return middle, top + _GAP / 2

    def _draw_block(self, box: _Placed, middle: float) -> None:
        """Draws a box with its texts."""
        corner = (middle - self.width / 2 + 0.05, box.bottom + 0.05)
        patch = self.make_box(
            corner, self.width - 0.1, box.block.height - 0.1, boxstyle="round,pad=0.05",
            facecolor=_COLOURS[box.block.colour], edgecolor="black", linewidth=1, zorder=3,
        )  # fmt: skip
        self.axes.add_patch(patch)
        for number, line in enumerate(box.block.lines):
            y = box.top - 0.155 - _LINE * number
            self._draw_text(middle, y, line, 10 if number == 0 else 8.5, number == 0)

    def _draw_frame(
        self, column: Column, middle: float, side: int, ends: tuple[float, float]
    ) -> None:
        """Draws the frame around a layer, and how many layers there are."""
        reach = self.width / 2 + 0.38
        low, high = ends
        patch = self.make_box(
            (middle - reach + 0.1, low + 0.1), 2 * reach - 0.2, high - low - 0.2,
            boxstyle="round,pad=0.1", facecolor="#f2f2f2", edgecolor="#777777", zorder=1,
        )  # fmt: skip
        self.axes.add_patch(patch)
        x = middle + side * (reach + 0.26)
        self._draw_text(x, (low + high) / 2, f"{column.layers} \N{MULTIPLICATION SIGN}", 13)

    def _draw_source(self, source: tuple[float, float], edge: float, y: float) -> None:
        """Draws the way of the encoder's output into a box of the decoder."""
        channel = edge - 0.62
        self._draw_line([source, (channel, source[1]), (channel, y), (edge, y)])

    def _draw_line(self, points: list[tuple[float, float]]) -> None:
        """Draws a line through points, with an arrow at its end."""
        columns, rows = zip(*points, strict=True)
        style = {"color": "black", "linewidth": 1.1, "zorder": 2}
        self.axes.plot(columns, rows, solid_capstyle="butt", **style)
        arrow = {"arrowstyle": "-|>", "color": "black", "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", points[-1], points[-2], arrowprops=arrow, zorder=2)

    def _draw_text(self, x: float, y: float, text: str, size: float, bold: bool = False) -> None:
        weight = "bold" if bold else "normal"
        style = {"ha": "center", "va": "center", "fontsize": size, "fontweight": weight}
        self.axes.text(x, y, text, zorder=4, parse_math=False, **style)
