"""Sinusoids against the paper's formula, learned positions, and the numbering of real tokens."""

import math

import pytest
import torch

from vanilla_transformer.positions import (
    LearnedPositions,
    SinusoidalPositions,
    positions_from_causal_mask,
    positions_from_mask,
)


def paper_row(position, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same), written as loops."""
    row = []
    for dim in range(d_model):
        angle = position / 10000 ** (2 * (dim // 2) / d_model)
        row.append(math.sin(angle) if dim % 2 == 0 else math.cos(angle))
    return row


@pytest.mark.parametrize("d_model", [1, 2, 7, 16, 33, 512])
def test_sinusoids_are_those_of_the_paper(d_model):
    positions = [0, 1, 2, 3, 10, 100, 999]
    table = SinusoidalPositions(d_model)(torch.tensor([positions]), torch.float32).embedding
    expected = torch.tensor([[paper_row(p, d_model) for p in positions]])
    assert table.shape == (1, len(positions), d_model)
    torch.testing.assert_close(table, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("position", [5000, 20000])
def test_far_positions_are_still_those_of_the_paper(position):
    table = SinusoidalPositions(64)(torch.tensor([[position]]), torch.float32).embedding
    expected = torch.tensor([[paper_row(position, 64)]])
    torch.testing.assert_close(table, expected, rtol=0, atol=position * 2e-7)


def test_half_precision_rounds_only_the_result():
    table = SinusoidalPositions(16)(torch.tensor([[3001]]), torch.bfloat16).embedding
    assert table.dtype == torch.bfloat16
    expected = torch.tensor([[paper_row(3001, 16)]])
    torch.testing.assert_close(table.float(), expected, rtol=0, atol=2**-8)


def test_sinusoids_are_neither_trained_nor_saved(tiny_model):
    assert not any("embed_positions" in key for key in tiny_model().state_dict())


def test_a_sequence_longer_than_the_table_of_learned_positions_is_fine_for_sinusoids(tiny_model):
    ids = torch.randint(3, 40, (1, 200))
    assert tiny_model()(ids, decoder_input_ids=ids).logits.isfinite().all()


def test_learned_positions_look_their_vectors_up():
    layer = LearnedPositions(5, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(15.0).reshape(5, 3))
    found = layer(torch.tensor([[4, 0]]), torch.float32).embedding
    assert found.tolist() == [[[12, 13, 14], [0, 1, 2]]]


def test_learned_positions_have_a_limit_with_a_remedy(tiny_model):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8)
    fits, long = torch.full((1, 8), 5), torch.full((1, 9), 5)
    model(fits, decoder_input_ids=fits)
    with pytest.raises(ValueError, match=r"9 positions.*`max_position_embeddings` is 8.*truncate"):
        model(long, decoder_input_ids=fits)
    with pytest.raises(ValueError, match="9 positions"):
        model(fits, decoder_input_ids=long)


def test_padding_does_not_count_against_the_limit(tiny_model):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8)
    ids, mask = torch.full((1, 12), 5), torch.tensor([[0] * 4 + [1] * 8])
    padded = model(ids, attention_mask=mask, decoder_input_ids=ids[:, :3]).logits
    torch.testing.assert_close(padded, model(ids[:, 4:], decoder_input_ids=ids[:, :3]).logits)


def test_generation_past_the_limit_is_an_error_and_not_garbage(tiny_model):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8)
    with pytest.raises(ValueError, match="max_position_embeddings"):
        model.generate(torch.full((1, 4), 5), max_new_tokens=12, min_new_tokens=12)


@pytest.mark.parametrize(
    ("mask", "positions"),
    [
        ([1, 1, 1, 1], [0, 1, 2, 3]),
        ([1, 1, 0, 0], [0, 1, 1, 1]),
        ([0, 0, 1, 1], [0, 0, 0, 1]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_real_tokens_are_numbered_from_zero(mask, positions):
    assert positions_from_mask(torch.tensor([mask])).tolist() == [positions]
    assert positions_from_mask(torch.tensor([mask]).bool()).tolist() == [positions]


def test_a_causal_mask_gives_the_same_numbers():
    padding = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    causal = torch.ones(5, 5, dtype=torch.bool).tril() & padding[:, None, None]
    added = torch.zeros(2, 1, 5, 5).masked_fill(~causal, torch.finfo(torch.float32).min)
    for mask in (causal, added):
        found = positions_from_causal_mask(mask)
        assert torch.equal(found[padding], positions_from_mask(padding)[padding])
