"""Training without padding: the same loss and gradients, and nobody notices."""

import copy

import pytest
import torch
from largest_tensor import LargestTensor
from torch import nn

from vanilla_transformer.model import positions
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerModel
from vanilla_transformer.model.token_layout import TOKEN_STEP, source_token_mask, target_token_mask


def step(model, batch, padding_free, **kwargs):
    """Loss and gradients of one training step from the same state."""
    model.set_padding_free(padding_free)
    model.train().zero_grad()
    torch.manual_seed(5)
    outputs = model(**batch, **kwargs)
    outputs.loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return outputs, gradients


def rows_seen(model, batch, **kwargs):
    """How many rows the feed-forwards of encoder and decoder, and the head, compute."""
    rows = {}
    watched = {
        "encoder": model.model.encoder.layers[0].feed_forward,
        "decoder": model.model.decoder.layers[0].feed_forward,
    }
    handles = [
        module.register_forward_hook(
            lambda module, inputs, output, name=name: rows.update({name: output[..., 0].numel()})
        )
        for name, module in watched.items()
    ]
    model(**batch, **kwargs)
    for handle in handles:
        handle.remove()
    return rows


def assert_same_step(model, batch, tolerance=1e-5, **kwargs):
    free, found = step(model, batch, True, **kwargs)
    padded, expected = step(model, batch, False, **kwargs)
    torch.testing.assert_close(free.loss, padded.loss, rtol=tolerance, atol=tolerance)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = gradient.abs().max().clamp(min=1e-3)
        torch.testing.assert_close(
            found[name] / scale, gradient / scale, rtol=0, atol=tolerance, msg=name
        )
    if free.logits is None:  # the loss was computed in chunks
        return
    real = batch["labels"] != -100
    torch.testing.assert_close(free.logits[real], padded.logits[real], rtol=1e-4, atol=1e-4)
    assert free.logits.shape == padded.logits.shape


CHOICES = {
    "defaults": {},
    "pre, rms, gated": {"norm_placement": "pre", "norm_type": "rms_norm", "gated_ffn": True},
    "fused, multi-query": {"fused_qkv": True, "decoder_num_key_value_heads": 1},
    "two vocabularies": {"decoder_vocab_size": 50, "lm_head_bias": True, "label_smoothing": 0.1},
    "layer drop": {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5},
    "learned": {"position_embedding_type": "learned", "scale_embedding": False},
    "alibi": {"position_embedding_type": "alibi"},
    "relative": {"position_embedding_type": "relative", "logit_scale": 0.5},
    "rope, qk_norm": {"position_embedding_type": "rope", "qk_norm": "all"},
}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("choice", CHOICES)
def test_loss_and_gradients_are_those_of_the_padded_batch(
    tiny_model, tiny_batch, choice, side, attention
):
    model = tiny_model(attention=attention, dropout=0.0, **CHOICES[choice]).double()
    batch = tiny_batch(side=side, decoder_vocab=CHOICES[choice].get("decoder_vocab_size"))
    assert_same_step(model, batch)


def shifted(batch):
    """What DataCollatorForSeq2Seq gives: labels, no decoder inputs and no mask of the target."""
    return {k: v for k, v in batch.items() if not k.startswith("decoder")}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_holes_in_labels_are_seen_by_later_tokens(tiny_model, tiny_batch, attention):
    model, batch = tiny_model(attention=attention, dropout=0.0), shifted(tiny_batch())
    batch["labels"][0, 1:3] = -100
    batch["decoder_input_ids"] = torch.randint(3, 40, batch["labels"].shape)
    assert rows_seen(model.train(), batch) == {"encoder": 17, "decoder": 14}
    assert_same_step(model, batch)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", ["source", "target", "labels", "both", "start", "one token"])
def test_rows_that_are_empty_or_odd(tiny_model, tiny_batch, case, attention):
    model, batch = tiny_model(attention=attention, dropout=0.0).double(), tiny_batch()
    if case in ("source", "both"):
        batch["attention_mask"][1] = 0
    if case in ("target", "both"):
        batch["decoder_attention_mask"][2] = 0
    if case in ("labels", "both"):
        batch["labels"][2] = -100
    if case == "start":  # a mask made of ids, where the start is the padding token
        batch["decoder_attention_mask"][:, 0] = 0
    if case == "one token":
        batch["attention_mask"][:, 1:] = 0
        batch["labels"][:, 1:] = -100
    assert_same_step(model, batch)


