"""What holds for every kind of checkpoint: no code runs, and the program knows its options."""

import inspect
import json
from argparse import Namespace

import pytest
import torch

from vanilla_transformer.commands import convert, program
from vanilla_transformer.interop.imported import Imported, save_imported
from vanilla_transformer.interop.kinds import IMPORTERS


class Payload:
    """What a pickle file may hold: a call of any function."""

    def __reduce__(self):
        return (print, ("the payload ran",))


OPTIONS = {
    "heads": 2,
    "source_embedding": "a",
    "target_embedding": "b",
    "generator": "c",
    "positions": "none",
    "scale_embedding": True,
}
IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 2}
READS_PICKLES = sorted(IMPORTERS.keys() - {"eole"})  # Eole's files are safetensors and JSON


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", READS_PICKLES)
def test_a_file_with_code_is_refused(tmp_path, capsys, kind, wrapped):
    content = {"model": {"a": torch.ones(1)}, "args": Namespace(x=Payload()), "opt": Payload()}
    torch.save(content if wrapped else Payload(), tmp_path / "model.pt")
    table = tmp_path / "table.yaml"
    fields = {**IDS, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    table.write_text(json.dumps({"config": fields, "weights": {"a": "b"}}))
    options = {**OPTIONS, "table": table, "changes": IDS if kind == "torch" else {}}
    function = IMPORTERS[kind].load()
    taken = {name: options[name] for name in inspect.signature(function).parameters
             if name in options}  # fmt: skip
    with pytest.raises(ValueError, match=r"model\.pt' cannot be read"):
        function(tmp_path / "model.pt", **taken)
    assert "payload" not in capsys.readouterr().out
    torch.load(tmp_path / "model.pt", weights_only=False)
    assert "the payload ran" in capsys.readouterr().out


@pytest.mark.parametrize("kind", IMPORTERS)
def test_the_options_of_a_kind_are_those_of_its_function(kind):
    parameters = inspect.signature(IMPORTERS[kind].load()).parameters
    required = {name for name, p in parameters.items() if p.default is p.empty} - {"source"}
    assert set(IMPORTERS[kind].required) == required
    assert {*IMPORTERS[kind].required, *IMPORTERS[kind].optional} == {*parameters} - {"source"}


def test_the_program_offers_each_option_of_each_kind(capsys):
    with pytest.raises(SystemExit):
        program.main(["convert", "--help"])
    shown = capsys.readouterr().out
    names = {name for kind in convert.KINDS.values() for name in (*kind.required, *kind.optional)}
    for name in names - {"changes"}:
        assert f"--{name.replace('_', '-')}" in shown
    assert all(kind in shown for kind in convert.KINDS)


def test_a_missing_file_is_one_line(tmp_path, capsys):
    for kind in ("fairseq", "opennmt-py", "eole"):
        assert program.main(["convert", "--from", kind, "nowhere.pt", str(tmp_path / "out")]) == 1
        assert "'nowhere.pt' does not exist" in capsys.readouterr().err


def test_a_library_that_fails_is_named_and_stops_nothing(tiny_model, tmp_path):
    def fail(inputs):
        raise AttributeError("no such option")

    imported = Imported(tiny_model(), "table", "run.pt", library="Other 3", source_logits=fail)
    sentence = save_imported(imported, tmp_path)
    assert sentence == "Other 3 could not run the source (AttributeError: no such option)."
    assert sentence in (tmp_path / "README.md").read_text()
    assert json.loads((tmp_path / "probe.json").read_text())["source"] == "vanilla_transformer"
