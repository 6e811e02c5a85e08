"""Writes what the page shows as HTML: outputs with their confidence, messages, shapes.

Every function turns data into a string, and does nothing else. All text that comes from a person, a
model or a file goes through `escape_text`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import exp

from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inspection.shapes import ShapeRecord, Shapes, ShapeWalk
from vanilla_transformer.serving.page_models import PageModel, PageResult

_MARKS_OF_TEMPLATES = {ord(mark): f"&#{ord(mark)};" for mark in "{}$`\\"}


def escape_text(text: str) -> str:
    """Makes text safe inside of an element and inside of a quoted attribute.

    Gradio fills its HTML into a template, so the marks of templates are escaped as well.

    Args:
        text: Any text.

    Returns:
        HTML that shows the text.
    """
    return escape(text, quote=True).translate(_MARKS_OF_TEMPLATES)


def title_html(name: str, model: PageModel) -> str:
    """Writes the title of the page, and the name and the size of a model.

    Args:
        name: Name of the model on the page.
        model: The model.

    Returns:
        HTML.
    """
    config = model.model.config
    about = (
        f"{name}: {config.encoder_layers} + {config.decoder_layers} layers, "
        f"d_model {config.d_model}, {model.model.num_parameters():,} parameters"
    )
    return (
        f'<header class="vt-title"><h1>vanilla-transformer</h1><p>{escape_text(about)}</p></header>'
    )


def hint_html(text: str) -> str:
    """Writes a remark of the page, such as what to do first.

    Args:
        text: The remark.

    Returns:
        HTML.
    """
    return f'<p class="vt-hint">{escape_text(text)}</p>'


def problem_html(message: str) -> str:
    """Writes an error as a person sees it; screen readers announce it.

    Args:
        message: What is wrong, and what to do.

    Returns:
        HTML.
    """
    return f'<p class="vt-problem" role="alert">{escape_text(message)}</p>'


def status_html(result: PageResult) -> str:
    """Writes what computed a result, how long it took, and how many heads were off.

    Args:
        result: The result.

    Returns:
        HTML.
    """
    count = len(result.request.heads_off)
    heads = f" with {count} {'head' if count == 1 else 'heads'} off" if count else ""
    milliseconds = f"{1000 * result.seconds:,.0f}"
    words = f"Computed by {result.engine}{heads} in {milliseconds} ms."
    return f'<p class="vt-status" role="status">{escape_text(words)}</p>'


def outputs_html(result: PageResult) -> str:
    """Writes the outputs of every line, with scores and the probability of each token.

    Args:
        result: The result. If heads are off, each output stands beside that with all heads.

    Returns:
        HTML.
    """
    return "".join(
        f'<section class="vt-line">{_line_heading(result, number)}'
        f'<ol class="vt-outputs">{"".join(_output_items(result, number))}</ol></section>'
        for number in range(len(result.outputs))
    )


def _line_heading(result: PageResult, number: int) -> str:
    if len(result.outputs) == 1:
        return ""
    line = escape_text(result.request.lines[number])
    return f'<h3 dir="auto"><span>Source {number + 1}</span> <bdi>{line}</bdi></h3>'


def _output_items(result: PageResult, number: int) -> Iterator[str]:
    for output, whole in zip(result.outputs[number], result.whole[number], strict=True):
        compared = comparison_html(output, whole) if result.request.heads_off else ""
        yield (
            f'<li><p class="vt-text" dir="auto">{_shown_text(output)}</p>'
            f'<p class="vt-score">{_score_text(output)}</p>'
            f"{tokens_html(output)}{compared}</li>"
        )


def comparison_html(output: Translation, whole: Translation) -> str:
    """Writes the output with all heads on, and whether the heads that are off change it.

    Args:
        output: The output with heads off.
        whole: The output with all heads.

    Returns:
        HTML.
    """
    changed = output.text != whole.text
    mark = "changed" if changed else "same"
    return (
        f'<p class="vt-compared"><span class="vt-{mark}">{mark}</span> With all heads: '
        f'<bdi class="vt-whole">{_shown_text(whole)}</bdi> ({_score_text(whole)})</p>'
    )


def ablation_html(output: Translation, whole: Translation) -> str:
    """Writes an output with heads off, and below it the output with all heads.

    Args:
        output: The output with heads off.
        whole: The output with all heads.

    Returns:
        HTML.
    """
    return (
        f'<div class="vt-ablation" role="status"><p class="vt-text" dir="auto">'
        f"{_shown_text(output)}</p>{comparison_html(output, whole)}</div>"
    )


def tokens_html(output: Translation) -> str:
    """Writes the tokens of an output with their probabilities, coloured by doubt.

    Args:
        output: An output with tokens and token scores.

    Returns:
        HTML.
    """
    pairs = zip(output.tokens or (), output.token_scores or (), strict=True)
    tokens = "".join(
        f'<span class="vt-token" style="--doubt:{1 - exp(score):.3f}"><bdi>{escape_text(token)}'
        f"</bdi><small>{exp(score):.0%}</small></span>"
        for token, score in pairs
    )
    label = "Tokens with their probabilities"
    return f'<div class="vt-tokens" role="group" aria-label="{label}">{tokens}</div>'


def _shown_text(output: Translation) -> str:
    return escape_text(output.text) or "<em>(empty)</em>"


def _score_text(output: Translation) -> str:
    probability = exp(sum(output.token_scores or ()))
    percent = f"{probability:.1%}" if probability >= 0.001 else "below 0.1%"
    return f"score {output.score:.3f}, probability {percent}"


def shapes_html(walk: ShapeWalk, sizes: Mapping[str, int]) -> str:
    """Writes the calls of all modules as a tree that opens and closes.

    Args:
        walk: The calls.
        sizes: Names of the sizes in the shapes, such as `source_len`.

    Returns:
        HTML.
    """
    named = "".join(
        f"<div><dt>{escape_text(name)}</dt><dd>{size:,}</dd></div>" for name, size in sizes.items()
    )
    return (
        f'<dl class="vt-sizes">{named}</dl>'
        f'<div class="vt-shapes">{_call_list(_nested_calls(walk.records), "")}</div>'
        f'<p class="vt-score">{walk.total_parameters:,} parameters in total</p>'
    )


_Call = tuple[ShapeRecord, list["_Call"]]


def _nested_calls(records: Iterable[ShapeRecord]) -> list[_Call]:
    """Puts each call into the list of the call that it is nested in."""
    lists: list[list[_Call]] = [[]]
    for record in records:
        del lists[record.depth + 1 :]
        inner: list[_Call] = []
        lists[-1].append((record, inner))
        lists.append(inner)
    return lists[0]


def _call_list(calls: Sequence[_Call], caller: str) -> str:
    items = "".join(f"<li>{_call_item(record, inner, caller)}</li>" for record, inner in calls)
    return f"<ul>{items}</ul>"


def _call_item(record: ShapeRecord, inner: Sequence[_Call], caller: str) -> str:
    name = record.name.removeprefix(f"{caller}.".lstrip(".")) or "model"
    flow = f"{_shapes_text(record.inputs)} → {_shapes_text(record.outputs)}"
    head = (
        f'<span class="vt-name">{escape_text(name)}</span> '
        f'<span class="vt-kind">{escape_text(record.kind)}</span> '
        f'<span class="vt-count">{record.parameters:,}</span>'
        f'<span class="vt-flow">{escape_text(flow)}</span>'
    )
    if not inner:
        return f'<div class="vt-call">{head}</div>'
    is_open = " open" if record.depth < 2 else ""
    return f"<details{is_open}><summary>{head}</summary>{_call_list(inner, record.name)}</details>"


def _shapes_text(shapes: Shapes) -> str:
    """Writes the shapes on one line. A position in a tuple is not shown."""
    named = (("" if name.isdigit() else name, shape) for name, shape in shapes.items())
    return ", ".join(f"{name} {shape}".strip() for name, shape in named) or "-"
