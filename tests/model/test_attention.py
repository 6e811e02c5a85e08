"""Attention under whole masks; norms of queries; shared heads and caches."""

import pytest
import torch
from transformers import Qwen3Config
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding

from vanilla_transformer.model.attention import CrossAttention, FusedSelfAttention, SelfAttention
from vanilla_transformer.model.attention_functions import (
    AttentionFunction,
    choose_attention,
    eager_attention_forward,
)
from vanilla_transformer.model.context import CallContext
from vanilla_transformer.model.positions import PositionEncoding


def test_eager_attention_is_exact_in_double_precision():
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    mixed, _ = eager_attention_forward(torch.nn.Identity(), query, key, value, None, 0.5)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=0.5)
    torch.testing.assert_close(mixed, expected.transpose(1, 2), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_row_that_is_masked_whole_is_finite_with_scores_of_any_size(dtype):
    query = torch.full((1, 1, 2, 4), -30.0, dtype=dtype)
    key, value = -query, torch.ones(1, 1, 2, 4, dtype=dtype)
    mask = torch.full((1, 1, 2, 2), torch.finfo(dtype).min, dtype=dtype)
    mixed, weights = eager_attention_forward(
        torch.nn.Identity(), query, key, value, mask, scaling=0.5
    )
    assert mixed.isfinite().all()
    assert weights.isfinite().all()


def make_context(config, **parts):
    attention = AttentionFunction(choose_attention(config)[1])
    return CallContext(attention, {}, source_attention=attention, **parts)


def test_cross_attention_projects_the_source_once(tiny_config):
    torch.manual_seed(0)
    layer = CrossAttention(tiny_config(attn_implementation="eager"), "decoder", 0).eval()
    x, source = torch.randn(2, 1, 16), torch.randn(2, 5, 16)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    context = make_context(layer.config, cache=cache)
    first, _ = layer(x, context, source)
    assert cache.is_updated[0]
    again, _ = layer(x, context, torch.full_like(source, torch.nan))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert cache.cross_attention_cache.get_seq_length() == 5


# --- normalised queries and keys -----------------------------------------------------------------


def with_random_gains(layer):
    for norm in (layer.q_norm, layer.k_norm):
        torch.nn.init.uniform_(norm.weight, 0.5, 3.0)
    return layer.eval()


def test_normalised_self_attention_is_that_of_qwen3(tiny_config):
    torch.manual_seed(0)
    config = tiny_config(
        attn_implementation="eager",
        decoder_num_key_value_heads=2,
        position_embedding_type="rope",
        attention_bias=False,
        qk_norm="all",
        norm_type="rms_norm",
        layer_norm_eps=1e-2,
    )
    ours = with_random_gains(SelfAttention(config, "decoder", 0))
    names = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
    names |= {"rms_norm_eps": 1e-2, "attn_implementation": "eager"}
    theirs = Qwen3Attention(Qwen3Config(**names), 0).eval()
    theirs.load_state_dict({n.replace("out_", "o_"): w for n, w in ours.state_dict().items()})
    x, places = torch.randn(2, 5, 16), torch.arange(5)[None]
    cosines, sines = Qwen3RotaryEmbedding(theirs.config)(x, places)
    expected, _ = theirs(x, (cosines, sines), attention_mask=None)
    halves = sines.chunk(2, dim=-1)  # ours has the sign of the first half in the sines
    rotation = (cosines[:, None], torch.cat([-halves[0], halves[1]], -1)[:, None])
    context = make_context(config, positions=PositionEncoding(rotation=rotation))
    torch.testing.assert_close(ours(x, context)[0], expected)


def test_normalised_cross_attention_scores_by_the_angle(tiny_config):
    config = tiny_config(
        attn_implementation="eager",
        qk_norm="all",
        norm_type="rms_norm",
        layer_norm_eps=1e-12,
        attention_scale=0.7,
    )
    layer = with_random_gains(CrossAttention(config, "decoder", 0))
    torch.nn.init.ones_(layer.q_norm.weight)
    torch.nn.init.ones_(layer.k_norm.weight)
    x, source = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    _, weights = layer(x, make_context(config), source)
    query = layer.q_proj(x).unflatten(-1, (4, 4)).transpose(1, 2)[..., :, None, :]
    key = layer.k_proj(source).unflatten(-1, (4, 4)).transpose(1, 2)[..., None, :, :]
    cosines = torch.cosine_similarity(query, key, dim=-1)  # (batch, heads, target_len, source_len)
    torch.testing.assert_close(weights, (cosines * 4 * 0.7).softmax(-1))


# --- grouped queries, fused projections ----------------------------------------------------------


@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("kind", [SelfAttention, FusedSelfAttention, CrossAttention])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_grouped_queries_are_full_heads_with_copied_keys_and_values(
    tiny_config, attention, kind, shared
):
    torch.manual_seed(0)
    config = tiny_config(attn_implementation=attention, decoder_num_key_value_heads=shared)
    grouped = kind(config, "decoder", 0).eval()
    config = tiny_config(attn_implementation=attention)
    plain = CrossAttention if kind is CrossAttention else SelfAttention
    full = plain(config, "decoder", 0).eval()
    weights = grouped.state_dict()
    if kind is FusedSelfAttention:
        for part in ("weight", "bias"):
            rows = weights.pop(f"qkv_proj.{part}").split((16, 4 * shared, 4 * shared))
            weights |= {f"{n}_proj.{part}": r for n, r in zip("qkv", rows, strict=True)}
    for name, tensor in weights.items():
        if name.startswith(("k_proj", "v_proj")):
            heads = tensor.unflatten(0, (shared, 4))
            weights[name] = heads.repeat_interleave(4 // shared, dim=0).flatten(0, 1)
    full.load_state_dict(weights)
    x, source = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    context = make_context(config)
    arguments = (x, context, source) if kind is CrossAttention else (x, context)
    torch.testing.assert_close(grouped(*arguments)[0], full(*arguments)[0])


@pytest.mark.parametrize(("encoder_shared", "decoder_shared"), [(1, 2), (2, 1), (1, 4), (None, 1)])
@pytest.mark.parametrize("fused", [True, False])
def test_the_cache_holds_key_value_heads(
    tiny_model, tiny_batch, fused, encoder_shared, decoder_shared
):
    model = tiny_model(
        encoder_num_key_value_heads=encoder_shared,
        decoder_num_key_value_heads=decoder_shared,
        fused_qkv=fused,
    )
    batch = tiny_batch((5, 5), (4, 4))
    del batch["labels"]
    cache = model(**batch).past_key_values
    for part, length in ((cache.self_attention_cache, 4), (cache.cross_attention_cache, 5)):
        assert {tuple(layer.keys.shape) for layer in part.layers} == {
            (2, decoder_shared, length, 4)
        }
        assert len(part.layers) == 3  # of the decoder; the encoder has two
    parameters = dict(model.named_parameters())
    name = "model.encoder.layers.0.self_attn.{}_proj.weight"
    heads = encoder_shared or 2
    shape = parameters[name.format("qkv" if fused else "k")].shape
    assert shape == ((16 + 2 * 8 * heads, 16) if fused else (8 * heads, 16))
