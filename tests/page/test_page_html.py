"""The HTML of the page shows what it is given, and nothing that it is given acts as HTML."""

import json
import re
from html.parser import HTMLParser
from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inspection.shapes import shape_walk
from vanilla_transformer.page.html import (
    ablation_html,
    alignment_html,
    escape_text,
    heads_html,
    outputs_html,
    problem_html,
    shapes_html,
)
from vanilla_transformer.page.models import PageRequest, PageResult

NASTY = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{value}}",
    "${alert(1)}",
]


class Reader(HTMLParser):
    """Collects the elements and the text, and checks that every element is closed."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.words, self.open = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("rect", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)

    def all(self, tag, **wanted):
        return [
            attributes
            for name, attributes in self.elements
            if name == tag
            and all(attributes.get(key.replace("_", "-")) == value for key, value in wanted.items())
        ]


def result(texts, heads_off=frozenset(), whole=None, lines=("a",)):
    def made(text):
        tokens = (*text.split(), "</s>")
        scores = tuple(log(0.9 if number else 0.25) for number in range(len(tokens)))
        return Translation(text, sum(scores) / len(scores), tokens, scores)

    outputs = tuple(tuple(map(made, row)) for row in texts)
    before = outputs if whole is None else tuple(tuple(map(made, row)) for row in whole)
    request = PageRequest("model", "auto", lines, 1, heads_off=heads_off)
    return PageResult(request, outputs, before, "transformers", 0.0421)


@given(st.text())
def test_escaped_text_is_shown_and_does_nothing(text):
    text = text.replace("\r", "").replace("\0", "")  # no HTML can show these
    for html in (f"<p>{escape_text(text)}</p>", f'<p title="{escape_text(text)}"></p>'):
        page = Reader(html)
        assert [tag for tag, _ in page.elements] == ["p"]
        assert text == page.text + (page.elements[0][1].get("title") or "")
        assert not set("{$`") & set(html)


@pytest.mark.parametrize("text", NASTY)
def test_no_text_becomes_an_element_anywhere(text):
    weights = torch.full((2, 2), 0.5).tolist()
    walk = shape_walk(torch.nn.Sequential(torch.nn.Linear(2, 2)), {"input": torch.zeros(1, 2)})
    pages = [
        problem_html(text),
        outputs_html(result([[text, "b"], ["c", text]], lines=(text, "d"))),
        ablation_html(result([[text]]).outputs[0][0], result([[text]]).outputs[0][0]),
        alignment_html([text, "b"], ["c", text], weights),
        heads_html([text, "b"], [text, text], [weights], {0}),
        shapes_html(walk, {text: 1}),
    ]
    for html in map(Reader, pages):
        assert not html.all("script")
        assert not html.all("img")
        assert not any("onerror" in attributes for _, attributes in html.elements)


def test_outputs_show_scores_and_the_confidence_of_each_token():
    page = Reader(outputs_html(result([["der Hund", ""]])))
    assert len(page.all("li")) == 2
    tokens = page.all("span", **{"class": "vt-token"})
    assert [one["style"] for one in tokens[:3]] == [
        "--doubt:0.750",
        "--doubt:0.100",
        "--doubt:0.100",
    ]
    assert "der25%" in page.text
    assert "Hund90%" in page.text
    assert "(empty)" in page.text
    assert "probability 20%" in page.text  # 0.25 · 0.9 · 0.9
    assert "Line" not in page.text


def test_a_heat_map_has_a_cell_for_each_pair_and_tokens_that_the_keyboard_reaches():
    weights = [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]
    page = Reader(alignment_html(["a", "b"], ["x", "y", "z"], weights))
    (map_,) = page.all("div", **{"class": "vt-map"})
    assert json.loads(map_["data-weights"]) == [[25, 75], [100, 0], [50, 50]]
    cells = [one for one in page.all("td") if "data-row" in one]
    assert len(cells) == 6
    assert cells[1] == {"data-row": "0", "data-column": "1", "style": "--w:0.75"}
    for side, count in (("source", 2), ("target", 3)):
        buttons = page.all("button", data_side=side)
        assert [one["tabindex"] for one in buttons] == ["0", *["-1"] * (count - 1)]
        assert len(page.all("th", data_side=side)) == count


def test_the_shapes_are_a_tree_of_all_calls(tiny_model, tiny_batch):
    model = tiny_model()
    batch = tiny_batch()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    walk = shape_walk(model, inputs)
    page = Reader(shapes_html(walk, {"batch": 3}))
    assert len(page.all("li")) == len(walk.records)
    inner = sum(after.depth > one.depth for one, after in zip(walk, walk.records[1:], strict=False))
    assert len(page.all("details")) == inner
    assert "input_ids (3, 7)" in page.text
    assert f"{walk.total_parameters:,} parameters in total" in page.text
    assert not re.search(r"<summary>(?:(?!</summary>).)*<ul>", shapes_html(walk, {}))
