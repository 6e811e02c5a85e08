"""The norms against their formulas, and the two norm slots of a sublayer."""

import math

import pytest
import torch
from torch import nn

from vanilla_transformer.model.normalization import make_norm, norm_slots


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


@pytest.mark.parametrize("name", FORMULAS)
def test_a_norm_is_its_formula(name):
    torch.manual_seed(0)
    norm, x = make_norm(name, 6, eps=0.1), torch.randn(2, 3, 6)
    has_bias = getattr(norm, "bias", None) is not None
    assert has_bias is (name != "rms_norm")
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
    model = tiny_model(norm_type=name, norm_placement="pre", normalize_embedding=True)
    kind = type(make_norm(name, 2, 1e-5))
    norms = [type(m) for n, m in model.named_modules() if n.endswith("_norm")]
    assert norms.count(kind) == 2 * 2 + 3 * 3 + 2 + 2
    assert set(norms) == {kind, nn.Identity}


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("embedding", [True, False])
@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_the_norms_around_a_stack_do_not_depend_on_the_placement(
    tiny_model, placement, embedding, final
):
    changes = {"normalize_embedding": embedding, "final_layer_norm": final}
    keys = tiny_model(norm_placement=placement, **changes).state_dict()
    for stack in ("encoder", "decoder"):
        assert (f"model.{stack}.embed_norm.weight" in keys) is embedding
        assert (f"model.{stack}.final_norm.weight" in keys) is final


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


def test_one_number_has_no_sample_deviation(tiny_config):
    sizes = {"d_model": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    with pytest.raises(ValueError, match=r"`d_model` \(1\) must be at least 2.*unbiased_std"):
        tiny_config(**sizes, norm_type="unbiased_std")
    tiny_config(**sizes)


@pytest.mark.parametrize(
    ("placement", "pre", "post"),
    [
        ("post", nn.Identity, nn.LayerNorm),
        ("pre", nn.LayerNorm, nn.Identity),
        ("none", nn.Identity, nn.Identity),
    ],
)
def test_one_slot_is_filled(placement, pre, post):
    slots = norm_slots(placement, lambda: nn.LayerNorm(4))
    assert (type(slots[0]), type(slots[1])) == (pre, post)


def test_every_call_makes_its_own_norm():
    make = lambda: nn.LayerNorm(4)  # noqa: E731 - one line that is used twice
    assert norm_slots("pre", make)[0] is not norm_slots("pre", make)[0]


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


def test_the_epsilon_of_the_config_reaches_every_norm(tiny_model):
    model = tiny_model(norm_placement="pre", layer_norm_eps=0.125)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 3 * 3 + 2
    assert {norm.eps for norm in norms} == {0.125}
