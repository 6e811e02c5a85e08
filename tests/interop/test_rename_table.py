"""Conversion of a model of one's own with a table that renames its weights."""

import re

import pytest
import torch
from handwritten_model import EOS, PAD, SOS, TABLE, WIDTH, FromScratch
from tiny_models import add_noise
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.rename_table import read_table, read_with_table
from vanilla_transformer.weights.match_weights import WeightRule, fit_weights, rename_weights


@pytest.fixture
def scratch():
    torch.manual_seed(0)
    return add_noise(FromScratch().eval())


@pytest.fixture
def files(scratch, tmp_path):
    torch.save(scratch.state_dict(), tmp_path / "run.pt")
    (tmp_path / "table.yaml").write_text(TABLE)
    return tmp_path


def test_a_model_of_ones_own_is_converted_by_a_table(scratch, files, capsys):
    table, checkpoint, out = (str(files / name) for name in ("table.yaml", "run.pt", "out"))
    run_subcommand("convert", ["--from", "table", checkpoint, out, "--table", table])
    assert "not compared" in capsys.readouterr().out
    model = AutoModelForSeq2SeqLM.from_pretrained(out)
    ids, targets = torch.randint(4, 27, (3, 9)), torch.randint(4, 27, (3, 6))
    ids[2, 4:] = PAD
    with torch.no_grad():
        expected = scratch(ids, targets)
    inputs = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
    found = model(**inputs, decoder_input_ids=targets).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    greedy = model.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=1)
    assert greedy[:, :8].tolist() == decode(scratch, ids)[:, : greedy.shape[1]].tolist()


def decode(scratch, ids):
    """Greedy decoding as the source does it: from SOS, up to EOS, then padding."""
    tokens = torch.full((len(ids), 1), SOS)
    while tokens.shape[1] < 8:
        with torch.no_grad():
            next_tokens = scratch(ids, tokens)[:, -1].argmax(-1)
        ended = (tokens == EOS).any(-1)
        tokens = torch.cat([tokens, next_tokens.masked_fill(ended, PAD)[:, None]], dim=1)
    return tokens


def test_all_misfits_are_listed_at_once(scratch, files):
    weights, table = scratch.state_dict(), read_table(files / "table.yaml")
    del weights["project.bias"], weights["decoder.blocks.0.cross.k.1.weight"]
    weights |= {
        "extra": torch.ones(2),
        "encoder.blocks.0.attn.W_qkv": torch.ones(WIDTH, 3 * WIDTH + 1),
        "decoder.blocks.0.norms.c.weight": torch.ones(WIDTH + 1),
    }
    with pytest.raises(ValueError, match="8 problem") as error:
        fit_weights(rename_weights(weights, table.rules), table.config, table.zeros)
    for problem in (
        "`encoder.blocks.0.attn.W_qkv`: (37, 12) cannot be split into 3 equal parts",
        "`extra` is not known",
        "`lm_head.bias` is missing",
        "has shape (8, 12), but `model.decoder.layers.0.encoder_attn.k_proj.weight` has (12, 12)",
        "`decoder.blocks.0.norms.c.weight` has shape (13,)",
        "`model.encoder.layers.0.self_attn.q_proj.weight` is missing",
    ):
        assert problem in str(error.value)


def test_what_no_weight_shows_must_be_in_the_table(files):
    (files / "table.yaml").write_text("weights: {a: b}")
    with pytest.raises(ValueError, match=r"5 problem.*table\.yaml") as error:
        read_with_table(files / "run.pt", files / "table.yaml")
    assert "`encoder_attention_heads` is missing" in str(error.value)


def test_weights_that_the_config_ties_must_be_equal(files):
    changed = {"tie_word_embeddings": True}
    with pytest.raises(ValueError, match=r"`project.weight` and `decoder.tok.weight` differ"):
        read_with_table(files / "run.pt", files / "table.yaml", changes=changed)


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        ({"to": "x", "offset": 2}, {"x": [2, 3, 4, 5]}),
        ({"copy": ["x", "y"]}, {"x": [0, 1, 2, 3, 4, 5], "y": [0, 1, 2, 3, 4, 5]}),
        ({"split": ["x", "y"]}, {"x": [0, 1, 2], "y": [3, 4, 5]}),
        ({"split": ["x", "y"], "heads": 3}, {"x": [0, 2, 4], "y": [1, 3, 5]}),
        ({"split": ["x", "y"], "offset": 2}, {"x": [2, 3], "y": [4, 5]}),
        (None, {}),
    ],
)
def test_a_rule_moves_rows(tmp_path, value, rows):
    import yaml

    (tmp_path / "t.yaml").write_text(yaml.safe_dump({"weights": {"a": value}}))
    source = torch.arange(12).reshape(6, 2)
    found = rename_weights({"a": source}, read_table(tmp_path / "t.yaml").rules).weights
    assert {name: (tensor[:, 0] // 2).tolist() for name, tensor in found.items()} == rows


def test_parts_are_joined_in_the_order_of_their_numbers():
    rules = {r"h(\d+)": WeightRule(("x",), stack=1)}
    parts = {f"h{number}": torch.full((1, 2), number) for number in (10, 2, 0)}
    assert rename_weights(parts, rules).weights["x"][:, 0].tolist() == [0, 2, 10]
    twice = rename_weights({name: torch.ones(1) for name in ("h1", "h01", "x")}, rules)
    assert twice.problems == (
        "`h01` and `h1` both become `x`",
        "`x` gets a whole weight and parts of one",
    )
    bad = rename_weights({"a": torch.ones(1)}, {"(.)": WeightRule(("x",), stack=1)})
    assert bad.problems[0].startswith("`a`: ")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: [", ""),
        ("config: {}", ""),
        ("{wights: 1, weights: {a: 1, 2: b}}", "2 problem"),
        (
            "weights: {a: {to: [x]}, b: {split: x}, c: {to: x, copy: [y]}, d: {to: x, ofset: 1},"
            " f: {to: x, heads: 2}, g: {copy: [x], stack: 1}}",
            "6 problem",
        ),
    ],
)
def test_a_table_is_checked_whole(tmp_path, text, problems):
    path = tmp_path / "table.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"table\.yaml") as error:
        read_table(path)
    assert problems in str(error.value)


@pytest.mark.parametrize(
    "rules", [{"(": "x"}, {"a": r"\1"}, {"a(b)": r"\2"}, {"a": WeightRule(("x",), stack=1)}]
)
def test_a_rule_that_is_no_expression_is_named(rules):
    with pytest.raises(ValueError, match=rf"The rule {re.escape(repr(next(iter(rules))))}: "):
        rename_weights({}, rules)
