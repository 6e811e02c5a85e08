"""The components of the page, and the choices that they offer."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from vanilla_transformer.model.configuration_vanilla_transformer import aligning_layer
from vanilla_transformer.options import SearchOptions, range_of
from vanilla_transformer.page.html import KINDS, MEAN, NOTHING_YET, hint_html, title_html
from vanilla_transformer.page.models import (
    HIGHEST_TEMPERATURE,
    MOST_BEAMS,
    HeadsOff,
    PageModel,
    PageModels,
    installed_engines,
)

Heads = Mapping[str, Mapping[int, int]]
"""Number of heads by module and layer, as from `attention_heads`."""


class Components:
    """The components of the page, from top to bottom. To be made in a `with gr.Blocks()`.

    Attributes:
        search: The parts of a request, besides the heads that are off.
        choices: The fields of `Choice`.
        drawn: The fields of `Drawings`.
        results: The components that a request changes.
    """

    def __init__(self, models: PageModels, text: str) -> None:
        name, first = next(iter(models.by_name.items()))
        self.title = _html_block("title", title_html(name, first))
        with gr.Row(elem_id="layout"):  # page.css places the columns
            with gr.Column():
                self._make_controls(list(models.by_name), text)
            with gr.Column(elem_id="settings"):
                self._make_settings(first)
            with gr.Column(elem_id="results"):
                self.status = _html_block("status", hint_html(NOTHING_YET))
                self.answer = _html_block("answer")
                self.shown = gr.Dropdown(label="Output to inspect", visible=False, elem_id="shown")
                with gr.Tabs():
                    with gr.Tab("Alignment"):
                        self._make_alignment(first)
                    with gr.Tab("Heads"):
                        self._make_heads(first.heads)
                    with gr.Tab("Shapes"):
                        self.shapes = _html_block("shapes", hint_html(NOTHING_YET))
        self.result, self.off = gr.State(None), gr.State(frozenset())
        self.search: list[Any] = [self.text, self.model, self.engine]
        self.search += [self.beams, self.outputs, self.temperature]
        self.choices: list[Any] = [self.align_layer, self.align_head, self.kind, self.layer]
        self.drawn: list[Any] = [self.alignment, self.heads, self.ablation, self.shapes]
        self.results = [self.status, self.answer, self.shown, self.result, *self.drawn]

    def _make_controls(self, names: list[str], text: str) -> None:
        self.text = gr.Textbox(
            text, label="Text", info="Each line is a source.", lines=2, max_lines=8, elem_id="text"
        )
        self.model = gr.Dropdown(names, label="Model", visible=len(names) > 1, elem_id="model")
        self.button = gr.Button("Run", variant="primary", elem_id="run")

    def _make_settings(self, model: PageModel) -> None:
        beams, outputs = search_values(model)
        self.engine = gr.Dropdown(installed_engines(), label="Engine", elem_id="engine")
        self.beams = gr.Slider(
            range_of(SearchOptions, "num_beams")["ge"],
            MOST_BEAMS,
            beams,
            step=1,
            label="Beams",
            info=SearchOptions.__dataclass_fields__["num_beams"].metadata["help"],
            elem_id="beams",
        )
        self.outputs = gr.Slider(
            1, MOST_BEAMS, outputs, step=1, label="Outputs per line", elem_id="outputs"
        )
        self.temperature = gr.Slider(
            0,
            HIGHEST_TEMPERATURE,
            0,
            step=0.1,
            label="Temperature",
            info="0: beam search. Above 0: samples.",
            elem_id="temperature",
        )

    def _make_alignment(self, model: PageModel) -> None:
        layer, head = aligning_head(model)
        layers = layer_choices(model.heads, "Cross-attention")
        heads = alignment_heads(model.heads, layer)
        with gr.Row():
            self.align_layer = gr.Dropdown(
                layers, value=layer, label="Layer", min_width=120, elem_id="align-layer"
            )
            self.align_head = gr.Dropdown(
                heads, value=head, label="Head", min_width=120, elem_id="align-head"
            )
        self.alignment = _html_block("alignment", hint_html(NOTHING_YET))

    def _make_heads(self, heads: Heads) -> None:
        kinds = list(KINDS)
        layers = layer_choices(heads, kinds[0])
        with gr.Row():
            self.kind = gr.Dropdown(kinds, label="Attention", min_width=240, elem_id="kind")
            self.layer = gr.Dropdown(layers, label="Layer", min_width=120, elem_id="layer")
        self.heads = _html_block("heads", hint_html(NOTHING_YET))
        self.ticks = gr.CheckboxGroup(
            head_choices(heads, kinds[0], 0),
            label="Heads switched off in this layer",
            info="A head that is off adds nothing. The outputs change at once.",
            elem_id="ticks",
        )
        self.all_on = gr.Button("Switch all heads on", size="sm", elem_id="all-on")
        self.ablation = _html_block("ablation")


def layer_choices(heads: Heads, kind: str) -> list[tuple[str, int]]:
    """Lists the layers of a kind of attention, with the numbers that `attention_heads` has."""
    layers = heads[KINDS[kind][0]]
    ends = {0: " (first)", len(layers) - 1: " (last)"} if len(layers) > 1 else {}
    return [(f"layer {layer}{ends.get(layer, '')}", layer) for layer in layers]


def head_choices(heads: Heads, kind: str, layer: int) -> list[tuple[str, int]]:
    """Lists the heads of a layer."""
    return [(f"head {head}", head) for head in range(heads[KINDS[kind][0]][layer])]


def alignment_heads(heads: Heads, layer: int) -> list[tuple[str, int]]:
    """Lists the heads, and their mean, from which an alignment can be drawn."""
    return [("mean", MEAN), *head_choices(heads, "Cross-attention", layer)]


def aligning_head(model: PageModel) -> tuple[int, int]:
    """Returns the layer and the head, or `MEAN`, of which the alignment is drawn at first.

    They are the first of `config.alignment_heads`. Without these it is the mean of
    `aligning_layer`.
    """
    if trained := model.model.config.alignment_heads:
        layer, head = trained[0]
        return layer, head
    return aligning_layer(len(model.heads[KINDS["Cross-attention"][0]])), MEAN


def ticked_heads(kind: str, layer: int, off: HeadsOff) -> list[int]:
    """Returns the heads of a layer that are off."""
    module = KINDS[kind][0]
    return sorted(head for name, number, head in off if (name, number) == (module, layer))


def search_values(model: PageModel) -> tuple[int, int]:
    """Returns the beams and the outputs per line that a model is asked for at first."""
    return model.default_beams, min(3, model.default_beams)


def _html_block(name: str, value: str = "") -> gr.HTML:
    return gr.HTML(value, elem_id=name, js_on_load=None, apply_default_css=False)
