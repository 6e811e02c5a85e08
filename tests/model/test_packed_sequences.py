"""Packed sequences: attention takes them one behind another, without padding."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate.utils import compile_regions
from gpu_stand_ins import pack_in_one_size, pretend_to_pack
from torch.nn.utils.rnn import pad_sequence

from vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler
from vanilla_transformer.model import attention_functions
from vanilla_transformer.training.captured_steps import MOST_SIZES, pack_batch, sizes_for

CONFIG = SimpleNamespace(pad_token_id=0, decoder_start_token_id=1)
CHOICES = {
    "defaults": {},
    "rope, qk_norm, two vocabularies": {
        "position_embedding_type": "rope",
        "qk_norm": "all",
        "decoder_vocab_size": 50,
    },
    "fused, multi-query, smoothing": {
        "fused_qkv": True,
        "encoder_num_key_value_heads": 1,
        "decoder_num_key_value_heads": 1,
        "label_smoothing": 0.1,
    },
    "no positions, pre": {"position_embedding_type": "none", "norm_placement": "pre"},
}


def step(model, **inputs):
    model.zero_grad()
    output = model.train()(**inputs)
    output.loss.backward()
    return {"loss": output.loss.detach()} | {
        name: parameter.grad.clone() for name, parameter in model.named_parameters()
    }


def only_sources_and_labels(batch):
    return {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_step_is_that_of_the_padded_batch(monkeypatch, tiny_model, tiny_batch, choice, side):
    model = tiny_model(attention="sdpa", dropout=0.0, **CHOICES[choice]).double()
    vocabulary = CHOICES[choice].get("decoder_vocab_size")
    batch = only_sources_and_labels(tiny_batch(side=side, decoder_vocab=vocabulary))
    model.set_padding_free(False)
    padded = step(model, **batch)
    model.set_padding_free(True)
    pretend_to_pack(monkeypatch)
    torch.testing.assert_close(step(model, **batch), padded)

    packed = pack_in_one_size(batch, model.config)
    items = (batch["labels"] != -100).sum()
    torch.testing.assert_close(step(model, **packed, num_items_in_batch=items), padded)
    torch.testing.assert_close(step(model, **packed), padded)


EVERYWHERE = CHOICES | {
    "alibi": {"position_embedding_type": "alibi"},
    "relative, eager": {"position_embedding_type": "relative", "attn_implementation": "eager"},
    "learned": {"position_embedding_type": "learned", "label_smoothing": 0.1},
}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("choice", EVERYWHERE)
def test_packed_inputs_have_the_loss_of_padded_ones(tiny_model, tiny_batch, choice, side):
    """On a CPU too, and in evaluation; the decoder's input may be left out."""
    model = tiny_model(dropout=0.0, **EVERYWHERE[choice]).double()
    vocabulary = EVERYWHERE[choice].get("decoder_vocab_size")
    batch = only_sources_and_labels(tiny_batch(side=side, decoder_vocab=vocabulary))
    padded = step(model, **batch)
    packed = pack_in_one_size(batch, model.config)
    torch.testing.assert_close(step(model, **packed), padded)
    del packed["decoder_input_ids"]
    torch.testing.assert_close(step(model, **packed), padded)
    logits = model.eval()(**packed).logits[packed["labels"] != -100]
    torch.testing.assert_close(logits, model(**batch).logits[batch["labels"] != -100])
    del packed["labels"]
    with pytest.raises(ValueError, match="decoder_input_ids"):
        model(**packed)


