"""Products by oneDNN: they equal those of torch's linear maps, and only plain calls use them."""

import pytest
import torch
from torch import nn

from vanilla_transformer.model import modes
from vanilla_transformer.model.initialization import StackedLinear
from vanilla_transformer.model.modes import apply_linear

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN"
)
WIDTH, LARGE = 64, 512


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class Applied(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, states):
        return apply_linear(self.linear, states)


@pytest.fixture
def products(monkeypatch):
    """The shapes of the inputs that oneDNN computes, on a machine that counts as one of AMD."""
    shapes = []
    computed = torch.ops.mkldnn._linear_pointwise.default

    def compute(states, *parameters):
        shapes.append(tuple(states.shape))
        return computed(states, *parameters)

    monkeypatch.setattr(modes, "_has_slow_mkl", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", compute)
    return shapes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "make_states",
    [
        lambda: torch.randn(1, 1, LARGE),
        lambda: torch.randn(2, 30, LARGE),
        lambda: torch.randn(LARGE),
        lambda: torch.randn(4, 7, 2 * LARGE)[:, ::2, ::2],
        lambda: torch.randn(4, LARGE, 7).transpose(1, 2),
        lambda: torch.randn(5, LARGE)[1:1],
    ],
    ids=["one row", "rows", "vector", "strided", "transposed", "no row"],
)
def test_onednn_computes_what_a_linear_map_computes(products, make_states, bias):
    linear, states = nn.Linear(LARGE, LARGE, bias=bias), make_states()
    with torch.no_grad():
        torch.testing.assert_close(apply_linear(linear, states), linear(states))
    assert products == [tuple(states.shape)]


@torch.no_grad()
def test_a_stacked_map_and_one_under_inference_mode(products):
    stacked = StackedLinear(LARGE, (LARGE, WIDTH), bias=True)
    states = torch.randn(3, LARGE)
    torch.testing.assert_close(apply_linear(stacked, states), stacked(states))
    with torch.inference_mode():
        apply_linear(stacked, states)
    assert len(products) == 2


def test_a_training_computes_as_before(products):
    linear, states = nn.Linear(LARGE, LARGE), torch.randn(30, LARGE)
    apply_linear(linear, states).sum().backward()
    assert linear.weight.grad is not None
    assert not products


@pytest.mark.parametrize(
    "linear",
    [
        Doubled(LARGE, LARGE),
        nn.Linear(LARGE, LARGE, dtype=torch.bfloat16),
        nn.Linear(LARGE, LARGE, dtype=torch.float64),
        nn.Linear(LARGE, WIDTH),
        nn.Sequential(nn.Linear(LARGE, LARGE)),
        nn.utils.parametrizations.weight_norm(nn.Linear(LARGE, LARGE)),
        nn.Linear(LARGE, LARGE, device="meta"),
    ],
    ids=["own forward", "bfloat16", "float64", "small", "other module", "parametrized", "meta"],
)
@torch.no_grad()
def test_other_maps_are_called(products, linear):
    first = next(linear.parameters())
    states = torch.ones(2, LARGE, dtype=first.dtype, device=first.device)
    result = apply_linear(linear, states)
    assert not products
    if first.device.type == "cpu":
        assert torch.equal(result, linear(states))


@torch.no_grad()
def test_hooks_autocast_and_records_see_the_module(products):
    linear, states = nn.Linear(LARGE, LARGE), torch.randn(30, LARGE)
    with torch.autocast("cpu", torch.bfloat16):
        assert apply_linear(linear, states).dtype == torch.bfloat16
    traced = torch.jit.trace(Applied(linear), states, check_trace=False)
    assert "linear_pointwise" not in str(traced.graph)
    exported = torch.export.export(Applied(linear), (states,), strict=True)
    assert "linear_pointwise" not in str(exported.graph)
    many = torch.func.vmap(lambda row: apply_linear(linear, row[None]))(torch.randn(3, LARGE))
    assert many.shape == (3, 1, LARGE)
    seen = []
    linear.register_forward_hook(lambda *call: seen.append(call))
    apply_linear(linear, states)
    assert len(seen) == 1
    assert not products


@torch.no_grad()
def test_torch_compiles_a_linear_map_as_one_graph():
    linear, states = nn.Linear(LARGE, LARGE), torch.randn(30, LARGE)
    modes._has_slow_mkl.cache_clear()  # nothing is known yet
    compiled = torch.compile(Applied(linear), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(states), linear(states))
