"""Every scheme of positions against its formula or another system; numbering of real tokens."""

import math

import pytest
import torch
from transformers import LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from vanilla_transformer.model.configuration_vanilla_transformer import (
    BIASED_SCHEMES,
    CHOICES,
    PACKED_SCHEMES,
)
from vanilla_transformer.model.positions import (
    AlibiPositions,
    FairseqSinusoidalPositions,
    HalfSinusoidalPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    alibi_slopes,
    number_tokens,
)


def paper_row(position, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same), written as loops."""
    row = []
    for dim in range(d_model):
        angle = position / 10000 ** (2 * (dim // 2) / d_model)
        row.append(math.sin(angle) if dim % 2 == 0 else math.cos(angle))
    return row


SCHEMES = {
    "sinusoidal": lambda: SinusoidalPositions(33),
    "sinusoidal_half": lambda: HalfSinusoidalPositions(33),
    "sinusoidal_fairseq": lambda: FairseqSinusoidalPositions(33),
    "alibi": lambda: AlibiPositions(6),
    "rope": lambda: RotaryPositions(8, 10000.0),
}
LEARNED = ("learned", "relative")  # from weights, compared below


def test_each_scheme_that_can_be_chosen_is_compared():
    assert {*SCHEMES, *LEARNED, "none"} == {*CHOICES["position_embedding_type"]}
    assert {*BIASED_SCHEMES, *PACKED_SCHEMES, "learned"} == {*CHOICES["position_embedding_type"]}


@pytest.mark.parametrize("name", SCHEMES)
def test_positions_do_not_follow_the_default_type(name):
    positions = torch.tensor([[0, 1, 7, 300, 999]])
    expected = SCHEMES[name]()(positions, torch.float32)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = SCHEMES[name]()(positions, torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("d_model", [1, 2, 7, 16, 33, 512])
def test_sinusoids_are_those_of_the_paper(d_model):
    for positions, tolerance in (([0, 1, 2, 3, 10, 100, 999], 1e-4), ([5000, 20000], 4e-3)):
        table = SinusoidalPositions(d_model)(torch.tensor([positions]), torch.float32).embedding
        expected = torch.tensor([[paper_row(p, d_model) for p in positions]])
        assert table.shape == (1, len(positions), d_model)
        torch.testing.assert_close(table, expected, rtol=0, atol=tolerance)


def test_half_precision_rounds_only_the_result():
    table = SinusoidalPositions(16)(torch.tensor([[3001]]), torch.bfloat16).embedding
    assert table.dtype == torch.bfloat16
    expected = torch.tensor([[paper_row(3001, 16)]])
    torch.testing.assert_close(table.float(), expected, rtol=0, atol=2**-8)


def test_sinusoids_are_neither_trained_nor_saved(tiny_model):
    assert not any("embed_positions" in key for key in tiny_model().state_dict())


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
    for kind in (torch.long, torch.bool):
        queries, keys = number_tokens(
            torch.zeros(1, 4, 8), torch.tensor([mask]).to(kind), None, False
        )
        assert queries.tolist() == keys.tolist() == [positions]


def test_a_causal_mask_gives_the_same_numbers():
    padding = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    causal = torch.ones(5, 5, dtype=torch.bool).tril() & padding[:, None, None]
    added = torch.zeros(2, 1, 5, 5).masked_fill(~causal, torch.finfo(torch.float32).min)
    expected = number_tokens(torch.zeros(2, 5, 8), padding, None, True)
    for mask in (causal, added):
        found = number_tokens(torch.zeros(2, 5, 8), mask, None, True)
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.equal(ours[padding], theirs[padding])


# --- sines, then cosines -------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [1, 2, 7, 16, 33])
def test_half_sinusoids_are_those_of_marian(d_model):
    marian = MarianSinusoidalPositionalEmbedding(50, d_model)
    expected = marian.create_weight()[None]
    found = HalfSinusoidalPositions(d_model)(torch.arange(50)[None], torch.float32).embedding
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("d_model", [4, 7, 16, 33])
@pytest.mark.parametrize("padding", [0, 1, 5])
def test_fairseq_sinusoids_are_those_of_m2m100(d_model, padding):
    """The first token of fairseq has the position after the padding id."""
    ids = torch.full((1, 30), padding + 1)
    expected = M2M100SinusoidalPositionalEmbedding(30, d_model, padding)(ids)
    scheme = FairseqSinusoidalPositions(d_model, offset=padding + 1)
    found = scheme(torch.arange(30)[None], torch.float32).embedding
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    half = HalfSinusoidalPositions(d_model, offset=padding + 1)
    assert (half(torch.arange(30)[None], torch.float32).embedding - expected).abs().max() > 0.1


def test_an_offset_moves_every_scheme_that_adds_an_embedding(tiny_model):
    ids = torch.arange(5)[None]
    for kind in (SinusoidalPositions, HalfSinusoidalPositions, FairseqSinusoidalPositions):
        plain, moved = kind(16), kind(16, offset=3)
        expected = plain(ids + 3, torch.float32).embedding
        assert torch.equal(moved(ids, torch.float32).embedding, expected)
    model = tiny_model(position_embedding_type="learned", position_offset=2)
    table = model.model.encoder.embed_positions
    assert table.weight.shape == (66, 16)
    assert torch.equal(table(ids, torch.float32).embedding, table.weight[2:7][None])
    with pytest.raises(ValueError, match="needs 65 positions, but `max_position_embeddings` is 64"):
        model(input_ids=torch.ones(1, 65).long(), decoder_input_ids=ids)


# --- trained biases per distance -----------------------------------------------------------------


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (7, 9), (4, 1000)])
def test_relative_biases_are_those_of_t5(is_decoder, buckets, distance):
    config = T5Config(
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
        num_heads=2,
        is_decoder=is_decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativePositions(2, buckets, distance, is_causal=is_decoder)
    ours.weight.data = theirs.relative_attention_bias.weight.data
    ids = torch.arange(300)[None]
    expected = theirs.compute_bias(300, 300)
    assert torch.equal(ours(ids, torch.float32).bias, expected)
    late = ours(ids[:, 290:] + 5, torch.float32, ids + 5).bias
    assert torch.equal(late, expected[:, :, 290:])


# --- rotary --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [9, 40])
def test_rotations_are_those_of_llama(length):
    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    )
    torch.manual_seed(0)
    query, position_ids = torch.randn(1, 4, length, 8), torch.arange(length)[None]
    cosines, sines = LlamaRotaryEmbedding(config)(query, position_ids)
    expected, _ = apply_rotary_pos_emb(query, query, cosines, sines)
    positions = RotaryPositions(8, 100.0)(position_ids, torch.float32)
    torch.testing.assert_close(positions.rotate(query), expected, rtol=1e-5, atol=1e-5)
    assert positions.embedding is positions.bias is None


def test_a_partial_rotation_leaves_the_rest_of_a_head_alone():
    states = torch.randn(1, 1, 5, 8)
    turned = RotaryPositions(4, 50.0)(torch.arange(5)[None], torch.float32).rotate(states)
    torch.testing.assert_close(turned[..., 4:], states[..., 4:], rtol=0, atol=0)
    assert not torch.allclose(turned[:, :, 1:, :4], states[:, :, 1:, :4])


def test_half_precision_weights_do_not_blur_the_rotation(tiny_model, tmp_path):
    full = tiny_model(position_embedding_type="rope")
    full.save_pretrained(tmp_path)
    half = type(full).from_pretrained(tmp_path, dtype=torch.bfloat16)
    ids = torch.tensor([[301]])
    for model in (half, full.to(torch.bfloat16)):
        found = model.get_decoder().embed_positions(ids, torch.bfloat16).rotation[0]
        angles = 301 * 10000.0 ** (-torch.arange(2) / 2)
        torch.testing.assert_close(found.flatten(), angles.cos().repeat(2), rtol=0, atol=1e-4)


# --- linear biases -------------------------------------------------------------------------------


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_slopes_and_biases_are_those_of_bloom(num_heads):
    """Bloom counts from the first key: along a row of the causal mask that is one shift of all."""
    mask = torch.ones(1, 6)
    theirs = build_alibi_tensor(mask, num_heads, torch.float32).reshape(num_heads, 6)
    slopes = alibi_slopes(num_heads)
    torch.testing.assert_close(slopes[:, None] * torch.arange(6), theirs)
    bias = AlibiPositions(num_heads)(torch.arange(6)[None], torch.float32).bias
    assert bias.shape == (1, num_heads, 6, 6)
    for query in range(6):
        found = bias[0, :, query, : query + 1]
        torch.testing.assert_close(found, theirs[:, : query + 1] - theirs[:, query : query + 1])
    torch.testing.assert_close(bias, bias.transpose(-2, -1))


@pytest.mark.parametrize("implementation", ["flash_attention_2", "flash_attention_3"])
@pytest.mark.parametrize("scheme", ["alibi", "relative"])
def test_flash_attention_would_drop_the_bias_and_is_refused(
    tiny_config, tiny_model, implementation, scheme
):
    with pytest.raises(ValueError, match=f"{implementation}.*{scheme}.*choose 'sdpa'"):
        tiny_model(position_embedding_type=scheme, attn_implementation=implementation)
    with pytest.raises(ValueError, match=f"{implementation}.*{scheme}.*choose 'sdpa'"):
        tiny_model(position_embedding_type=scheme).set_attn_implementation(implementation)


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["rope", "alibi", "relative"])
def test_cross_attention_sees_no_positions(tiny_model, tiny_batch, scheme):
    """With self-attention silenced, the order of the source's states cannot matter."""
    model, states = tiny_model(position_embedding_type=scheme), torch.randn(1, 5, 16)
    for layer in model.get_decoder().layers:
        layer.self_attn.out_proj.weight.data.zero_()
    ids = torch.tensor([[4, 5, 6]])
    expected = model.get_decoder()(ids, encoder_hidden_states=states)[0]
    found = model.get_decoder()(ids, encoder_hidden_states=states.flip(1))[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("scheme", ["sinusoidal_half", "learned", "rope", "alibi", "relative"])
def test_the_order_of_the_source_matters_by_positions_alone(tiny_model, scheme):
    ids = torch.tensor([[5, 9, 13, 7]])
    for name, matters in ((scheme, True), ("none", False)):
        encoder = tiny_model(position_embedding_type=name).get_encoder()
        swapped = encoder(ids[:, [1, 0, 2, 3]])[0][:, [1, 0, 2, 3]]
        assert torch.allclose(encoder(ids)[0], swapped, atol=1e-5) is not matters
