"""Writes the parts of the page as HTML: outputs, messages, attention weights, shapes.

Every function turns data into a string, and does nothing else. All text that comes from a person, a
model or a file goes through `escape_text`. `page.js` reads the attributes `data-...`: weights in
percent, and the numbers of rows and columns.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import exp
from typing import NamedTuple

from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inspection.shapes import ShapeRecord, ShapeWalk, format_shapes
from vanilla_transformer.page.models import PageModel, PageResult

Matrix = Sequence[Sequence[float]]
"""Weights from 0 to 1 of shape (rows, columns): a row attends to the columns."""
KINDS = {
    "Cross-attention": ("decoder.encoder_attn", "cross"),
    "Encoder self-attention": ("encoder.self_attn", "encoder"),
    "Decoder self-attention": ("decoder.self_attn", "decoder"),
}
"""Kinds of attention by their names on the page: (name of the module, field of the maps)."""
MEAN = -1
"""The mean of all heads, where a head is chosen."""
NOTHING_YET = "Nothing to show yet: press Run."
SHADES = 10
"""Number of shades in a small map. Weights below half a shade stay empty."""
_MARKS_OF_TEMPLATES = {ord(mark): f"&#{ord(mark)};" for mark in "{}$`\\"}


@dataclass(frozen=True)
class Choice:
    """The attention that is drawn.

    Attributes:
        align_head: Head of the alignment, or `MEAN`.
        kind: Key of `KINDS`, for the maps of all heads.
    """

    align_layer: int
    align_head: int
    kind: str
    layer: int


class Drawings(NamedTuple):
    """HTML of the drawings from the view of an output."""

    alignment: str
    heads: str
    ablation: str
    shapes: str


def escape_text(text: str) -> str:
    """Makes text safe inside of an element and inside of a quoted attribute.

    Gradio fills its HTML into a template, so the marks of templates are escaped as well.
    """
    return escape(text, quote=True).translate(_MARKS_OF_TEMPLATES)


def title_html(name: str, model: PageModel) -> str:
    """Writes the title of the page, and the name and the size of a model."""
    config = model.model.config
    about = (
        f"{name}: {config.encoder_layers} + {config.decoder_layers} layers, "
        f"d_model {config.d_model}, {model.model.num_parameters():,} parameters"
    )
    return (
        f'<header class="vt-title"><h1>vanilla-transformer</h1><p>{escape_text(about)}</p></header>'
    )


def hint_html(text: str) -> str:
    """Writes a hint of the page, such as the first step."""
    return f'<p class="vt-hint">{escape_text(text)}</p>'


EMPTY = Drawings(hint_html(NOTHING_YET), hint_html(NOTHING_YET), "", hint_html(NOTHING_YET))
"""The drawings before the first request."""


def problem_html(message: str) -> str:
    """Writes an error as a person sees it; screen readers announce it."""
    return f'<p class="vt-problem" role="alert">{escape_text(message)}</p>'


def status_html(result: PageResult) -> str:
    """Writes the engine of a result, its time, and how many heads were off."""
    count = len(result.request.heads_off)
    heads = f" with {count} {'head' if count == 1 else 'heads'} off" if count else ""
    words = f"Computed by {result.engine}{heads} in {1000 * result.seconds:,.0f} ms."
    return f'<p class="vt-status" role="status">{escape_text(words)}</p>'


def outputs_html(result: PageResult) -> str:
    """Writes the outputs of every line, with scores and the probability of each token.

    If heads are off, the output with all heads stands beside each output.
    """
    sections = []
    for number, outputs in enumerate(result.outputs):
        heading = ""
        if len(result.outputs) > 1:
            line = escape_text(result.request.lines[number])
            heading = f'<h3 dir="auto"><span>Source {number + 1}</span> <bdi>{line}</bdi></h3>'
        items = []
        for output, whole in zip(outputs, result.whole[number], strict=True):
            compared = _comparison_html(output, whole) if result.request.heads_off else ""
            items.append(
                f'<li><p class="vt-text" dir="auto">{_text_html(output)}</p>'
                f'<p class="vt-score">{_score_text(output)}</p>'
                f"{_tokens_html(output)}{compared}</li>"
            )
        sections.append(
            f'<section class="vt-line">{heading}'
            f'<ol class="vt-outputs">{"".join(items)}</ol></section>'
        )
    return "".join(sections)


def ablation_html(output: Translation, whole: Translation) -> str:
    """Writes an output with heads off, and below it the output with all heads."""
    return (
        f'<div class="vt-ablation" role="status"><p class="vt-text" dir="auto">'
        f"{_text_html(output)}</p>{_comparison_html(output, whole)}</div>"
    )


def _comparison_html(output: Translation, whole: Translation) -> str:
    mark = "changed" if output.text != whole.text else "same"
    return (
        f'<p class="vt-compared"><span class="vt-{mark}">{mark}</span> With all heads: '
        f'<bdi class="vt-whole">{_text_html(whole)}</bdi> ({_score_text(whole)})</p>'
    )


def _tokens_html(output: Translation) -> str:
    """Writes the tokens of an output with their probabilities, coloured by doubt."""
    probabilities = map(exp, output.token_scores or ())
    tokens = "".join(
        f'<span class="vt-token" style="--doubt:{1 - probability:.3f}"><bdi>{escape_text(token)}'
        f"</bdi><small>{escape(percent_text(probability))}</small></span>"
        for token, probability in zip(output.tokens or (), probabilities, strict=True)
    )
    label = "Tokens with their probabilities"
    return f'<div class="vt-tokens" role="group" aria-label="{label}">{tokens}</div>'


def _text_html(output: Translation) -> str:
    return escape_text(output.text) or "<em>(empty)</em>"


def _score_text(output: Translation) -> str:
    probability = percent_text(exp(sum(output.token_scores or ())))
    quality = "" if output.quality is None else f", quality {output.quality:.0f}"
    return f"score {output.score:.3f}, probability {escape(probability)}{quality}"


def percent_text(probability: float) -> str:
    """Writes a probability in percent; none that is above 0 becomes "0%"."""
    if probability < 0.001:
        return "<0.1%"
    return f"{probability:.1%}" if probability < 0.1 else f"{probability:.0%}"


def draw_view(result: PageResult, choice: Choice) -> Drawings:
    """Draws the view of an output, or says why there is none."""
    ablation = ""
    if result.request.heads_off:
        output, whole = (rows[result.line][result.rank] for rows in (result.outputs, result.whole))
        ablation = ablation_html(output, whole)
    if result.view is None:
        problem = problem_html(result.problem)
        return Drawings(problem, problem, ablation, problem)
    maps = result.view.maps
    head = None if choice.align_head == MEAN else choice.align_head
    aligned = maps.weights_of("cross", choice.align_layer, head)
    module, field = KINDS[choice.kind]
    weights = getattr(maps, field)[choice.layer]  # (heads, query_len, key_len)
    shown = (module, choice.layer)
    off = {head for name, layer, head in result.request.heads_off if (name, layer) == shown}
    return Drawings(
        alignment_html(maps.source, maps.predicted, aligned.tolist()),
        heads_html(*maps.axes_of(field), weights.tolist(), off),
        ablation,
        shapes_html(result.view.walk, result.view.sizes),
    )


def alignment_html(source: Sequence[str], target: Sequence[str], weights: Matrix) -> str:
    """Writes two rows of tokens and a heat map, in which a token lights up its weights.

    Args:
        weights: Cross-attention of shape (target_len, source_len).
    """
    upright = " vt-upright" if max(map(len, source), default=0) > 4 else ""
    heads = "".join(
        f'<th scope="col" data-side="source" data-index="{index}"><bdi>{escape_text(token)}</bdi>'
        "</th>"
        for index, token in enumerate(source)
    )
    cell_rows = [
        [
            f'<td data-row="{row}" data-column="{column}" style="--w:{value:.2f}"></td>'
            for column, value in enumerate(values)
        ]
        for row, values in enumerate(weights)
    ]
    rows = "".join(
        f'<tr><th scope="row" data-side="target" data-index="{row}"><bdi>{escape_text(token)}</bdi>'
        f"</th>{''.join(cells)}</tr>"
        for row, (token, cells) in enumerate(zip(target, cell_rows, strict=True))
    )
    return (
        f'<div class="vt-map" data-weights="{_percents_text(weights)}">'
        f"{_token_row('source', 'Source', source)}{_token_row('target', 'Output', target)}"
        '<p class="vt-readout" role="status">Point at a token, or go to it with Tab and the arrow '
        "keys.</p>"
        '<div class="vt-scroll" role="region" aria-label="Heat map of the alignment" tabindex="0">'
        f'<table class="vt-heat{upright}"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _token_row(side: str, label: str, tokens: Sequence[str]) -> str:
    """One of the buttons takes part in the Tab order; arrow keys lead to the others."""
    buttons = "".join(
        f'<button type="button" class="vt-chip" data-side="{side}" data-index="{index}" '
        f'tabindex="{-1 if index else 0}"><bdi>{escape_text(token)}</bdi></button>'
        for index, token in enumerate(tokens)
    )
    return (
        f'<div class="vt-side"><span class="vt-label">{label}</span>'
        f'<div class="vt-row" role="toolbar" aria-label="{label} tokens">{buttons}</div></div>'
    )


def heads_html(
    rows: Sequence[str], columns: Sequence[str], weights: Sequence[Matrix], off: Collection[int]
) -> str:
    """Writes a small heat map for each head of a layer.

    Args:
        weights: Weights of shape (heads, rows, columns).
    """
    figures = []
    for head, matrix in enumerate(weights):
        mark, caption = (" vt-off", " · off") if head in off else ("", "")
        figures.append(
            f'<figure class="vt-head{mark}" data-head="{head}" tabindex="0" '
            f'data-weights="{_percents_text(matrix)}">'
            f'<svg viewBox="0 0 {len(columns)} {len(rows)}" preserveAspectRatio="none" role="img" '
            f'aria-label="Attention weights of head {head}">{"".join(_shade_paths(matrix))}'
            '<rect class="vt-cursor" width="1" height="1" visibility="hidden"/></svg>'
            f"<figcaption>head {head}{caption}</figcaption></figure>"
        )
    names = [escape_text(json.dumps(list(tokens))) for tokens in (rows, columns)]
    return (
        f'<div class="vt-heads" data-rows="{names[0]}" data-columns="{names[1]}">'
        '<p class="vt-readout" role="status">Rows attend to columns. Point at a cell, or go to a '
        'map with Tab and move with the arrow keys.</p><div class="vt-grid">'
        f"{''.join(figures)}</div></div>"
    )


def _shade_paths(weights: Matrix) -> Iterator[str]:
    """Yields one path for all cells of a shade: a map has far fewer elements than cells."""
    cells: dict[int, list[str]] = {}
    for row, values in enumerate(weights):
        for column, value in enumerate(values):
            cells.setdefault(round(value * SHADES), []).append(f"M{column} {row}h1v1h-1z")
    for shade, squares in sorted(cells.items()):
        if shade:
            yield f'<path fill-opacity="{shade / SHADES:g}" d="{"".join(squares)}"/>'


def _percents_text(weights: Matrix) -> str:
    return json.dumps([[round(100 * value) for value in row] for row in weights]).replace(" ", "")


_Call = tuple[ShapeRecord, list["_Call"]]


def shapes_html(walk: ShapeWalk, sizes: Mapping[str, int]) -> str:
    """Writes the calls of all modules as a tree that opens and closes.

    Args:
        sizes: Names of the sizes in the shapes, such as `source_len`.
    """
    named = "".join(
        f"<div><dt>{escape_text(name)}</dt><dd>{size:,}</dd></div>" for name, size in sizes.items()
    )
    calls: list[list[_Call]] = [[]]
    for record in walk.records:  # each call goes into the list of the call that it is nested in
        del calls[record.depth + 1 :]
        inner: list[_Call] = []
        calls[-1].append((record, inner))
        calls.append(inner)
    return (
        f'<dl class="vt-sizes">{named}</dl>'
        f'<div class="vt-shapes">{_calls_html(calls[0], "")}</div>'
        f'<p class="vt-score">{walk.total_parameters:,} parameters in total</p>'
    )


def _calls_html(calls: Iterable[_Call], caller: str) -> str:
    items = []
    for record, inner in calls:
        name = record.name.removeprefix(f"{caller}.".lstrip(".")) or "model"
        flow = f"{format_shapes(record.inputs)} → {format_shapes(record.outputs)}"
        head = (
            f'<span class="vt-name">{escape_text(name)}</span> '
            f'<span class="vt-kind">{escape_text(record.kind)}</span> '
            f'<span class="vt-count">{record.parameters:,}</span>'
            f'<span class="vt-flow">{escape_text(flow)}</span>'
        )
        if inner:
            is_open = " open" if record.depth < 2 else ""
            inside = _calls_html(inner, record.name)
            items.append(f"<details{is_open}><summary>{head}</summary>{inside}</details>")
        else:
            items.append(f'<div class="vt-call">{head}</div>')
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
