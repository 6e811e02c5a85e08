"""Costs: FLOPs as torch counts them in a run, bytes as they are in memory, parameters once."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForTokenClassification,
    VanillaTransformerModel,
)
from vanilla_transformer.inspection import cost
from vanilla_transformer.inspection.cost import TrainingCost

CHOICES = {
    "paper": {},
    "grouped": {"decoder_num_key_value_heads": 2, "encoder_num_key_value_heads": 1},
    "gated": {"gated_ffn": True, "activation_function": "silu", "norm_placement": "pre"},
    "untied": {
        "tie_word_embeddings": False,
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 56,
        "lm_head_bias": True,
    },
    "rotary": {"position_embedding_type": "rope", "fused_qkv": True},
    "wide heads": {"head_dim": 12, "position_embedding_type": "relative"},
}
SOURCE, TARGET, BATCH = 7, 5, 3
choices = pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)


def batch_of(source=SOURCE, target=TARGET, batch=BATCH):
    generator = torch.Generator().manual_seed(0)
    return {
        "input_ids": torch.randint(4, 40, (batch, source), generator=generator),
        "decoder_input_ids": torch.randint(4, 40, (batch, target), generator=generator),
    }


def counted(call):
    """(FLOPs of all calls, FLOPs by module) as torch counts them."""
    counter = FlopCounterMode(display=False)
    with counter:
        call()
    by_module = {name: sum(flops.values()) for name, flops in counter.get_flop_counts().items()}
    return counter.get_total_flops(), by_module


@choices
def test_a_forward_has_the_flops_that_torch_counts(tiny_model, changes):
    model = tiny_model(attention="eager", **changes)  # torch does not count sdpa on a CPU
    with torch.no_grad():
        total, modules = counted(lambda: model(**batch_of(), use_cache=False))
    forward = cost(model, SOURCE, TARGET, BATCH).forward_flops
    root = type(model).__name__
    assert forward == {
        "encoder": modules[f"{root}.model.encoder"],
        "decoder": modules[f"{root}.model.decoder"],
        "head": modules[f"{root}.lm_head"],
    }
    assert sum(forward.values()) == total > 0


@choices
def test_a_training_step_has_three_times_the_flops_of_a_forward(tiny_model, changes):
    model = tiny_model(attention="eager", **changes).train()
    batch = batch_of()
    total, _ = counted(lambda: model(**batch, labels=batch["decoder_input_ids"]).loss.backward())
    assert cost(model, SOURCE, TARGET, BATCH).training_step_flops == total


@choices
def test_generation_has_the_flops_that_torch_counts(tiny_model, changes):
    model = tiny_model(attention="eager", **changes)
    through_the_layers = EncoderDecoderCache(DynamicCache(), DynamicCache())
    options = {"max_new_tokens": TARGET, "min_new_tokens": TARGET, "do_sample": False}
    ids = batch_of()["input_ids"]
    total, _ = counted(lambda: model.generate(ids, past_key_values=through_the_layers, **options))
    assert cost(model, SOURCE, TARGET, BATCH).generation_flops == total


@choices
def test_bytes_are_those_in_memory(tiny_model, changes):
    model = tiny_model(**changes)
    optimizer = torch.optim.AdamW(model.parameters())
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    model(**batch_of(), past_key_values=cache, use_cache=True).logits.sum().backward()
    optimizer.step()
    found = cost(model, SOURCE, TARGET, BATCH)
    assert found.weight_bytes == sum(p.nbytes for p in model.parameters())
    assert found.gradient_bytes == sum(p.grad.nbytes for p in model.parameters())
    moments = [
        value
        for state in optimizer.state.values()
        for name, value in state.items()
        if name != "step"
    ]
    assert found.optimizer_bytes == sum(moment.nbytes for moment in moments)

    def bytes_of(part):
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in part.layers)

    assert found.target_cache_bytes * TARGET * BATCH == bytes_of(cache.self_attention_cache)
    assert found.source_cache_bytes * SOURCE * BATCH == bytes_of(cache.cross_attention_cache)


def test_a_half_precision_model_has_half_the_bytes(tiny_model):
    whole, half = cost(tiny_model()), cost(tiny_model().bfloat16())
    assert half.weight_bytes * 2 == whole.weight_bytes
    assert half.target_cache_bytes * 2 == whole.target_cache_bytes
    assert half.forward_flops == whole.forward_flops
    assert half.dtype == "bfloat16"


@choices
def test_parameters_count_once_and_by_part(tiny_model, changes):
    model = tiny_model(**changes)
    found = cost(model)
    assert found.total_parameters == model.num_parameters()
    layers = model.model.encoder.layers
    assert found.parameters["encoder"] >= sum(p.numel() for p in layers.parameters())
    tied_names = [name for names in found.tied for name in names]
    is_tied = model.config.tie_word_embeddings
    assert ("lm_head.weight" in tied_names) == is_tied
    rows = 40 if is_tied else 40 + 56
    assert found.parameters["embeddings"] == rows * 16
    assert found.parameters["head"] == (0 if is_tied else 56 * 16 + 56)
    has_table = model.config.position_embedding_type == "relative"
    assert found.parameters["positions"] == (32 * (2 + 4) if has_table else 0)


def test_frozen_parameters_have_no_gradient(tiny_model):
    model = tiny_model()
    model.model.encoder.requires_grad_(False)
    frozen = sum(p.nbytes for p in model.model.encoder.parameters())
    found = cost(model)
    assert found.gradient_bytes == found.weight_bytes - frozen
    assert found.optimizer_bytes == 2 * found.gradient_bytes


def test_models_of_one_stack_and_without_a_head(tiny_model):
    ids = batch_of()["input_ids"]
    for cls, part in (
        (VanillaTransformerEncoderModel, "encoder"),
        (VanillaTransformerForCausalLM, "decoder"),
    ):
        model = tiny_model(cls, attention="eager")
        with torch.no_grad():
            total, _ = counted(lambda model=model: model(ids, use_cache=False))
        found = cost(model, SOURCE, SOURCE, BATCH)
        assert sum(found.forward_flops.values()) == total
        assert found.forward_flops[part] > 0
    bare = cost(tiny_model(VanillaTransformerModel), SOURCE, TARGET)
    assert bare.forward_flops["head"] == 0
    assert (
        bare.forward_flops["decoder"] == cost(tiny_model(), SOURCE, TARGET).forward_flops["decoder"]
    )


def test_what_cannot_be_counted_is_refused(tiny_model):
    with pytest.raises(ValueError, match="head 'classifier' is of a kind that is not counted"):
        cost(tiny_model(VanillaTransformerForTokenClassification))
    with pytest.raises(ValueError, match="no attention layers"):
        cost(torch.nn.ReLU())
    for name in ("source_length", "target_length", "batch"):
        with pytest.raises(ValueError, match=f"`{name}` is 0: give at least 1"):
            cost(tiny_model(), **{name: 0})


def test_a_cost_prints_as_a_table(tiny_model):
    found = cost(tiny_model(), SOURCE, TARGET, BATCH)
    lines = str(found).splitlines()
    assert f"total {found.total_parameters:,} tied ones count once" in [
        " ".join(line.split()) for line in lines
    ]
    assert "  tied: model.shared.weight = model.encoder.embed_tokens.weight" in str(found)
    assert "FLOPs of matrix products, 3 x (7 source + 5 target tokens)" in lines
    assert not any(line != line.rstrip() for line in lines)


def test_an_epoch_on_several_gpus(tiny_model):
    """A GPU of 1e-12 TFLOP/s computes one operation in a second."""
    found = cost(tiny_model(), SOURCE, TARGET, BATCH)
    weights, moments = found.weight_bytes, found.optimizer_bytes
    one = TrainingCost(found, 1, 30, 1e-12)
    four = TrainingCost(found, 4, 30, 1e-12, vocab_size=70_000)
    assert one.epoch_hours * 3600 == pytest.approx(30 / BATCH * found.training_step_flops)
    assert four.epoch_hours == one.epoch_hours / 4
    assert one.ddp_traffic == one.fsdp_traffic == 0
    assert four.ddp_traffic == 1.5 * found.gradient_bytes
    assert four.fsdp_traffic == 0.75 * (2 * weights + found.gradient_bytes)
    assert one.corpus_bytes == 30 * (2 * (SOURCE + TARGET) + 8)
    assert four.corpus_bytes == 30 * (4 * (SOURCE + TARGET) + 8)
    assert one.state_bytes == weights + found.gradient_bytes + moments
    assert one.checkpoint_bytes == weights + moments
    assert "an epoch of 30 pairs on 4 GPUs" in str(four)
    shared = [line for line in str(four).splitlines() if "GPU, FSDP" in line]
    assert shared[0].split()[-2:] == [f"{one.state_bytes / 4 / 1024:.4g}", "Ki"]
