"""Both layers: dropout where it belongs, and a gradient for every parameter."""

import pytest
import torch

from vanilla_transformer.model.attention_functions import AttentionFunction, eager_attention_forward
from vanilla_transformer.model.context import CallContext
from vanilla_transformer.model.layers import DecoderLayer, EncoderLayer

ATTENTION = AttentionFunction(eager_attention_forward)
PLAIN = CallContext(ATTENTION, {}, source_attention=ATTENTION)
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "ffn_dropout")


def scrambled(layer):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.3)
    return layer.eval()


@pytest.mark.parametrize("placement", ["post", "pre", "none"])
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_acts_in_training_only(tiny_config, placement, name):
    rates = dict.fromkeys(DROPOUTS, 0.0)
    layer = scrambled(
        DecoderLayer(tiny_config(norm_placement=placement, **(rates | {name: 0.5})), 0)
    )
    x, source = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    torch.testing.assert_close(layer(x, PLAIN, source), layer(x, PLAIN, source), rtol=0, atol=0)
    layer.train()
    assert not torch.equal(layer(x, PLAIN, source), layer(x, PLAIN, source))
    layer.apply(lambda m: setattr(m, "p", 0.0) if isinstance(m, torch.nn.Dropout) else None)
    if name != "attention_dropout":
        torch.testing.assert_close(layer(x, PLAIN, source), layer(x, PLAIN, source), rtol=0, atol=0)


@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_every_parameter_of_every_layer_is_trained(tiny_model, tiny_batch, placement):
    model = tiny_model(norm_placement=placement, position_embedding_type="learned").train()
    batch = tiny_batch()
    model(**batch).loss.backward()
    untrained = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.abs().sum() > 0
        if not name.endswith("k_proj.bias")  # softmax does not feel one shift of all scores
    ]
    assert untrained == []
    assert sum(name.endswith("q_proj.weight") for name, _ in model.named_parameters()) == 2 + 2 * 3


@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
def test_dropout_acts_on_the_output_of_every_sublayer(tiny_config, kind):
    """With everything dropped, only the residual stream is left."""
    layer = scrambled(kind(tiny_config(norm_placement="none"), 0)).train()
    x, source = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    arguments = (x, PLAIN, source) if kind is DecoderLayer else (x, PLAIN)
    assert not torch.allclose(layer(*arguments), x)
    layer.dropout.p = 1.0
    torch.testing.assert_close(layer(*arguments), x, rtol=0, atol=0)
