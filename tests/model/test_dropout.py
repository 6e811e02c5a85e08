"""Dropout: what is zeroed, the mean that stays, the generator, and torch's own as fallback."""

import pytest
import torch
import torch.nn.functional as F

from vanilla_transformer.model.dropout import Dropout, ScaledDropout, dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_p_is_zeroed_and_the_mean_stays(dtype, p):
    torch.manual_seed(0)
    out = dropout(torch.ones(1000, 1001, dtype=dtype), p)
    assert out.dtype == dtype
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=0.003)
    assert out.double().mean().item() == pytest.approx(1, rel=0.01)
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p), dtype=dtype).item()} or (
        out.max().item() == pytest.approx(1 / (1 - p), rel=1e-4)
    )


def test_neighbouring_units_and_calls_are_independent():
    torch.manual_seed(0)
    kept = (dropout(torch.ones(4, 250_000), 0.3) != 0).double()
    for lag in (1, 2, 3, 4, 64):
        pairs = (kept[:, lag:] * kept[:, :-lag]).mean().item()
        assert pairs == pytest.approx(0.7**2, abs=0.003)
    assert (kept * (dropout(torch.ones(4, 250_000), 0.3) != 0)).mean().item() == pytest.approx(
        0.49, abs=0.003
    )


def test_the_seed_decides_and_a_saved_state_of_the_generator_repeats():
    x = torch.randn(7, 13)
    torch.manual_seed(3)
    first = dropout(x, 0.5)
    state = torch.get_rng_state()
    second = dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.5), second)
    assert not torch.equal(first, second)


def test_the_gradient_takes_the_same_way_as_the_values():
    x = torch.randn(64, 33, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.25)
    out.sum().backward()
    torch.testing.assert_close(out, x * x.grad)
    assert 0 < (x.grad == 0).double().mean() < 1


@pytest.mark.parametrize("p", [0.0, 1.0, 1e-9, 1 - 1e-9])
def test_the_ends_of_the_range_are_torchs(p):
    x = torch.randn(50, 20)
    torch.manual_seed(0)
    ours = dropout(x, p)
    torch.manual_seed(0)
    assert torch.equal(ours, F.dropout(x, p))


def test_the_scaled_kind_scales_in_training_and_evaluation():
    layer = ScaledDropout(0.5, 0.25)
    x = torch.ones(100, 100)
    assert set(layer(x).unique().tolist()) == {0.0, 0.5}
    assert torch.equal(layer.eval()(x), x * 0.25)


def test_under_compile_export_and_func_it_is_torchs():
    layer = Dropout(0.5)
    exported = torch.export.export(layer, (torch.ones(4, 4),))
    assert "dropout" in exported.graph_module.code
    assert "random_" not in exported.graph_module.code
    jacobian = torch.func.vmap(layer, randomness="different")(torch.ones(3, 100))
    assert {0.0, 2.0} == set(jacobian.unique().tolist())
