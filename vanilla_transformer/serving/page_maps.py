"""Writes attention weights as HTML that answers to the pointer and to the keyboard.

The functions here turn data into strings. `page.js` reads the attributes `data-...` that they
write: weights in percent, and the numbers of rows and columns.
"""

import json
from collections.abc import Collection, Iterator, Sequence

from vanilla_transformer.serving.page_html import escape_text

Matrix = Sequence[Sequence[float]]
"""Weights from 0 to 1 of shape (rows, columns): a row attends to the columns."""
SHADES = 10
"""Number of shades in a small map. Weights below half a shade stay empty."""


def alignment_html(source: Sequence[str], target: Sequence[str], weights: Matrix) -> str:
    """Writes two rows of tokens and a heat map, in which a token lights up what belongs to it.

    Args:
        source: Tokens of the source, of length source_len.
        target: Tokens of the output, of length target_len.
        weights: Cross-attention of shape (target_len, source_len).

    Returns:
        HTML.

    Raises:
        ValueError: If the shape does not fit the tokens.
    """
    _check_shape(weights, target, source)
    return (
        f'<div class="vt-map" data-weights="{_percents_text(weights)}">'
        f"{_token_row('source', 'Source', source)}{_token_row('target', 'Output', target)}"
        '<p class="vt-readout" role="status">Point at a token, or go to it with Tab and the arrow '
        "keys.</p>"
        f"{_heat_table(source, target, weights)}</div>"
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


def _heat_table(source: Sequence[str], target: Sequence[str], weights: Matrix) -> str:
    upright = " vt-upright" if max(map(len, source), default=0) > 4 else ""
    heads = "".join(
        f'<th scope="col" data-side="source" data-index="{index}"><bdi>{escape_text(token)}</bdi>'
        "</th>"
        for index, token in enumerate(source)
    )
    rows = "".join(
        f'<tr><th scope="row" data-side="target" data-index="{row}"><bdi>{escape_text(token)}</bdi>'
        f"</th>{_heat_cells(row, values)}</tr>"
        for row, (token, values) in enumerate(zip(target, weights, strict=True))
    )
    return (
        '<div class="vt-scroll" role="region" aria-label="Heat map of the alignment" tabindex="0">'
        f'<table class="vt-heat{upright}"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _heat_cells(row: int, values: Sequence[float]) -> str:
    return "".join(
        f'<td data-row="{row}" data-column="{column}" style="--w:{value:.2f}"></td>'
        for column, value in enumerate(values)
    )


def heads_html(
    rows: Sequence[str], columns: Sequence[str], weights: Sequence[Matrix], off: Collection[int]
) -> str:
    """Writes a small heat map for each head of a layer.

    Args:
        rows: Tokens that attend.
        columns: Tokens that are attended to.
        weights: Weights of shape (heads, rows, columns).
        off: Heads that are switched off.

    Returns:
        HTML.

    Raises:
        ValueError: If the shape does not fit the tokens.
    """
    figures = "".join(
        _head_figure(head, one, rows, columns, head in off) for head, one in enumerate(weights)
    )
    return (
        f'<div class="vt-heads" data-rows="{_json_attribute(rows)}" '
        f'data-columns="{_json_attribute(columns)}">'
        '<p class="vt-readout" role="status">Rows attend to columns. Point at a cell, or go to a '
        f'map with Tab and move with the arrow keys.</p><div class="vt-grid">{figures}</div></div>'
    )


def _head_figure(
    head: int, weights: Matrix, rows: Sequence[str], columns: Sequence[str], is_off: bool
) -> str:
    _check_shape(weights, rows, columns)
    mark, caption = (" vt-off", f"head {head} · off") if is_off else ("", f"head {head}")
    return (
        f'<figure class="vt-head{mark}" data-head="{head}" tabindex="0" '
        f'data-weights="{_percents_text(weights)}">'
        f'<svg viewBox="0 0 {len(columns)} {len(rows)}" preserveAspectRatio="none" role="img" '
        f'aria-label="Attention weights of head {head}">{"".join(_shade_paths(weights))}'
        '<rect class="vt-cursor" width="1" height="1" visibility="hidden"/></svg>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _shade_paths(weights: Matrix) -> Iterator[str]:
    """Yields one path for all cells of a shade: a map has far fewer elements than cells."""
    cells: dict[int, list[str]] = {}
    for row, values in enumerate(weights):
        for column, value in enumerate(values):
            cells.setdefault(round(value * SHADES), []).append(f"M{column} {row}h1v1h-1z")
    for shade, places in sorted(cells.items()):
        if shade:
            yield f'<path fill-opacity="{shade / SHADES:g}" d="{"".join(places)}"/>'


def _check_shape(weights: Matrix, rows: Sequence[str], columns: Sequence[str]) -> None:
    if len(weights) != len(rows) or any(len(values) != len(columns) for values in weights):
        widths = sorted({len(values) for values in weights})
        raise ValueError(
            f"`weights` has {len(weights)} rows of {widths} columns, "
            f"but there are {len(rows)} and {len(columns)} tokens: give a weight for each pair."
        )


def _percents_text(weights: Matrix) -> str:
    return json.dumps([[round(100 * value) for value in row] for row in weights]).replace(" ", "")


def _json_attribute(tokens: Sequence[str]) -> str:
    return escape_text(json.dumps(list(tokens)))
