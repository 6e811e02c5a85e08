"""Stored probes, and the versions that a model was saved with."""

import json
import logging

import pytest
import torch
from safetensors.torch import load_file, save_file

import vanilla_transformer
from vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerModel,
)
from vanilla_transformer.commands import program
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.probe import (
    compute_outputs,
    probe_inputs,
    store_probe,
    verify_model,
)
from vanilla_transformer.model import sharing


@pytest.fixture
def saved(tiny_model, tmp_path):
    model = tiny_model(vocab_size=200)
    model.save_pretrained(tmp_path / "model")
    store_probe(tmp_path / "model")
    return tmp_path / "model"


def test_an_unchanged_model_is_verified(saved, capsys):
    assert not program.main(["verify", str(saved)])
    assert "vanilla_transformer" in capsys.readouterr().out
    assert (saved / "probe.json").stat().st_size < 30_000


@pytest.mark.parametrize(
    ("cls", "changes"),
    [
        (VanillaTransformerModel, {}),
        (VanillaTransformerForSequenceClassification, {}),
        (
            VanillaTransformerForConditionalGeneration,
            {"position_embedding_type": "learned", "max_position_embeddings": 3,
             "pad_token_id": None, "decoder_start_token_id": 39},
        ),
    ],
)  # fmt: skip
def test_models_of_any_class_have_a_probe(tiny_model, tmp_path, cls, changes):
    model = tiny_model(cls, **changes)
    model.save_pretrained(tmp_path)
    store_probe(tmp_path)
    found = verify_model(tmp_path)
    assert found.agrees
    assert found.difference < 1e-5


def test_a_changed_weight_is_noticed_and_can_be_accepted(saved, capsys):
    path = saved / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("fc1.weight"))
    save_file({**weights, name: weights[name] + 1}, path, {"format": "pt"})
    assert program.main(["verify", str(saved)]) == 1
    assert str(saved) in capsys.readouterr().err
    run_subcommand("verify", [str(saved), "--store"])
    assert verify_model(saved).agrees


def test_the_probe_reaches_distances_beyond_a_short_sentence(tiny_model, tmp_path):
    """The weights and the config are equal to the probe's; only the code computes otherwise."""
    model = tiny_model(position_embedding_type="relative", relative_attention_max_distance=64)
    model.save_pretrained(tmp_path)
    other = tiny_model(position_embedding_type="relative", relative_attention_max_distance=24)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        store_probe(tmp_path, compute_outputs(other, probe_inputs(model.config)))
    assert not verify_model(tmp_path).agrees


def test_a_probe_belongs_to_its_weights(saved):
    model = VanillaTransformerForConditionalGeneration.from_pretrained(saved)
    model.save_pretrained(saved)
    assert not (saved / "probe.json").exists()


def test_a_missing_or_broken_probe_is_an_error(saved):
    (saved / "probe.json").write_text("[1]")
    with pytest.raises(ValueError, match="is not valid"):
        verify_model(saved)
    (saved / "probe.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"probe\.json"):
        run_subcommand("verify", [str(saved)])


# Versions ----------------------------------------------------------------------------------------


def test_the_code_knows_its_version_and_writes_it(saved):
    assert vanilla_transformer.__version__ == sharing.CODE_VERSION
    written = json.loads((saved / "config.json").read_text())["saved_with"]
    assert written == sharing.current_versions()
    assert written["torch"] == torch.__version__


def test_an_untested_version_is_warned_of_once(saved, monkeypatch, caplog):
    tested = {"torch": ("1.0", "1.1"), "transformers": ("5.0", "6")}
    monkeypatch.setattr(sharing, "TESTED", tested)
    load = VanillaTransformerForConditionalGeneration.from_pretrained
    with caplog.at_level(logging.WARNING, sharing.__name__):
        load(saved)  # the version that it was saved with has computed its probe
        assert "untested" not in caplog.text
        written = json.loads((saved / "config.json").read_text())
        written["saved_with"]["torch"] = "1.0.1"
        (saved / "config.json").write_text(json.dumps(written))
        load(saved)
        load(saved)
        # Without an end, a newer version gives no warning, and an older one does.
        monkeypatch.setattr(sharing, "TESTED", {"torch": ("1.0", None)})
        load(saved)
        monkeypatch.setattr(sharing, "TESTED", {"torch": ("99.0", None)})
        load(saved)
    assert caplog.text.count("is untested") == 2