def test_what_is_computed_is_what_is_needed(tiny_model, tiny_batch):
    model, batch = tiny_model().train(), tiny_batch(side="right")
    assert rows_seen(model, batch) == {"encoder": 17, "decoder": 14}
    assert rows_seen(model, shifted(batch)) == {"encoder": 17, "decoder": 14}
    padded = {"encoder": 21, "decoder": 18}
    assert rows_seen(model.eval(), batch) == padded
    assert rows_seen(model.train(), batch, output_hidden_states=True) == padded
    assert rows_seen(model, batch, output_attentions=True) == padded
    assert rows_seen(model, batch, use_cache=True) == padded
    model.set_padding_free(False)
    assert rows_seen(model, batch) == rows_seen(copy.deepcopy(model), batch) == padded


def test_a_mask_that_is_no_plain_padding_mask_removes_no_padding(tiny_model, tiny_batch):
    model, batch = tiny_model(dropout=0.0).train(), tiny_batch()
    causal = torch.ones(6, 6).tril().bool()[None, None].expand(3, 1, 6, 6)
    batch["decoder_attention_mask"] = causal
    assert rows_seen(model, batch)["decoder"] == 18
    del batch["attention_mask"]
    assert rows_seen(model, batch)["encoder"] == 21
    assert source_token_mask(None, (3, 7)) is None
    assert target_token_mask(batch["labels"], None, (3, 5)) is None


@pytest.mark.parametrize("given", ["inputs_embeds", "encoder_outputs", "decoder_inputs_embeds"])
def test_embeddings_and_encoded_sources(tiny_model, tiny_batch, given):
    model, batch = tiny_model(dropout=0.0), tiny_batch()
    source = torch.randn(3, 7, 16, requires_grad=True)
    if given == "decoder_inputs_embeds":
        source = torch.randn(3, 6, 16, requires_grad=True)
        del batch["decoder_input_ids"]
    else:
        del batch["input_ids"]
    batch[given] = (source,) if given == "encoder_outputs" else source
    assert_same_step(model, batch)
    gradients = []
    for padding_free in (True, False):
        source.grad = None
        step(model, batch, padding_free)
        gradients.append(source.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_the_bare_model_gives_the_same_states_at_real_tokens(tiny_model, tiny_batch):
    model, batch = tiny_model(VanillaTransformerModel, dropout=0.0).train(), tiny_batch()
    del batch["labels"]
    found = model(**batch, use_cache=False)
    model.set_padding_free(False)
    padded = model(**batch, use_cache=False)
    for name, mask in (
        ("encoder_last_hidden_state", "attention_mask"),
        ("last_hidden_state", "decoder_attention_mask"),
    ):
        real = batch[mask].bool()
        torch.testing.assert_close(found[name][real], padded[name][real], rtol=1e-4, atol=1e-5)
        assert (found[name][~real] == 0).all()
        assert (padded[name][~real] != 0).any()


@pytest.mark.parametrize("padding_free", [True, False])
def test_shortcuts_change_no_value_and_no_gradient(tiny_model, tiny_batch, padding_free):
    model, batch = tiny_model(dropout=0.0, lm_head_bias=True).double(), tiny_batch()
    expected, expected_gradients = step(model, batch, False)
    model.set_padding_free(padding_free)
    rows = {"encoder": 17, "decoder": 14} if padding_free else {"encoder": 21, "decoder": 18}
    assert rows_seen(model.train(), batch) == rows
    model.zero_grad()
    output = model(**batch)
    torch.testing.assert_close(output.loss, expected.loss)
    real = batch["labels"] != -100
    torch.testing.assert_close(output.logits[real], expected.logits[real])
    states, mask = output.encoder_last_hidden_state, batch["attention_mask"].bool()
    torch.testing.assert_close(states[mask], expected.encoder_last_hidden_state[mask])
    assert (states[~mask] == 0).all() == padding_free
    output.loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected_gradients[name])


