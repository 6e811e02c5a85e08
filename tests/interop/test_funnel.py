"""What holds for every format: no code runs, options are known, the Auto classes load."""

import inspect
import json
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from programs import command
from reference_systems import SystemB, weights_of, weights_of_a
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM
from unsafe_pickle import Payload

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.formats import SOURCES, Imported
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.tutorials import convert_tutorial


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
    _, expected = convert_tutorial("system-a", weights, 2)
    found = model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=3).shape[1] <= 4
    with pytest.raises(ValueError, match="is not empty: add --overwrite"):
        run_subcommand("convert", [*map(str, arguments)])
    run_subcommand("convert", [*map(str, arguments), *map(str, options), "--overwrite"])
    assert {path.name for path in tmp_path.iterdir()} == {"run.pt", "rules.yaml", "out"}


def test_a_converted_encoder_is_the_encoder_of_a_bare_model(tmp_path, capsys):
    weights = weights_of(SystemB)
    save_file(weights, tmp_path / "b.safetensors")
    paths = (str(tmp_path / "b.safetensors"), str(tmp_path / "out"))
    run_subcommand("convert", ["--from", "system-b", "--heads", "2", *paths])
    assert "Only the encoder is trained" in capsys.readouterr().out
    model = AutoModel.from_pretrained(tmp_path / "out")
    _, expected = convert_tutorial("system-b", weights, 2)
    assert all(name.startswith("encoder.") for name in expected)
    found = model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert model.encoder(inputs_embeds=torch.randn(2, 5, 8))[0].shape == (2, 5, 8)


OPTIONS = {
    "heads": 2,
    "source_embedding": "a",
    "target_embedding": "b",
    "generator": "c",
    "positions": "none",
    "scale_embedding": True,
}
IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 2}
WITHOUT_PICKLES = ("eole", "ctranslate2", "argos", "marian-npz")  # formats of their own
READS_PICKLES = sorted(
    kind for kind, source in SOURCES.items() if not source.on_hub and kind not in WITHOUT_PICKLES
)


@pytest.mark.parametrize(
    ("kind", "wrapped"), [*((kind, False) for kind in READS_PICKLES), ("fairseq", True)]
)
def test_a_file_with_code_is_refused(tmp_path, capsys, kind, wrapped):
    content = {"model": {"a": torch.ones(1)}, "args": Namespace(x=Payload()), "opt": Payload()}
    torch.save(content if wrapped else Payload(), tmp_path / "model.pt")
    table = tmp_path / "table.yaml"
    fields = {**IDS, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    table.write_text(json.dumps({"config": fields, "weights": {"a": "b"}}))
    options = {**OPTIONS, "table": table, "changes": IDS if kind == "torch" else {}}
    function = SOURCES[kind].load()
    taken = {name: options[name] for name in inspect.signature(function).parameters
             if name in options}  # fmt: skip
    refusal = r"model\.pt' cannot be read .*`(print|argparse.Namespace)`, whose"
    with pytest.raises(ValueError, match=refusal) as error:
        function(tmp_path / "model.pt", **taken)
    assert "weights_only" not in str(error.value)
    assert "payload" not in capsys.readouterr().out
    torch.load(tmp_path / "model.pt", weights_only=False)
    assert "the payload ran" in capsys.readouterr().out


def test_a_library_that_fails_is_named_and_stops_nothing(tiny_model, tmp_path, monkeypatch):
    def fail(inputs):
        raise AttributeError("no such option")

    imported = Imported(tiny_model(), library="Other 3", source_logits=fail)
    source = SimpleNamespace(load=lambda: lambda source: imported)
    monkeypatch.setitem(SOURCES, "table", source)
    done = convert("table", "run.pt", tmp_path / "out")
    assert done.outcome == "Other 3 could not run the source (AttributeError: no such option)."
    assert done.outcome in (tmp_path / "out" / "README.md").read_text()
