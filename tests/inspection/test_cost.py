"""Costs: FLOPs as torch counts them in a real run, bytes as they are in memory."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForSequenceClassification,
)
from vanilla_transformer.inspection import cost

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
    """FLOPs of a call with real values, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@choices
def test_steps_and_generation_have_the_flops_that_torch_counts(tiny_model, changes):
    model = tiny_model(attention="eager", **changes)  # torch does not count sdpa on a CPU
    batch, found = batch_of(), cost(model, SOURCE, TARGET, BATCH)
    step = counted(lambda: model(**batch, labels=batch["decoder_input_ids"]).loss.backward())
    assert found.training_step_flops == step > 0
    through_the_layers = EncoderDecoderCache(DynamicCache(), DynamicCache())
    options = {"max_new_tokens": TARGET, "min_new_tokens": TARGET, "do_sample": False}
    ids = batch["input_ids"]
    generation = counted(lambda: model.generate(ids, past_key_values=through_the_layers, **options))
    per_source = SOURCE * found.source_token_flops + TARGET * found.generated_token_flops
    assert BATCH * per_source == generation


@choices
def test_bytes_are_those_in_memory(tiny_model, changes):
    model = tiny_model(**changes)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    model(**batch_of(), past_key_values=cache, use_cache=True)
    found = cost(model, SOURCE, TARGET, BATCH)
    assert found.weight_bytes == sum(p.nbytes for p in model.parameters())
    assert found.parameters == sum(p.numel() for p in model.parameters())  # tied ones once

    def bytes_of(part):
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in part.layers)

    assert found.target_cache_bytes * TARGET * BATCH == bytes_of(cache.self_attention_cache)
    assert found.source_cache_bytes * SOURCE * BATCH == bytes_of(cache.cross_attention_cache)


@pytest.mark.parametrize(
    "cls", [VanillaTransformerEncoderModel, VanillaTransformerForSequenceClassification]
)
def test_a_model_without_a_decoder_generates_nothing(tiny_model, cls):
    model = tiny_model(cls, attention="eager")
    ids = batch_of()["input_ids"]
    found = cost(model, SOURCE, TARGET, BATCH)
    assert found.forward_flops == counted(lambda: model(ids))
    assert found.generated_token_flops == 0
