"""What a file or directory holds is told by its files, and `convert` needs no `--from`."""

import eole_models
import fairseq_models
import marian_models
import opennmt_models
import pytest
import torch
from hf_models import make
from nn_transformer_model import random_model
from reference_systems import SystemC, weights_of, weights_of_a
from safetensors.torch import save_file
from test_argos import pack, unpacked  # noqa: F401 - a fixture
from tiny_models import make_model

from vanilla_transformer.commands.program import main, run_subcommand
from vanilla_transformer.interop.recognition import recognise, recognised_kind
from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2


@pytest.fixture(scope="module")
def deployed(shared_words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployed") / "ct2"
    convert_to_ctranslate2(make_model(), shared_words, folder, quantization="int8")
    return folder


def saved(path, content):
    torch.save(content, path)
    return path


def test_every_kind_is_known_by_its_files(deployed, unpacked, tmp_path):  # noqa: F811
    opennmt = opennmt_models.reference_model()
    make("bart").save_pretrained(tmp_path / "bart")
    make_model().save_pretrained(tmp_path / "own")
    save_file(weights_of(SystemC), tmp_path / "c.safetensors")
    sources = {
        ("ctranslate2",): deployed,
        ("argos",): pack(unpacked, tmp_path / "en_de.argosmodel"),
        ("opennmt-py",): opennmt_models.save(tmp_path / "onmt.pt", opennmt),
        ("eole",): eole_models.save(tmp_path / "eole", eole_models.renamed(opennmt)),
        ("fairseq",): fairseq_models.save(
            tmp_path / "fairseq.pt", {"encoder.x": torch.ones(2)}, form="cfg"
        ),
        ("torch",): saved(tmp_path / "t.pt", random_model().state_dict()),
        ("marian-npz",): marian_models.save(
            tmp_path / "marian",
            marian_models.make_arrays(marian_models.BASE),
            {**marian_models.BASE, "transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"},
        ),
        ("bart",): tmp_path / "bart",
        ("vanilla_transformer",): tmp_path / "own",
        ("system-c",): tmp_path / "c.safetensors",
        ("system-a", "system-d", "system-e"): saved(tmp_path / "a.pt", weights_of_a()),
        ("table",): saved(tmp_path / "own.pt", {"mine": torch.ones(3)}),
    }
    found = {path: recognise(path) for path in sources.values()}
    assert {path: each.kinds for path, each in found.items()} == {p: k for k, p in sources.items()}
    assert recognise(deployed / "model.bin").kinds == ("ctranslate2",)
    for kinds, path in sources.items():
        if len(kinds) == 1 and kinds != ("vanilla_transformer",):
            assert recognised_kind(path) == kinds[0]
    with pytest.raises(ValueError, match="may be system-a or system-d or system-e: name it with"):
        recognised_kind(tmp_path / "a.pt")
    with pytest.raises(ValueError, match="needs no conversion"):
        recognised_kind(tmp_path / "own")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is of no kind that is known"):
        recognised_kind(tmp_path / "empty")


def test_inspect_tells_what_a_file_holds(deployed, tmp_path, capsys):
    run_subcommand("inspect", [str(deployed)])
    plain = capsys.readouterr().out
    lines = dict(line.split(maxsplit=1) for line in plain.splitlines())
    assert lines["kind"] == "ctranslate2"
    assert "self_attention/linear_0/weight (48, 16)" in lines["largest"]
    assert "int8" in lines["numbers"]
    make_model().save_pretrained(tmp_path / "own")
    run_subcommand("inspect", [str(tmp_path / "own")])
    assert "model.shared.weight (40, 16)" in capsys.readouterr().out
    assert main(["inspect", "file", str(tmp_path / "nothing")]) == 1