def test_a_gradient_flows_through_logits_of_a_training_step(tiny_model, tiny_batch):
    gradients = []
    for padding_free in (True, False):
        model = tiny_model(dropout=0.0).train()
        model.set_padding_free(padding_free)
        batch = tiny_batch()
        logits = model(**batch).logits
        logits[batch["labels"] != -100].logsumexp(-1).sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_learned_positions_are_limited_by_the_rows_where_values_are_not_read(
    tiny_model, tiny_batch, monkeypatch
):
    """As on a GPU: without padding, the batch has more tokens than a row has positions."""
    monkeypatch.setattr(positions, "has_readable_values", lambda tensor: False)
    model = tiny_model(position_embedding_type="learned").train()  # 64 positions
    model(**tiny_batch((60, 20, 30), (50, 7, 60))).loss.backward()
    with pytest.raises(ValueError, match="needs 70 positions"):
        model(**tiny_batch((70, 20, 30), (50, 7, 60)))


def test_ids_at_padding_are_still_checked(tiny_model, tiny_batch):
    model, batch = tiny_model().train(), tiny_batch()
    batch["input_ids"][1, -1] = 999
    with pytest.raises(ValueError, match="input_ids"):
        model(**batch)


def test_a_traced_call_keeps_padding(tiny_model, tiny_batch):
    model, batch = tiny_model(dropout=0.0).train(), tiny_batch()
    model.config.use_cache = False

    class Traced(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *args):
            names = ("input_ids", "attention_mask", "decoder_input_ids", "labels")
            return self.model(**dict(zip(names, args, strict=True)), return_dict=False)[1]

    names = ("input_ids", "attention_mask", "decoder_input_ids", "labels")
    program = torch.export.export(Traced(), tuple(batch[name] for name in names), strict=False)
    other = tiny_batch(seed=3, source_lens=(7, 7, 1), target_lens=(2, 6, 4))
    expected = model(**{name: other[name] for name in names}).logits
    real = other["labels"] != -100
    found = program.module()(*(other[name] for name in names))
    torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_large_vocabulary_is_never_there_for_all_tokens(tiny_model, tiny_batch, smoothing):
    model = tiny_model(dropout=0.0, vocab_size=600, label_smoothing=smoothing, noise=0.05).double()
    lengths = torch.arange(2, 42).tolist()
    batch = tiny_batch(source_lens=lengths, target_lens=lengths[::-1], vocab=600)
    largest = {}
    for padding_free in (True, False):
        with LargestTensor() as seen:
            step(model, batch, padding_free)
        largest[padding_free] = seen.elements
    assert largest[True] <= 256 * 600 < sum(lengths) * 600 < largest[False]
    model.set_padding_free(True)
    assert model(**batch).logits is None
    assert model.eval()(**batch).logits.shape == (40, 41, 600)
    model.train()
    assert_same_step(model, batch)


@pytest.mark.parametrize("left_padded", [False, True])
def test_a_large_batch_in_half_precision_has_a_round_number_of_tokens(
    tiny_model, left_padded, monkeypatch
):
    torch.manual_seed(0)
    model = tiny_model(dropout=0.0).train()
    lengths = torch.randint(1, 24, (120,))
    mask = (torch.arange(24) < lengths[:, None]).long()
    ids = torch.randint(4, 20, mask.shape)
    labels = ids.masked_fill(mask == 0, -100)
    if left_padded:
        ids, mask = ids.flip(1), mask.flip(1)
    counts = []
    forward = type(model.get_encoder().layers[0]).forward

    def watched(layer, states, *args, **options):
        counts.append(states.shape[1])
        return forward(layer, states, *args, **options)

    monkeypatch.setattr(type(model.get_encoder().layers[0]), "forward", watched)
    results = []
    for padding_free in (True, False):
        model.set_padding_free(padding_free)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        results.append((loss.item(), [one.grad.clone() for one in model.parameters()]))
    tokens = int(mask.sum())
    assert tokens % TOKEN_STEP
    assert tokens < counts[0] < tokens + TOKEN_STEP
    assert counts[0] % TOKEN_STEP == 0
    (loss, gradients), (expected, expected_gradients) = results
    assert loss == pytest.approx(expected, rel=1e-3)
    for found, gradient in zip(gradients, expected_gradients, strict=True):
        assert (found - gradient).norm() <= 0.03 * gradient.norm() + 1e-4
