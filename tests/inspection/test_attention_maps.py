"""Attention maps: the weights of a real call, with the right tokens."""

import pytest
import torch

from vanilla_transformer.files.loading import load_model
from vanilla_transformer.inspection import attention_maps


@pytest.fixture(scope="module")
def maps(trained):
    model, tokenizer = load_model(str(trained))
    return attention_maps(model, tokenizer, "a dog likes a boat .", "Hund mag Boot .")


def test_tokens_stand_beside_their_weights(maps):
    source_len, target_len = len(maps.source), len(maps.predicted)
    assert maps.source[-1] == maps.predicted[-1] == "</s>"
    assert maps.fed[1:] == maps.predicted[:-1]
    assert maps.encoder.shape[2:] == (source_len, source_len)
    assert maps.decoder.shape[2:] == (target_len, target_len)
    assert maps.cross.shape[2:] == (target_len, source_len)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert maps.decoder.triu(1).abs().max() == 0


def test_the_weights_are_those_of_the_model(trained, maps):
    model, tokenizer = load_model(str(trained))
    batch = tokenizer(
        ["a dog likes a boat ."], text_target=["Hund mag Boot ."], return_tensors="pt"
    )
    with torch.no_grad():
        outputs = model(**batch, output_attentions=True)
    for layer, weights in enumerate(outputs.cross_attentions):
        torch.testing.assert_close(maps.cross[layer], weights[0])


def test_without_a_target_the_model_writes_it(trained):
    model, tokenizer = load_model(str(trained))
    model.train()
    maps = attention_maps(model, tokenizer, "a dog likes a boat .")
    assert model.training
    text = tokenizer.convert_tokens_to_string(maps.predicted[:-1], side="target")
    assert text == "Hund mag Boot ."


def test_an_alignment_names_the_strongest_source_token(maps):
    for head in (None, 0):
        pairs = maps.alignment(layer=0, head=head)
        weights = maps.cross[0].mean(0) if head is None else maps.cross[0, head]
        assert [target for target, _, _ in pairs] == maps.predicted
        for row, (_, token, weight) in enumerate(pairs):
            assert weight == pytest.approx(weights[row].max().item())
            assert token == maps.source[int(weights[row].argmax())]
