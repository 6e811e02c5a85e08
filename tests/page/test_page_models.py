"""What the page computes agrees with the Translator, also with heads off and for several users."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from vanilla_transformer.files.loading import load_model
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.inspection import ablate_heads, attention_maps
from vanilla_transformer.page.components import aligning_head
from vanilla_transformer.page.html import MEAN, Choice, draw_view, outputs_html
from vanilla_transformer.page.models import (
    MOST_TOKENS,
    PageModels,
    PageRequest,
    check_text,
    installed_engines,
)

SOURCE = "a dog sees a cat ."
CROSS = "decoder.encoder_attn"
WHOLE_CROSS = frozenset({(CROSS, 0, 0), (CROSS, 0, 1)})


@pytest.fixture(scope="module")
def models(trained):
    return PageModels([str(trained)], "cpu")


@pytest.fixture
def request_for(models):
    def make(*lines, **changes):
        name = next(iter(models.by_name))
        return PageRequest(name, "transformers", lines or (SOURCE,), **{"num_beams": 4, **changes})

    return make


def view_of(models, request):
    return models.look_into(models.answer(request), 0, 0)


@pytest.mark.parametrize("engine", installed_engines())
def test_outputs_are_those_of_the_translator(models, request_for, trained, engine):
    asked = replace(request_for(SOURCE, "a man"), engine=engine, num_beams=3, n_best=2)
    result = models.answer(asked)
    translator = Translator.from_pretrained(str(trained), engine, "cpu")
    wanted = translator.translate(
        list(asked.lines), num_beams=3, n_best=2, return_scores=True, return_tokens=True
    )
    assert [list(row) for row in result.outputs] == wanted
    assert result.engine == translator.engine.name
    assert result.whole is result.outputs


def test_heads_that_are_off_change_the_outputs_and_stay_off_only_there(models, request_for):
    before = models.answer(request_for())
    off = models.answer(request_for(heads_off=WHOLE_CROSS))
    assert before.outputs[0][0].text == "Hund sieht Katze ."
    assert off.outputs[0][0].text != "Hund sieht Katze ."
    assert off.whole == before.outputs
    assert models.answer(request_for()).outputs == before.outputs


def test_the_view_has_the_weights_and_tokens_of_the_output(models, request_for, trained):
    found = view_of(models, request_for(heads_off=frozenset({(CROSS, 0, 0)})))
    model, tokenizer = load_model(str(trained), "cpu")
    with ablate_heads(model, {CROSS: {0: [0]}}):
        wanted = attention_maps(model, tokenizer, SOURCE, found.outputs[0][0].text)
    for field in ("cross", "encoder", "decoder"):
        torch.testing.assert_close(getattr(found.view.maps, field), getattr(wanted, field))
    assert tuple(found.view.maps.predicted) == found.outputs[0][0].tokens
    assert found.view.sizes["source_len"] == len(wanted.source)
    assert found.view.walk.total_parameters == model.num_parameters()


def test_a_line_too_long_for_maps_has_outputs_and_a_reason(models, request_for):
    found = view_of(models, request_for("dog " * (MOST_TOKENS + 1)))
    assert found.outputs[0][0].text
    assert found.view is None
    drawn = draw_view(found, Choice(0, MEAN, "Cross-attention", 0))
    assert f"The line has {MOST_TOKENS + 2} tokens" in drawn.alignment


@pytest.mark.parametrize("line", ["\u0007", "\u2603", "\U0001f60a \u2603"])
def test_a_line_that_the_model_does_not_read_has_its_output_and_a_reason(models, request_for, line):
    found = view_of(models, request_for(line))
    assert found.outputs[0][0].text == line
    assert line in outputs_html(found)
    drawn = draw_view(found, Choice(0, MEAN, "Cross-attention", 0))
    assert drawn.alignment == drawn.heads == drawn.shapes
    assert 'role="alert"' in drawn.alignment


def test_users_at_the_same_time_do_not_disturb_each_other(models, request_for):
    requests = [
        request_for(),
        request_for(heads_off=WHOLE_CROSS),
        request_for("a man finds a boat .", heads_off=frozenset({("encoder.self_attn", 0, 0)})),
        request_for(temperature=1.5, n_best=2, seed=1),
    ]
    alone = [models.answer(one).outputs for one in requests]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(models.answer, requests * 6))
    assert [one.outputs for one in together] == alone * 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_best": 3, "num_beams": 2}, "the search keeps 2: give `num_beams`"),
        ({"engine": "other"}, "Unknown engine 'other'"),
    ],
)
def test_a_request_that_cannot_be_computed_names_the_cause(models, request_for, changes, message):
    with pytest.raises(ValueError, match=message):
        models.answer(replace(request_for(), **changes))


def test_a_path_without_a_model_is_refused_at_once(trained, tmp_path):
    with pytest.raises(ValueError, match=r"config\.json"):
        PageModels([str(trained), str(tmp_path)])


def test_the_alignment_is_at_first_that_of_the_trained_head(models):
    model = next(iter(models.by_name.values()))
    layers = len(model.heads[CROSS])
    assert aligning_head(model) == (layers - 1, MEAN)
    for heads, expected in (
        ([[layers - 1, 1]], (layers - 1, 1)),
        ([[layers - 1, 0], [layers - 1, 1]], (layers - 1, 0)),
        ([], (layers - 1, MEAN)),
    ):
        config = SimpleNamespace(alignment_heads=heads)
        other = SimpleNamespace(heads=model.heads, model=SimpleNamespace(config=config))
        assert aligning_head(other) == expected


def test_lines_are_split_and_blank_ones_dropped():
    assert check_text("one\r\n\n  two \n") == ("one", "  two ")


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f467 \U0001f389",  # emoji, two of them joined
        "\u0645\u0631\u062d\u0628\u0627",  # from right to left
        "\u202eabc",  # turned round
        "e\u0301",
        "a\tb\x00\x1b[1m",
        "<script>alert(1)</script>",
        "{{x}} ${y}",
    ],
)
def test_unusual_text_is_taken_as_it_is(text):
    assert check_text(text) == (text,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "The text is empty"),
        ("", "The text is empty"),
        ("\n" * 10_000, "The text is empty"),
        ("a" * 1_000_000, "1,000,000 characters in 1 lines, and the page takes 2,000 in 20"),
        ("a\n" * 100, "in 101 lines, and the page takes"),
        ("ab\ud83d", "surrogates not allowed"),
    ],
)
def test_a_message_names_the_cause(text, message):
    with pytest.raises(ValueError, match=message) as error:
        check_text(text)
    assert str(error.value).encode("utf-8")  # it can be sent, whatever the text was
