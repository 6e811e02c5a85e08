"""The shape walk: order, nesting, shapes and counts on real models, and no traces afterwards."""

import pytest
import torch

from vanilla_transformer import VanillaTransformerModel
from vanilla_transformer.inspection import shape_walk


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def modes(model):
    return [module.training for module in model.modules()]


def by_name(walk):
    return {record.name: record for record in walk}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_module_that_runs_stands_in_the_order_and_depth_of_its_call(
    tiny_model, tiny_batch, attention
):
    model = tiny_model(attention=attention)
    walk = shape_walk(model, tiny_batch())
    names = [record.name for record in walk]
    lists = {"model.encoder.layers", "model.decoder.layers"}
    assert set(names) == {name for name, _ in model.named_modules()} - lists - {"model.shared"}
    order = ["", "model", "model.encoder", "model.encoder.layers.1.self_attn.q_proj"]
    order += ["model.decoder.layers.0.encoder_attn", "model.decoder.layers.2", "lm_head"]
    assert sorted(order, key=names.index) == order
    depths = [by_name(walk)[name].depth for name in order]
    assert depths == [0, 1, 2, 5, 4, 3, 1]


def test_shapes_are_those_of_the_call(tiny_model, tiny_batch):
    records = by_name(shape_walk(tiny_model(attention="eager"), tiny_batch()))
    assert records[""].inputs["labels"] == (3, 6)
    assert records[""].outputs["logits"] == (3, 6, 40)
    assert records[""].outputs["loss"] == ()
    cross = records["model.decoder.layers.0.encoder_attn"]
    assert cross.inputs["hidden_states"] == (3, 6, 16)
    assert cross.inputs["encoder_hidden_states"] == (3, 7, 16)
    assert cross.outputs == {"0": (3, 6, 16), "1": (3, 4, 6, 7)}
    assert records["model.encoder.layers.0.feed_forward.fc1"].outputs == {"": (3, 7, 32)}


def test_a_cache_is_shown_as_it_was_before_the_call(tiny_model, tiny_batch):
    batch = {name: value for name, value in tiny_batch().items() if name != "labels"}
    records = by_name(shape_walk(tiny_model(), {**batch, "use_cache": True}))
    assert records[""].outputs["cache.self.layers 0-2"] == (3, 4, 6, 4)
    assert records[""].outputs["cache.cross.layers 0-2"] == (3, 4, 7, 4)
    first = records["model.decoder.layers.0.self_attn"].inputs
    assert not [name for name in first if "cache" in name]
    second = records["model.decoder.layers.1.self_attn"].inputs
    assert second["cache.self.layer 0"] == (3, 4, 6, 4)
    assert second["cache.cross.layer 0"] == (3, 4, 7, 4)


def test_the_text_has_a_line_for_each_call(tiny_model, tiny_batch):
    model = tiny_model(VanillaTransformerModel)
    batch = {name: value for name, value in tiny_batch().items() if name != "labels"}
    walk = shape_walk(model, batch)
    lines = str(walk).splitlines()
    assert len(lines) == len(walk.records) + 2
    assert lines[2].startswith("  encoder VanillaTransformerEncoder")
    assert any(line.startswith("    layers.1 EncoderLayer") for line in lines)
    assert lines[-1].split() == ["total", f"{model.num_parameters():,}"]


def test_the_model_is_left_as_it_was(tiny_model, tiny_batch):
    model = tiny_model(dropout=0.5).train()
    model.model.decoder.eval()
    before = modes(model)
    shape_walk(model, tiny_batch())
    assert hooks(model) == 0
    assert modes(model) == before
    with pytest.raises(ValueError, match="vocabulary has ids"):
        shape_walk(model, {**tiny_batch(), "input_ids": torch.full((3, 7), 99)})
    assert hooks(model) == 0
    assert modes(model) == before
    assert torch.is_grad_enabled()
