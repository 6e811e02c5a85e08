"""The events of the page: a person clicks, chooses or ticks."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

import gradio as gr

from vanilla_transformer.page.components import (
    Components,
    aligning_head,
    alignment_heads,
    head_choices,
    layer_choices,
    search_values,
    ticked_heads,
)
from vanilla_transformer.page.html import (
    EMPTY,
    KINDS,
    NOTHING_YET,
    Choice,
    draw_view,
    hint_html,
    outputs_html,
    problem_html,
    status_html,
    title_html,
)
from vanilla_transformer.page.models import (
    HeadsOff,
    PageModels,
    PageRequest,
    PageResult,
    check_text,
    names_of_outputs,
)

EXPECTED = (ValueError, OSError, ModuleNotFoundError)
"""Errors whose message is for the person at the page; others are bugs."""


class PageEvents:
    """The functions that Gradio calls. Each returns the new values of components.

    The state of one user is passed in and out as `gr.State`; the events hold the models alone.
    """

    def __init__(self, models: PageModels, components: Components) -> None:
        self.models = models
        self.components = components

    def connect(self, page: gr.Blocks, runs_at_once: bool) -> None:
        """Connects the components."""
        parts = self.components
        shared: dict[str, Any] = {"trigger_mode": "always_last"}  # no click is lost
        private = {**shared, "api_visibility": "private", "show_progress": "hidden"}
        shows = {**shared, "show_progress": "minimal", "show_progress_on": parts.status}
        computes = {**private, **shows}
        asked = [*parts.search, parts.off, *parts.choices]
        start = [parts.button.click, parts.text.submit]
        computing = f"() => {json.dumps(hint_html('Computing …'))}"  # in the browser, at once
        gr.on(start, None, None, parts.status, js=computing, **private)
        gr.on(start, self.run, asked, parts.results, **shows, api_name="run")
        if runs_at_once:
            page.load(self.run, asked, parts.results, **computes)
        again = [parts.result, *parts.search, *parts.choices]
        changed = [parts.off, *parts.results]
        parts.ticks.input(self.tick, [parts.ticks, parts.off, *again], changed, **computes)
        parts.all_on.click(self.switch_all_on, again, [parts.ticks, *changed], **computes)
        parts.beams.input(
            None, [parts.beams, parts.outputs], parts.outputs, js="(b, o) => Math.min(b, o)"
        )
        anew = [parts.title, parts.beams, parts.outputs, *parts.choices, parts.ticks, *changed]
        parts.model.input(self.choose_model, parts.model, anew, **computes)
        for part in (parts.align_layer, parts.align_head):
            part.input(self.draw, [parts.result, *parts.choices], parts.drawn, **private)
        chosen = [parts.model, parts.result, parts.off, *parts.choices]
        heads = [parts.ticks, *parts.drawn]
        parts.kind.input(self.choose_kind, chosen, [parts.layer, *heads], **private)
        parts.layer.input(self.choose_layer, chosen, heads, **private)
        look = [parts.shown, parts.result, *parts.choices]
        parts.shown.input(self.look, look, [parts.result, *parts.drawn], **private)

    def run(
        self,
        text: str,
        model: str,
        engine: str,
        beams: float,
        outputs: float,
        temperature: float,
        off: HeadsOff,
        *choices: Any,
        seed: int | None = None,
    ) -> list[Any]:
        """Computes the outputs of a text; returns `Components.results`."""
        try:
            request = PageRequest(
                model=model,
                engine=engine,
                lines=check_text(text),
                num_beams=int(beams),
                n_best=int(outputs),
                temperature=temperature,
                heads_off=off,
                seed=secrets.randbelow(2**32) if seed is None else seed,
            )
            result = self.models.look_into(self.models.answer(request), 0, 0)
        except EXPECTED as error:
            return _empty_values(problem_html(str(error)))
        names = names_of_outputs(result)
        shown = gr.Dropdown(names, value=names[0][1], visible=len(names) > 1)
        answer = [status_html(result), outputs_html(result)]
        return [*answer, shown, result, *self.draw(result, *choices)]

    def tick(
        self, ticked: Sequence[int], off: HeadsOff, result: PageResult | None, *rest: Any
    ) -> list[Any]:
        """Switches heads of a layer off, and runs again; returns off and `Components.results`."""
        count = len(self.components.search)
        kind, layer = rest[-2:]
        module = KINDS[kind][0]
        elsewhere = {head for head in off if head[:2] != (module, layer)}
        now = frozenset(elsewhere | {(module, layer, head) for head in ticked})
        seed = result.request.seed if result else None  # samples change with the heads alone
        return [now, *self.run(*rest[:count], now, *rest[count:], seed=seed)]

    def switch_all_on(self, result: PageResult | None, *rest: Any) -> list[Any]:
        """Switches all heads on, and runs again; returns ticks, off and `Components.results`."""
        return [[], *self.tick([], frozenset(), result, *rest)]

    def draw(self, result: PageResult | None, *choices: Any) -> list[str]:
        """Draws the chosen parts of a result; returns `Components.drawn`."""
        return list(EMPTY if result is None else draw_view(result, Choice(*choices)))

    def look(self, chosen: str | None, result: PageResult | None, *choices: Any) -> list[Any]:
        """Looks into another output; returns the result and `Components.drawn`."""
        if result is not None and chosen is not None:
            line, rank = map(int, chosen.split("."))
            result = self.models.look_into(result, line, rank)
        return [result, *self.draw(result, *choices)]

    def choose_kind(
        self, model: str, result: PageResult | None, off: HeadsOff, *choices: Any
    ) -> list[Any]:
        """Shows the first layer of a kind; returns layer, ticks and `Components.drawn`."""
        *alignment, kind, _ = choices
        layers = layer_choices(self.models.by_name[model].heads, kind)
        first = layers[0][1]
        rest = self.choose_layer(model, result, off, *alignment, kind, first)
        return [gr.Dropdown(layers, value=first), *rest]

    def choose_layer(
        self, model: str, result: PageResult | None, off: HeadsOff, *choices: Any
    ) -> list[Any]:
        """Shows the heads of a layer; returns ticks and `Components.drawn`."""
        kind, layer = choices[-2:]
        heads = head_choices(self.models.by_name[model].heads, kind, layer)
        ticks = gr.CheckboxGroup(heads, value=ticked_heads(kind, layer, off))
        return [ticks, *self.draw(result, *choices)]

    def choose_model(self, name: str) -> list[Any]:
        """Begins anew with another model, all of whose heads are on."""
        model = self.models.by_name[name]
        heads, kind = model.heads, next(iter(KINDS))
        layers, (first, head) = layer_choices(heads, kind), aligning_head(model)
        return [
            title_html(name, model),
            *search_values(model),
            gr.Dropdown(layer_choices(heads, "Cross-attention"), value=first),
            gr.Dropdown(alignment_heads(heads, first), value=head),
            kind,
            gr.Dropdown(layers, value=layers[0][1]),
            gr.CheckboxGroup(head_choices(heads, kind, layers[0][1]), value=[]),
            frozenset(),
            *_empty_values(hint_html(NOTHING_YET)),
        ]


def _empty_values(status: str) -> list[Any]:
    """Returns `Components.results` where there is no result."""
    nothing = gr.Dropdown([], value=None, visible=False)
    return [status, "", nothing, None, *EMPTY]
