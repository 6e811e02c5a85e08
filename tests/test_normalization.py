"""The two norm slots of a sublayer."""

import pytest
from torch import nn

from vanilla_transformer.normalization import norm_slots


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