def test_packed_inputs_of_the_bare_models(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    bounds = {
        "cu_seq_lens_k": torch.tensor([0, 7, 11, 17]),
        "cu_seq_lens_q": torch.tensor([0, 5, 11, 14]),
        **{"max_length_k": 7, "max_length_q": 6},
    }
    real = {name: batch[f"{name}attention_mask"].bool() for name in ("", "decoder_")}
    packed = {f"{name}input_ids": batch[f"{name}input_ids"][real[name]][None] for name in real}
    del batch["labels"]
    found, expected = model.model(**packed, **bounds), model.model(**batch)
    states = expected.last_hidden_state[real["decoder_"]]
    torch.testing.assert_close(found.last_hidden_state[0], states, rtol=1e-4, atol=1e-5)
    states = expected.encoder_last_hidden_state[real[""]]
    torch.testing.assert_close(found.encoder_last_hidden_state[0], states, rtol=1e-4, atol=1e-5)
    bounds |= {"cu_seq_lens_q": bounds["cu_seq_lens_k"], "max_length_q": 7}
    alone = model.get_encoder()(packed["input_ids"], **bounds).last_hidden_state
    torch.testing.assert_close(alone[0], states, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("packs", [False, True])
def test_a_classifier_has_an_answer_for_each_packed_sequence(
    monkeypatch, tiny_model, tiny_batch, pooling, packs
):
    options = {"num_labels": 3, "classifier_pooling": pooling, "dropout": 0.0}
    classifier = VanillaTransformerForSequenceClassification
    model = tiny_model(classifier, attention="sdpa", **options).double()
    batch = {name: tiny_batch()[name] for name in ("input_ids", "attention_mask")}
    labels = torch.tensor([2, 0, 1])
    padded, logits = step(model, **batch, labels=labels), model.eval()(**batch).logits
    if packs:
        pretend_to_pack(monkeypatch)
    bounds = torch.tensor([0, 7, 11, 17])
    ids = {"input_ids": batch["input_ids"][batch["attention_mask"] == 1][None]}
    ids |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
    ids |= {"max_length_q": 7, "max_length_k": 7}
    torch.testing.assert_close(model(**ids).logits, logits)
    torch.testing.assert_close(step(model, **ids, labels=labels), padded)


@pytest.mark.parametrize("sources", [[0, 17], [0, 7, 17], [0, 4, 7, 11, 17]])
def test_each_packed_target_has_a_source(tiny_model, sources):
    ids = torch.randint(3, 40, (1, 17))
    packed = {"input_ids": ids, "cu_seq_lens_k": torch.tensor(sources), "max_length_k": 17}
    packed |= {"labels": ids[:, :14], "max_length_q": 6}
    packed["cu_seq_lens_q"] = torch.tensor([0, 5, 11, 14])
    with pytest.raises(ValueError, match="cu_seq_lens_k"):
        tiny_model()(**packed)
    bounds = {name: given for name, given in packed.items() if name not in ("input_ids", "labels")}
    with pytest.raises(ValueError, match="cu_seq_lens_k"):
        tiny_model().get_encoder()(ids, **bounds)


@pytest.mark.parametrize("begins", [[0], [5], [0, 1, 11]])
def test_packed_labels_that_begin_with_nothing_to_predict_need_the_input(
    tiny_model, tiny_batch, begins
):
    """Padded ones are padding on the left, which attention to packed sequences cannot hide."""
    model = tiny_model().double()
    packed = pack_in_one_size(only_sources_and_labels(tiny_batch()), model.config)
    read = packed.pop("decoder_input_ids")
    packed["labels"][0, [4, 8]] = -100  # elsewhere it may be
    model(**packed)
    packed["labels"][0, begins] = -100
    with pytest.raises(ValueError, match="decoder_input_ids"):
        model(**packed)
    found = model(**packed, decoder_input_ids=read)
    assert found.loss.isfinite()


def test_a_packed_batch_with_a_cache_or_without_bounds_is_refused(tiny_model, tiny_batch):
    model = tiny_model()
    packed = pack_in_one_size(only_sources_and_labels(tiny_batch()), model.config)
    with pytest.raises(ValueError, match="use_cache"):
        model(**packed, use_cache=True)
    del packed["max_length_q"]
    with pytest.raises(ValueError, match="max_length_q"):
        model(**packed)


def test_outputs_of_a_step_are_padded_again(monkeypatch, tiny_model, tiny_batch):
    model, batch = tiny_model(attention="sdpa", dropout=0.0), tiny_batch()
    batch = only_sources_and_labels(batch)
    padded = copy.deepcopy(model)
    padded.set_padding_free(False)
    pretend_to_pack(monkeypatch)
    of_packed, of_padded = model.train()(**batch), padded.train()(**batch)
    real = batch["labels"] != -100
    torch.testing.assert_close(of_packed.logits[real], of_padded.logits[real])
    real = batch["attention_mask"] == 1
    states = (output.encoder_last_hidden_state[real] for output in (of_packed, of_padded))
    torch.testing.assert_close(*states)


@pytest.mark.parametrize(
    ("choice", "bf16"), [("defaults", False), *((choice, True) for choice in CHOICES)]
)
def test_each_layer_compiles_to_one_graph(monkeypatch, tiny_model, tiny_batch, choice, bf16):
    model = tiny_model(attention="sdpa", **CHOICES[choice])
    vocabulary = CHOICES[choice].get("decoder_vocab_size")
    batch = only_sources_and_labels(tiny_batch(decoder_vocab=vocabulary))
    packed = pack_in_one_size(batch, model.config)
    pretend_to_pack(monkeypatch)
    # The kernel has no form for a CPU.
    monkeypatch.setattr(
        attention_functions, "attend_to_sequences", lambda query, *others: (query, None)
    )
    torch.compiler.reset()
    compiled = compile_regions(model, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        compiled(**packed).loss.backward()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_filling_belongs_to_sequences(tiny_model, rows, length):
    model = tiny_model()
    ids = torch.randint(3, 40, (rows, length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, :1]}
    packed = pack_in_one_size(batch, model.config, max_tokens=4200)
    for side, name in (("k", "input_ids"), ("q", "labels")):
        lengths = packed[f"cu_seq_lens_{side}"].diff()
        assert lengths.max() <= packed[f"max_length_{side}"]
        assert lengths.sum() == packed[name].numel()
    sources, targets = packed["cu_seq_lens_k"].diff(), packed["cu_seq_lens_q"].diff()
    assert ((sources > 0) == (targets > 0)).all()  # each sequence of a target has a source
    assert packed["input_ids"][0, : rows * length].tolist() == ids.flatten().tolist()
    assert (packed["labels"] != -100).sum() == rows


@pytest.mark.parametrize(("max_tokens", "ratio"), [(2048, 0.3), (8192, 1.0), (32768, 3.0)])
def test_the_batches_of_any_corpus_have_few_sizes(max_tokens, ratio):
    chance = np.random.default_rng(0)
    source = chance.lognormal(2.6, 0.8, 40_000).astype(int).clip(1, 400)
    target = (source * ratio * chance.lognormal(0, 0.25, len(source))).astype(int).clip(1, 600)
    sampler = TokenBudgetBatchSampler(source, target, max_tokens)
    sizes = sizes_for(sampler)
    sampler.set_epoch(9)
    filled, used = 0, set()
    for rows in sampler:
        batch = {
            name: pad_sequence([torch.ones(n, dtype=torch.long) for n in side[rows]], True, fill)
            for name, side, fill in (("input_ids", source, 0), ("labels", target, -100))
        }
        batch["attention_mask"] = batch["input_ids"].clone()
        packed = pack_batch(batch, CONFIG, sizes, max_tokens)
        filled += packed["input_ids"].numel() + packed["labels"].numel()
        used.add(tuple(getattr(value, "shape", value) for value in packed.values()))
    assert len(used) <= MOST_SIZES
    assert filled <= 1.12 * (source.sum() + target.sum())
