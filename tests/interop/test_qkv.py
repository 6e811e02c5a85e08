"""Layouts of attention projections: the same function, and an exact round trip."""

import pytest
import torch

from vanilla_transformer.interop.qkv import (
    from_per_head,
    fuse_self_attention,
    split_self_attention,
)


def assert_same_tensors(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shared", [None, 1])
@pytest.mark.parametrize("tied", [True, False])
def test_fused_and_separate_weights_are_the_same_model(tiny_model, tiny_batch, tied, shared, bias):
    changes = {
        "attention_bias": bias,
        "encoder_num_key_value_heads": shared,
        "decoder_num_key_value_heads": shared,
        "tie_word_embeddings": tied,
    }
    separate = tiny_model(seed=1, **changes)
    fused = tiny_model(seed=2, fused_qkv=True, **changes)
    fused.load_state_dict(fuse_self_attention(separate.state_dict()))
    batch = tiny_batch()
    torch.testing.assert_close(fused(**batch).logits, separate(**batch).logits)
    again = split_self_attention(fused.state_dict(), d_model=16)
    assert_same_tensors(again, separate.state_dict())
    assert_same_tensors(fuse_self_attention(again), fused.state_dict())
    assert fused.num_parameters() == separate.num_parameters()


@pytest.mark.parametrize("num_parts", [2, 3])
def test_rows_that_lie_head_by_head_are_the_same_attention(num_parts):
    """The fused projection is applied as in its tutorial: split by head first, then by part."""
    torch.manual_seed(0)
    heads, head_dim, x = 4, 2, torch.randn(2, 5, 8)
    weight, bias = torch.randn(num_parts * 8, 8), torch.randn(num_parts * 8)
    stacked = (x @ weight.T + bias).reshape(2, 5, heads, num_parts * head_dim)
    expected = stacked.chunk(num_parts, dim=-1)
    weights, biases = (from_per_head(t, heads, num_parts) for t in (weight, bias))
    for part, w, b in zip(expected, weights, biases, strict=True):
        torch.testing.assert_close((x @ w.T + b).reshape(2, 5, heads, head_dim), part)


def test_rows_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"24 rows.*`num_heads` \(5\)"):
        from_per_head(torch.zeros(24, 8), 5)
    with pytest.raises(ValueError, match=r"qkv_proj.weight` has 24 rows.*`d_model` \(23\)"):
        split_self_attention({"self_attn.qkv_proj.weight": torch.zeros(24, 8)}, d_model=23)
