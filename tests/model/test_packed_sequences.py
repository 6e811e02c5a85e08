"""Packed sequences: attention takes them one behind another, without padding."""

import copy

import pytest
import torch
from accelerate.utils import compile_regions
from packed_sequences import pretend_to_pack

from vanilla_transformer.model import attention
from vanilla_transformer.model.packed_attention import attend_to_sequences
from vanilla_transformer.training.captured_steps import pack_batch, plan_of

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

    packed = pack_batch(batch, model.config, max_tokens=100)
    names = ("input_ids", "decoder_input_ids", "labels")
    inputs = {name: packed[name] for name in names}
    items = (batch["labels"] != -100).sum()
    of_packed = step(model, **inputs, plan=plan_of(packed), num_items_in_batch=items)
    torch.testing.assert_close(of_packed, padded)


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


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("bf16", [False, True])
def test_each_layer_compiles_to_one_graph(monkeypatch, tiny_model, tiny_batch, choice, bf16):
    model = tiny_model(attention="sdpa", **CHOICES[choice])
    vocabulary = CHOICES[choice].get("decoder_vocab_size")
    batch = only_sources_and_labels(tiny_batch(decoder_vocab=vocabulary))
    packed = pack_batch(batch, model.config, max_tokens=100)
    names = ("input_ids", "decoder_input_ids", "labels")
    inputs = {name: packed[name] for name in names}
    # The kernel has no form for a CPU.
    monkeypatch.setattr(attention, "attend_to_sequences", lambda query, *others: (query, None))
    torch.compiler.reset()
    compiled = compile_regions(model, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        compiled(**inputs, plan=plan_of(packed)).loss.backward()


def test_attention_compiles_once_for_any_number_of_sequences():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return lambda *given: [tensor for tensor in given if torch.is_tensor(tensor)][:1]

    @torch.compile(backend=backend, dynamic=True)
    def attend(query, bounds):
        return attend_to_sequences(query, query, query, bounds, bounds, 64, 64, False, 1.0)[0]

    for sequences in (2, 4, 9):
        attend(torch.zeros(1, 64, 2, 8), torch.zeros(sequences + 1, dtype=torch.int32))
    assert len(graphs) == 1


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_packed_batches_have_few_shapes(tiny_model, rows, length):
    model = tiny_model()
    ids = torch.randint(3, 40, (rows, length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, :1]}
    packed = pack_batch(batch, model.config, max_tokens=4200)
    for name in ("source", "target"):
        bounds = packed[f"{name}_bounds"]
        lengths = bounds.diff()
        assert len(bounds) - 1 in (4, 8)
        assert packed[f"{name}_longest"] in (128, 256)
        assert lengths.max() <= packed[f"{name}_longest"]
        assert bounds[-1] == packed[f"{name}_positions"].numel()
    sources, targets = packed["source_bounds"].diff(), packed["target_bounds"].diff()
    assert packed["input_ids"].numel() % 128 == packed["labels"].numel() % 128 == 0
    assert packed["input_ids"].numel() - rows * length <= 130
    assert (sources[targets > 0] > 0).all()  # each sequence of a target has a source
    assert packed["input_ids"][0, : rows * length].tolist() == ids.flatten().tolist()
    assert (packed["labels"] != -100).sum() == rows
