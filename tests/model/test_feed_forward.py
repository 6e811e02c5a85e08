"""The feed-forward sublayer: dropouts, kinds and activations; parity tests compare its values."""

import pytest
import torch
from transformers.activations import ACT2FN

from vanilla_transformer.model.feed_forward import FeedForward, GatedFeedForward


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
@pytest.mark.parametrize("where", ["dropout", "output_dropout"])
def test_either_dropout_can_act_alone_and_only_in_training(kind, where):
    torch.manual_seed(0)
    rates = {"dropout": 0.0, "output_dropout": 0.0, where: 0.999999}
    layer = kind(6, 10, "gelu", bias=True, **rates)
    x = torch.randn(2, 5, 6)
    expected = layer.fc2.bias if where == "dropout" else torch.zeros(6)
    torch.testing.assert_close(layer.train()(x), expected.expand(2, 5, 6))
    assert layer.eval()(x).std(dim=(0, 1)).max() > 0


@pytest.mark.parametrize("gated", [True, False])
def test_the_config_chooses_the_kind_and_its_dropouts(tiny_model, gated):
    model = tiny_model(gated_ffn=gated, ffn_dropout=0.25, activation_dropout=0.125)
    layers = [*model.get_encoder().layers, *model.get_decoder().layers]
    kinds = {type(layer.feed_forward) for layer in layers}
    assert kinds == {GatedFeedForward if gated else FeedForward}
    assert {layer.feed_forward.output_dropout.p for layer in layers} == {0.25}
    assert {layer.feed_forward.dropout.p for layer in layers} == {0.125}
    keys = model.state_dict()
    assert ("model.encoder.layers.0.feed_forward.gate.weight" in keys) is gated


@pytest.mark.parametrize("name", sorted(ACT2FN))
def test_parameters_of_an_activation_have_the_type_of_the_others(name):
    layer = FeedForward(4, 6, name, bias=True, dropout=0.0)
    assert {tensor.dtype for tensor in layer.state_dict().values()} == {torch.float32}
    assert layer(torch.randn(2, 4)).isfinite().all()


@pytest.mark.parametrize("name", ["prelu", "xielu"])
def test_an_activation_that_a_checkpoint_lacks_is_a_new_one(tiny_model, tmp_path, name):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    found = type(model).from_pretrained(tmp_path, activation_function=name)
    for layer in (*found.get_encoder().layers, *found.get_decoder().layers):
        for key, value in ACT2FN[name].state_dict().items():
            assert torch.equal(layer.feed_forward.activation.state_dict()[key], value.float())
