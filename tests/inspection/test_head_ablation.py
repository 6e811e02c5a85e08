"""Ablated heads: the same as zero weights in every implementation, and restored afterwards."""

import copy

import pytest
import torch
from torch.nn.attention import flex_attention

from vanilla_transformer.inspection import ablate_heads, head_scores

OFF = {"encoder.self_attn": {1: [0]}, "decoder.encoder_attn": {0: [1, 3], 2: [2]}}


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def without_columns(model, heads):
    """A copy whose output projections ignore the heads."""
    model = copy.deepcopy(model)
    for name, layers in heads.items():
        stack, attention = name.split(".")
        for layer, numbers in layers.items():
            module = getattr(model.get_submodule(f"model.{stack}.layers.{layer}"), attention)
            for head in numbers:
                start = head * module.head_dim
                with torch.no_grad():
                    module.out_proj.weight[:, start : start + module.head_dim] = 0
    return model


def fail_without(model, heads, check):
    with ablate_heads(model, heads):
        check()
        raise RuntimeError("inside")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"fused_qkv": True, "decoder_num_key_value_heads": 2, "position_embedding_type": "rope"}],
    ids=["plain", "grouped"],
)
def test_an_ablated_head_is_one_whose_columns_are_zero(tiny_model, tiny_batch, attention, changes):
    model, batch = tiny_model(attention=attention, **changes), tiny_batch()
    whole = logits(model, batch)
    with ablate_heads(model, OFF):
        without = logits(model, batch)
    torch.testing.assert_close(without, logits(without_columns(model, OFF), batch))
    assert (without - whole).abs().max() > 1e-3
    assert torch.equal(logits(model, batch), whole)


@pytest.mark.parametrize("attention", ["sdpa", "flex_attention"])
@pytest.mark.parametrize("shared", [None, 2, 1])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_implementations_agree(tiny_model, tiny_batch, monkeypatch, attention, shared):
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    changes = {"decoder_num_key_value_heads": shared, "position_embedding_type": "alibi"}
    results = []
    for implementation in ("eager", attention):
        model = tiny_model(attention=implementation, **changes)
        with ablate_heads(model, OFF), torch.compiler.set_stance("force_eager"):
            results.append(logits(model, tiny_batch()))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_generation_runs_without_the_heads(tiny_model, tiny_batch):
    model = tiny_model()
    batch = {name: tiny_batch()[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 8, "num_beams": 2, "do_sample": False}
    everything = {"decoder.encoder_attn": {layer: range(4) for layer in range(3)}}
    whole = model.generate(**batch, **options)
    with ablate_heads(model, everything):
        off = model.generate(**batch, **options)
        assert torch.equal(off, model.generate(**batch, **options, use_cache=False))
    assert torch.equal(off, without_columns(model, everything).generate(**batch, **options))
    assert not torch.equal(off, whole)
    assert torch.equal(model.generate(**batch, **options), whole)


def test_blocks_nest_and_end_with_errors(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    whole, name = logits(model, batch), "decoder.self_attn"
    checked = []
    with ablate_heads(model, {name: {0: [0, 2]}}):
        both = logits(model, batch)
    with ablate_heads(model, {name: {0: [0]}}):
        first = logits(model, batch)
        with pytest.raises(RuntimeError, match="inside"):
            fail_without(model, {name: {0: [2]}}, lambda: checked.append(logits(model, batch)))
        torch.testing.assert_close(checked, [both])
        assert torch.equal(logits(model, batch), first)
    assert torch.equal(logits(model, batch), whole)


def test_scores_are_the_change_for_each_head(tiny_model, tiny_batch):
    model, batch = tiny_model(dropout=0.5).train(), tiny_batch()

    def loss(scored):
        assert not scored.training
        return scored(**batch).loss.item()

    changes = head_scores(model, loss)
    assert {name: tuple(change.shape) for name, change in changes.items()} == {
        "encoder.self_attn": (2, 2),
        "decoder.self_attn": (3, 4),
        "decoder.encoder_attn": (3, 4),
    }
    assert model.training
    model.eval()
    off = without_columns(model, {"decoder.encoder_attn": {2: [1]}})
    assert changes["decoder.encoder_attn"][2, 1].item() == pytest.approx(
        loss(off) - loss(model), abs=1e-5
    )
