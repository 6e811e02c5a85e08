"""Conversion of a file of weights into a directory for the Auto classes."""

import pytest
import torch
from safetensors.torch import save_file
from test_systems import weights_of_a
from toy import command
from transformers import AutoModel, AutoModelForSeq2SeqLM

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.checkpoint_files import read_state_dict
from vanilla_transformer.interop.convert import convert_checkpoint
from vanilla_transformer.interop.systems import convert


def weights_of_b():
    """Weights of system B with one layer of width 8, under the documented names."""
    shapes = {"self_attention.qkv": (24, 8), "self_attention.out": (8, 8)}
    shapes |= {"feed_forward.linear1": (12, 8), "feed_forward.linear2": (8, 12)}
    weights = {}
    for name, shape in shapes.items():
        weights[f"layers.0.{name}.weight"] = torch.randn(shape)
        weights[f"layers.0.{name}.bias"] = torch.randn(shape[0])
    for norm in ("layers.0.norm1", "layers.0.norm2", "norm"):
        weights |= {f"{norm}.gain": torch.randn(8), f"{norm}.bias": torch.randn(8)}
    return weights


def test_the_program_writes_a_directory_for_the_auto_classes(tmp_path):
    """The file is a training checkpoint with the prefix `module.` of a wrapper."""
    weights, checkpoint = weights_of_a(), tmp_path / "run.pt"
    wrapped = {f"module.{name}": tensor for name, tensor in weights.items()}
    torch.save({"epoch": 3, "model_state_dict": wrapped}, checkpoint)
    rules = tmp_path / "rules.yaml"
    rules.write_text(r"'module\.(.*)': '\1'", encoding="utf-8")
    arguments = ("--from", "system-a", "--heads", 2, checkpoint, tmp_path / "out")
    options = (
        "--rename",
        rules,
        "--key",
        "model_state_dict",
        "--set",
        "dropout=0",
        "eos_token_id=7",
    )
    done = command("convert", *arguments, *options)
    assert done.returncode == 0, done.stderr
    assert "VanillaTransformerForConditionalGeneration" in done.stdout
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert (model.config.dropout, model.config.eos_token_id) == (0, 7)
    _, expected = convert("system-a", weights, 2)
    found = model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=3).shape[1] <= 4
    with pytest.raises(ValueError, match="is not empty: add --overwrite"):
        run_subcommand("convert", [*map(str, arguments)])
    run_subcommand("convert", [*map(str, arguments), *map(str, options), "--overwrite"])
    assert {path.name for path in tmp_path.iterdir()} == {"run.pt", "rules.yaml", "out"}


def test_a_converted_encoder_is_the_encoder_of_a_bare_model(tmp_path, capsys):
    weights = weights_of_b()
    save_file(weights, tmp_path / "b.safetensors")
    paths = (str(tmp_path / "b.safetensors"), str(tmp_path / "out"))
    run_subcommand("convert", ["--from", "system-b", "--heads", "2", *paths])
    assert "Only the encoder is trained" in capsys.readouterr().out
    model = AutoModel.from_pretrained(tmp_path / "out")
    _, expected = convert("system-b", weights, 2)
    assert all(name.startswith("encoder.") for name in expected)
    found = model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert model.encoder(inputs_embeds=torch.randn(2, 5, 8))[0].shape == (2, 5, 8)


def test_files_that_hold_no_weights_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        read_state_dict(tmp_path / "none.pt")
    cases = {
        "text.pt": (b"not a checkpoint", "cannot be read as weights"),
        "text.safetensors": (b"not a checkpoint", "cannot be read as weights"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_state_dict(tmp_path / name)
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"save `model.state_dict\(\)` rather than the model"):
        read_state_dict(tmp_path / "model.pt")
    torch.save({"epoch": 1, "weights": {}}, tmp_path / "more.pt")
    with pytest.raises(ValueError, match=r"holds more than weights: \['epoch', 'weights'\]"):
        read_state_dict(tmp_path / "more.pt")
    with pytest.raises(ValueError, match=r"`key` is 'state'.*no such entry"):
        read_state_dict(tmp_path / "more.pt", key="state")
    with pytest.raises(ValueError, match="holds no weights"):
        read_state_dict(tmp_path / "more.pt", key="weights")


def test_files_of_rules_are_checked(tmp_path):
    torch.save(weights_of_a(), tmp_path / "a.pt")
    for content, message in (
        ("[1]", "must map regular expressions"),
        ("a: [", "is not valid YAML"),
    ):
        (tmp_path / "rules.yaml").write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            convert_checkpoint(
                "system-a", tmp_path / "a.pt", tmp_path / "out", 2, tmp_path / "rules.yaml"
            )
    with pytest.raises(FileNotFoundError, match="file of rules"):
        convert_checkpoint("system-a", tmp_path / "a.pt", tmp_path / "out", 2, tmp_path / "x.yaml")
    assert not (tmp_path / "out").exists()
