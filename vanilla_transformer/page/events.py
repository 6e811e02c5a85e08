"""What happens on the page when a person clicks, chooses or ticks."""

import secrets
from collections.abc import Sequence
from typing import Any

import gradio as gr

from vanilla_transformer.page.html import (
    EMPTY,
    KINDS,
    NOTHING_YET,
    Choice,
    draw_found,
    hint_html,
    outputs_html,
    problem_html,
    status_html,
    title_html,
)
from vanilla_transformer.page.models import (
    Found,
    HeadsOff,
    PageModels,
    PageRequest,
    check_text,
    find,
    look_into,
    names_of_outputs,
)
from vanilla_transformer.page.parts import (
    Parts,
    aligning_head,
    alignment_heads,
    head_choices,
    layer_choices,
    present_kinds,
    ticked_heads,
)

EXPECTED = (ValueError, OSError, ModuleNotFoundError)
"""Errors whose message is for the person at the page; others are bugs."""


class PageEvents:
    """The functions that Gradio calls. Each returns the new values of components.

    What belongs to one user is passed in and out as `gr.State`; the events hold the models alone.
    """

    def __init__(self, models: PageModels, parts: Parts) -> None:
        self.models = models
        self.parts = parts

    def connect(self, page: gr.Blocks, runs_at_once: bool) -> None:
        """Connects the components."""
        parts = self.parts
        shared: dict[str, Any] = {"trigger_mode": "always_last"}  # no click is lost
        private = {**shared, "api_visibility": "private", "show_progress": "hidden"}
        shows = {**shared, "show_progress": "minimal", "show_progress_on": parts.status}
        computes = {**private, **shows}
        given = [*parts.search, parts.off, *parts.choices]
        start = [parts.button.click, parts.text.submit]
        gr.on(start, self.run, given, parts.results, **shows, api_name="run")
        if runs_at_once:
            page.load(self.run, given, parts.results, **computes)
        again = [parts.found, *parts.search, *parts.choices]
        changed = [parts.off, *parts.results]
        parts.ticks.input(self.tick, [parts.ticks, parts.off, *again], changed, **computes)
        parts.all_on.click(self.switch_all_on, again, [parts.ticks, *changed], **computes)
        parts.beams.input(
            None, [parts.beams, parts.outputs], parts.outputs, js="(b, o) => Math.min(b, o)"
        )
        anew = [parts.title, *parts.choices, parts.ticks, *changed]
        parts.model.input(self.choose_model, parts.model, anew, **computes)
        for part in (parts.align_layer, parts.align_head):
            part.input(self.draw, [parts.found, *parts.choices], parts.drawn, **private)
        chosen = [parts.model, parts.found, parts.off, *parts.choices]
        heads = [parts.ticks, *parts.drawn]
        parts.kind.input(self.choose_kind, chosen, [parts.layer, *heads], **private)
        parts.layer.input(self.choose_layer, chosen, heads, **private)
        look = [parts.shown, parts.found, *parts.choices]
        parts.shown.input(self.look, look, [parts.found, *parts.drawn], **private)

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
        """Computes the outputs of a text; returns `Parts.results`."""
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
            found = find(self.models, request)
        except EXPECTED as error:
            return _empty_values(problem_html(str(error)))
        names = names_of_outputs(found)
        shown = gr.Dropdown(names, value=names[0][1], visible=len(names) > 1)
        answer = [status_html(found.result), outputs_html(found.result)]
        return [*answer, shown, found, *self.draw(found, *choices)]

    def tick(
        self, ticked: Sequence[int], off: HeadsOff, found: Found | None, *rest: Any
    ) -> list[Any]:
        """Switches heads of a layer off, and runs again; returns off and `Parts.results`."""
        count = len(self.parts.search)
        kind, layer = rest[-2:]
        module = KINDS[kind][0]
        elsewhere = {one for one in off if one[:2] != (module, layer)}
        now = frozenset(elsewhere | {(module, layer, head) for head in ticked})
        seed = found.result.request.seed if found else None  # samples change with the heads alone
        return [now, *self.run(*rest[:count], now, *rest[count:], seed=seed)]

    def switch_all_on(self, found: Found | None, *rest: Any) -> list[Any]:
        """Switches all heads on, and runs again; returns ticks, off and `Parts.results`."""
        return [[], *self.tick([], frozenset(), found, *rest)]

    def draw(self, found: Found | None, *choices: Any) -> list[str]:
        """Draws what is chosen of a result; returns `Parts.drawn`."""
        return list(EMPTY if found is None else draw_found(found, Choice(*choices)))

    def look(self, chosen: str | None, found: Found | None, *choices: Any) -> list[Any]:
        """Looks into another output; returns what was found and `Parts.drawn`."""
        if found is not None and chosen is not None:
            line, rank = map(int, chosen.split("."))
            found = look_into(self.models, found, line, rank)
        return [found, *self.draw(found, *choices)]

    def choose_kind(
        self, model: str, found: Found | None, off: HeadsOff, *choices: Any
    ) -> list[Any]:
        """Shows the first layer of a kind of attention; returns layer, ticks and `Parts.drawn`."""
        *alignment, kind, _ = choices
        layers = layer_choices(self.models.get(model).heads, kind)
        first = layers[0][1]
        rest = self.choose_layer(model, found, off, *alignment, kind, first)
        return [gr.Dropdown(layers, value=first), *rest]

    def choose_layer(
        self, model: str, found: Found | None, off: HeadsOff, *choices: Any
    ) -> list[Any]:
        """Shows the heads of a layer; returns ticks and `Parts.drawn`."""
        kind, layer = choices[-2:]
        heads = head_choices(self.models.get(model).heads, kind, layer)
        ticks = gr.CheckboxGroup(heads, value=ticked_heads(kind, layer, off))
        return [ticks, *self.draw(found, *choices)]

    def choose_model(self, name: str) -> list[Any]:
        """Begins anew with another model, all of whose heads are on."""
        try:
            model = self.models.get(name)
        except EXPECTED as error:
            before, after = 3 + len(self.parts.choices), len(self.parts.results) - 1
            return [*[gr.skip()] * before, problem_html(str(error)), *[gr.skip()] * after]
        heads = model.heads
        kind = present_kinds(heads)[0]
        layers, (first, head) = layer_choices(heads, kind), aligning_head(model)
        return [
            title_html(name, model),
            gr.Dropdown(layer_choices(heads, "Cross-attention"), value=first),
            gr.Dropdown(alignment_heads(heads, first), value=head),
            gr.Dropdown(present_kinds(heads), value=kind),
            gr.Dropdown(layers, value=layers[0][1]),
            gr.CheckboxGroup(head_choices(heads, kind, layers[0][1]), value=[]),
            frozenset(),
            *_empty_values(hint_html(NOTHING_YET)),
        ]


def _empty_values(status: str) -> list[Any]:
    """Returns `Parts.results` where there is no result."""
    nothing = gr.Dropdown([], value=None, visible=False)
    return [status, "", nothing, None, *EMPTY]
