"""Conversion of the published systems: other names, and errors that list all problems."""

import pytest
import torch
from reference_systems import INNER, WIDTH, weights_of_a

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.interop.tutorials import convert_tutorial


def test_sizes_are_read_from_the_weights_and_the_rest_from_the_preset():
    config, _ = convert_tutorial("system-a", weights_of_a(layers=3), 2, dropout=0.3, eos_token_id=5)
    assert (config.vocab_size, config.decoder_vocab_size) == (20, 22)
    assert (config.d_model, config.encoder_ffn_dim) == (WIDTH, INNER)
    assert (config.encoder_layers, config.decoder_layers) == (3, 3)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (2, 2)
    assert (config.dropout, config.eos_token_id, config.scale_embedding) == (0.3, 5, False)


def test_rules_lead_from_the_names_of_a_user():
    expected_config, expected = convert_tutorial("system-a", weights_of_a(), 2)
    theirs = {
        "module." + name.replace("self_attention.q.", "mha.W_Q."): tensor
        for name, tensor in weights_of_a().items()
    }
    theirs |= {"module.encoder.positions.table": torch.zeros(5), "step": torch.zeros(())}
    rules = {
        r"module\.(.*)\.mha\.W_Q\.(.*)": r"\1.self_attention.q.\2",
        r"module\.(.*)": r"\1",
        "step": None,
    }
    config, found = convert_tutorial("system-a", theirs, 2, rules)
    assert config.to_dict() == expected_config.to_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("system", "rows", "message"),
    [
        ("c", 3 * WIDTH - 1, r"qkv\.bias`: \(23,\) cannot be split into 6 equal parts"),
        ("c", 3 * WIDTH, r"qkv\.bias` and .*\.q\.bias` both become"),
        ("a", 3 * WIDTH, r"qkv\.bias` is not known"),  # unknown order of rows
    ],
)
def test_fused_rows_that_do_not_fit_are_named(system, rows, message):
    fused = {"encoder.layers.0.self_attention.qkv.bias": torch.ones(rows)}
    with pytest.raises(ValueError, match=message):
        convert_tutorial(f"system-{system}", weights_of_a() | fused, 2)


def test_padding_of_the_source_moves_to_the_place_of_the_targets():
    weights = weights_of_a()
    config, found = convert_tutorial("system-a", weights, 2, source_pad_token_id=17, pad_token_id=5)
    table, expected = (
        found["model.encoder.embed_tokens.weight"],
        weights["encoder.embedding.weight"],
    )
    assert torch.equal(table[[5, 17]], expected[[17, 5]])
    others = [row for row in range(20) if row not in (5, 17)]
    assert torch.equal(table[others], expected[others])
    assert config.pad_token_id == 5


def test_a_source_without_the_id_of_the_targets_padding_grows():
    weights = weights_of_a()
    config, found = convert_tutorial(
        "system-a", weights, 2, source_pad_token_id=18, pad_token_id=21
    )
    table = found["model.encoder.embed_tokens.weight"]
    assert (config.vocab_size, config.decoder_vocab_size, len(table)) == (22, 22, 22)
    expected = weights["encoder.embedding.weight"]
    assert torch.equal(table[21], expected[18])
    assert torch.equal(table[[*range(18), 19]], expected[[*range(18), 19]])
    VanillaTransformerForConditionalGeneration(config).load_state_dict(found)
