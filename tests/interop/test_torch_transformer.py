"""Conversion of models around nn.Transformer, compared with nn.Transformer itself."""

import pytest
import torch
from nn_transformer_model import HEADS, NAMES, TOKENS, WIDTH, random_model
from torch import nn
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.torch_transformer import read_torch


def read(model, path, table={"learned": "learned:pos.weight"}, **options):  # noqa: B006
    torch.save(model.state_dict(), path)
    settings = {"positions": table.get(model.kind, model.kind), "changes": TOKENS, **options}
    return read_torch(path, HEADS, scale_embedding=model.scale != 1, **{**NAMES, **settings})


@pytest.mark.parametrize(
    ("positions", "scale", "options"),
    [
        ("learned", False, {"norm_first": False, "batch_first": True}),
        ("learned", True, {"norm_first": True, "activation": "gelu"}),
        ("sinusoidal", True, {"norm_first": False, "tied": True, "generator_bias": False}),
        ("none", False, {"norm_first": True, "bias": False, "generator_bias": False}),
    ],
)
def test_the_logits_are_those_of_torch(tmp_path, positions, scale, options):
    source = random_model(positions, scale, **options)
    choices = {name: options[name] for name in ("norm_first", "activation") if name in options}
    table = {"learned": "learned:pos.weight", "sinusoidal": "sinusoidal:pe"}
    imported = read(source, tmp_path / "run.pt", table, **choices)
    ids = torch.randint(4, 19, (3, 9))
    ids[1, 5:] = 1
    targets = torch.randint(4, 19, (3, 7))
    with torch.no_grad():
        expected = source(ids, targets)
        found = imported.model(
            input_ids=ids, attention_mask=(ids != 1).long(), decoder_input_ids=targets
        ).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    config = imported.model.config
    assert config.tie_word_embeddings is options.get("tied", False)
    assert (config.d_model, config.encoder_layers, config.decoder_layers) == (16, 2, 3)


def test_the_program_converts_a_checkpoint_of_a_training(tmp_path):
    source = random_model("sinusoidal")
    torch.save({"model": source.state_dict(), "step": 3}, tmp_path / "run.pt")
    words = ["--from", "torch", tmp_path / "run.pt", tmp_path / "out", "--key", "model"]
    words += ["--heads", HEADS, "--positions", "sinusoidal:pe", "--scale-embedding"]
    for name, value in NAMES.items():
        words += [f"--{name.replace('_', '-')}", value]
    words += ["--set", *(f"{name}={value}" for name, value in TOKENS.items())]
    run_subcommand("convert", [str(word) for word in words])
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert model.config.decoder_start_token_id == 2


def test_what_the_weights_do_not_show_must_be_given(tmp_path):
    source = random_model()
    with pytest.raises(ValueError, match="3 problem") as error:
        read(source, tmp_path / "run.pt", changes={})
    assert "`decoder_start_token_id` is missing" in str(error.value)
    with pytest.raises(ValueError, match="2 problem") as error:
        read(source, tmp_path / "run.pt", generator="fc", source_embedding="x.weight")
    assert "`fc.weight` is not in it" in str(error.value)
    assert "`x.weight` is not in it" in str(error.value)
    for positions in ("learned", "rope", "none:pe", "learned:a,b,c"):
        with pytest.raises(ValueError, match="`positions` is"):
            read(source, tmp_path / "run.pt", positions=positions)


def test_left_over_weights_and_two_transformers_are_refused(tmp_path):
    source = random_model()
    source.more = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="2 problem") as error:
        read(source, tmp_path / "run.pt")
    assert "`more.weight` is not known" in str(error.value)
    del source.more
    source.second = nn.Transformer(WIDTH, HEADS, 1, 1, 8)
    with pytest.raises(ValueError, match=r"2 weights .*, where one"):
        read(source, tmp_path / "run.pt")
    rules = tmp_path / "rules.yaml"
    rules.write_text(r"'second\..*': null")
    assert read(source, tmp_path / "run.pt", rename=rules).model.config.d_model == WIDTH
