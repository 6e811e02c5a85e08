"""The norms against their formulas, and the two norm slots of a sublayer."""

import math

import pytest
import torch
from torch import nn

from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.normalization import NORMS, make_norm


def layer_norm(row, eps):
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / math.sqrt(variance + eps) for x in row]


def rms_norm(row, eps):
    return [x / math.sqrt(sum(y * y for y in row) / len(row) + eps) for x in row]


def unbiased_std(row, eps):
    mean = sum(row) / len(row)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / (len(row) - 1))
    return [(x - mean) / (deviation + eps) for x in row]


FORMULAS = {"layer_norm": layer_norm, "rms_norm": rms_norm, "unbiased_std": unbiased_std}


def test_each_norm_that_can_be_chosen_has_a_formula():
    assert {*FORMULAS} == {*NORMS} == {*CHOICES["norm_type"]}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_norm_is_its_formula(name):
    torch.manual_seed(0)
    norm, x = make_norm(name, 6, eps=0.1), torch.randn(2, 3, 6)
    has_bias = getattr(norm, "bias", None) is not None
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_()
    expected = torch.tensor([[FORMULAS[name](row, 0.1) for row in rows] for rows in x.tolist()])
    expected = expected * norm.weight + (norm.bias if has_bias else 0)
    torch.testing.assert_close(norm(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_constant_row_has_finite_values_and_gradients(name, dtype):
    norm, x = make_norm(name, 4, eps=1e-5).to(dtype), torch.zeros(2, 4, dtype=dtype)
    output = norm(x.requires_grad_())
    assert output.dtype == dtype
    output.sum().backward()
    assert output.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", FORMULAS)
def test_every_norm_of_a_model_is_of_the_named_type(tiny_model, name):
    changes = {"norm_placement": "pre", "normalize_embedding": True, "layer_norm_eps": 0.125}
    model, kind = tiny_model(norm_type=name, **changes), type(make_norm(name, 2, 1e-5))
    norms = [module for n, module in model.named_modules() if n.endswith("_norm")]
    assert {type(norm) for norm in norms} == {kind, nn.Identity}
    filled = [norm for norm in norms if type(norm) is kind]
    assert len(filled) == 2 * 2 + 3 * 3 + 2 + 2
    assert {norm.eps for norm in filled} == {0.125}


def test_the_norm_of_the_embedding_acts_on_embedding_and_position(tiny_model):
    ids = torch.tensor([[3, 4, 5]])
    encoder = tiny_model(normalize_embedding=True).get_encoder()
    first = encoder(ids, output_hidden_states=True).hidden_states[0]
    position_ids = torch.arange(3)[None]
    summed = (
        encoder.embed_tokens(ids) * 4
        + encoder.embed_positions(position_ids, torch.float32).embedding
    )
    torch.testing.assert_close(first, encoder.embed_norm(summed))
    assert not torch.allclose(first, summed)


@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_the_checkpoint_keys_tell_the_placement(tiny_model, placement):
    keys = tiny_model(norm_placement=placement).state_dict()
    sublayers = {"encoder": ["self_attn", "feed_forward"]}
    sublayers["decoder"] = [*sublayers["encoder"], "encoder_attn"]
    expected = {
        f"model.{stack}.layers.{index}.{name}_{placement}_norm.{part}"
        for stack, depth in (("encoder", 2), ("decoder", 3))
        for index in range(depth)
        for name in sublayers[stack]
        for part in ("weight", "bias")
        if placement != "none"
    }
    if placement == "pre":
        expected |= {f"model.{s}.final_norm.{p}" for s in sublayers for p in ("weight", "bias")}
    assert {key for key in keys if "norm" in key} == expected
