"""What one user's page shows: a result, the output that is looked into, and the drawings of it."""

from dataclasses import dataclass, replace

from vanilla_transformer.inspection.attention_maps import AttentionMaps
from vanilla_transformer.serving.page_html import (
    ablation_html,
    hint_html,
    problem_html,
    shapes_html,
)
from vanilla_transformer.serving.page_maps import alignment_html, heads_html
from vanilla_transformer.serving.page_models import (
    HeadsOff,
    PageModels,
    PageRequest,
    PageResult,
    PageView,
)

KINDS = {
    "Cross-attention": ("decoder.encoder_attn", "cross"),
    "Encoder self-attention": ("encoder.self_attn", "encoder"),
    "Decoder self-attention": ("decoder.self_attn", "decoder"),
}
"""Kinds of attention by their names on the page: (name of the module, field of the maps)."""
MEAN = -1
"""Stands for the mean of all heads where a head is chosen."""
NOTHING_YET = "Nothing to show yet: type a text, then press Run."


@dataclass(frozen=True)
class Choice:
    """Which attention is drawn.

    Attributes:
        align_layer: Layer of the alignment.
        align_head: Head of the alignment, or `MEAN`.
        kind: Key of `KINDS`, for the maps of all heads.
        layer: Layer of these maps.
    """

    align_layer: int
    align_head: int
    kind: str
    layer: int


@dataclass(frozen=True)
class Drawings:
    """HTML of what is drawn from the view of an output."""

    alignment: str
    heads: str
    ablation: str
    shapes: str


EMPTY = Drawings(hint_html(NOTHING_YET), hint_html(NOTHING_YET), "", hint_html(NOTHING_YET))
"""What is drawn before the first request."""


@dataclass(frozen=True)
class Found:
    """A result, and the view of one of its outputs.

    Attributes:
        result: The result.
        line: Index of the line that is looked into.
        rank: Index of its output.
        view: Attention and shapes; None if there is none.
        problem: Why there is no view.
    """

    result: PageResult
    line: int = 0
    rank: int = 0
    view: PageView | None = None
    problem: str = ""


def find(models: PageModels, request: PageRequest) -> Found:
    """Computes the outputs of a request, and looks into the best output of the first line.

    Args:
        models: The models of the page.
        request: The request.

    Raises:
        ValueError: If the request cannot be computed.
    """
    return look_into(models, Found(models.answer(request)), 0, 0)


def look_into(models: PageModels, found: Found, line: int, rank: int) -> Found:
    """Looks into another output of a result.

    Args:
        models: The models of the page.
        found: What `find` returned.
        line: Index of the line.
        rank: Index of its output.

    Returns:
        The same result with the view of the output, or with the reason why there is none.
    """
    try:
        view = models.view(found.result, line, rank)
    except ValueError as error:
        return replace(found, line=line, rank=rank, view=None, problem=str(error))
    return replace(found, line=line, rank=rank, view=view, problem="")


def names_of_outputs(found: Found) -> list[tuple[str, str]]:
    """Lists the outputs of a result as (text for a person, "line.rank")."""
    several = len(found.result.outputs) > 1
    return [
        (f"{f'Source {line + 1}, output' if several else 'Output'} {rank + 1}", f"{line}.{rank}")
        for line, outputs in enumerate(found.result.outputs)
        for rank in range(len(outputs))
    ]


def draw_found(found: Found, choice: Choice) -> Drawings:
    """Draws the view of an output.

    Args:
        found: What `find` or `look_into` returned.
        choice: Which attention is drawn.
    """
    ablation = ""
    if found.result.request.heads_off:
        chosen = (found.result.outputs, found.result.whole)
        ablation = ablation_html(*(rows[found.line][found.rank] for rows in chosen))
    if found.view is None:
        problem = problem_html(found.problem)
        return Drawings(problem, problem, ablation, problem)
    maps = found.view.maps
    return Drawings(
        _draw_alignment(maps, choice),
        _draw_heads(found.result.request.heads_off, maps, choice),
        ablation,
        shapes_html(found.view.walk, found.view.sizes),
    )


def _draw_alignment(maps: AttentionMaps, choice: Choice) -> str:
    if choice.align_layer >= len(maps.cross):
        return problem_html(f"There is no layer {choice.align_layer} here: choose another layer.")
    weights = maps.cross[choice.align_layer]  # (heads, target_len, source_len)
    if choice.align_head >= len(weights):
        return problem_html(f"There is no head {choice.align_head} here: choose another head.")
    chosen = weights.mean(0) if choice.align_head == MEAN else weights[choice.align_head]
    return alignment_html(maps.source, maps.predicted, chosen.tolist())


def _draw_heads(heads_off: HeadsOff, maps: AttentionMaps, choice: Choice) -> str:
    module, field = KINDS[choice.kind]
    weights = getattr(maps, field)  # (layers, heads, query_len, key_len)
    if choice.layer >= len(weights):
        return problem_html(f"There is no layer {choice.layer} here: choose another layer.")
    rows = maps.source if field == "encoder" else maps.predicted
    columns = maps.fed if field == "decoder" else maps.source
    off = {head for name, layer, head in heads_off if (name, layer) == (module, choice.layer)}
    return heads_html(rows, columns, weights[choice.layer].tolist(), off)
