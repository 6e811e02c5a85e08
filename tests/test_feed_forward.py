"""The feed-forward sublayer against its formula."""

import pytest
import torch
from transformers.activations import ACT2FN

from vanilla_transformer.feed_forward import FeedForward


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_it_is_two_linear_maps_with_an_activation_between(activation, bias):
    torch.manual_seed(0)
    layer = FeedForward(6, 10, activation, bias=bias, dropout=0.5).eval()
    assert {name for name, _ in layer.named_parameters()} == {
        f"{fc}.{part}"
        for fc in ("fc1", "fc2")
        for part in (("weight", "bias") if bias else ("weight",))
    }
    x = torch.randn(2, 3, 6)
    inner = x @ layer.fc1.weight.T + (layer.fc1.bias if bias else 0)
    expected = ACT2FN[activation](inner) @ layer.fc2.weight.T + (layer.fc2.bias if bias else 0)
    torch.testing.assert_close(layer(x), expected)


def test_each_position_is_mapped_by_itself():
    torch.manual_seed(0)
    layer = FeedForward(6, 10, "gelu", bias=True, dropout=0.0)
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(layer(x)[:, 3], layer(x[:, 3]))


def test_dropout_acts_between_the_maps_and_only_in_training():
    torch.manual_seed(0)
    layer = FeedForward(6, 10, "relu", bias=False, dropout=0.999999)
    x = torch.randn(2, 5, 6)
    assert layer.train()(x).abs().max() == 0
    assert layer.eval()(x).abs().max() > 0
