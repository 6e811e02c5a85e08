"""Models of Eole, against an independent model and Eole itself."""

import pytest
import torch
from eole_models import renamed, save
from opennmt_models import assert_same_logits, reference_model
from transformers import AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.opennmt import read_eole


def test_the_logits_are_those_of_an_independent_model(tmp_path):
    reference = reference_model()
    out = str(tmp_path / "out")
    source = str(save(tmp_path / "model", renamed(reference)))
    run_subcommand("convert", ["--from", "eole", source, out])
    imported = read_eole(source)
    assert_same_logits(imported, reference)
    config = imported.model.config
    assert (config.pad_token_id, config.decoder_start_token_id, config.eos_token_id) == (1, 2, 3)
    assert config.dropout == 0.2
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer(["w0 w3"], text_target=["das Ha￭ us"])["labels"] == [[4, 5, 6, 3]]


def test_all_options_without_a_counterpart_are_listed(tmp_path):
    changes = {
        "architecture": "rnn",
        "generator_function": "sparsemax",
        "embeddings": {"position_encoding_type": "Rotary", "embedding_layer_norm": True},
        "encoder": {"encoder_layer_style": "postnorm", "norm_eps": 1e-5},
        "mlp_activation_fn": "relu2",
        "num_experts": 2,
    }
    training = {"lora_layers": ["linear_query"]}
    folder = save(tmp_path / "model", renamed(reference_model()), changes, training)
    with pytest.raises(ValueError, match="11 problem") as error:
        read_eole(folder)
    for name in (*changes["embeddings"], *changes["encoder"], *training, "num_experts"):
        assert f"{name}` is" in str(error.value)


def test_files_that_are_broken_are_named(tmp_path):
    folder = save(tmp_path / "model", renamed(reference_model()))
    weights = renamed(reference_model()) | {
        "decoder.transformer_layers.0.layer_scalar": torch.full((1,), 2.0)
    }
    with pytest.raises(ValueError, match=r"layers\.0\.layer_scalar` is not know"):
        read_eole(save(tmp_path / "other", weights))
    (folder / "vocab.json").write_text("{")
    with pytest.raises(ValueError, match=r"vocab\.json' is not valid"):
        read_eole(folder)
