"""Files of weights that are none: each is an error that names the file."""

import ast

import pytest
import torch
from programs import REPOSITORY

from vanilla_transformer.interop.checkpoint_files import read_state_dict


@pytest.mark.parametrize(
    "content", [b"", b"hello world\n", b"{}", b"PK\x03\x04", b"\x80\x02.", bytes(99)]
)
@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_file_that_holds_no_weights_is_named(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}' (cannot be read|holds no) .*weights"):
        read_state_dict(path)


def test_files_that_hold_more_or_other_things_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        read_state_dict(tmp_path / "none.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"of `model.state_dict\(\)`, not of the model"):
        read_state_dict(tmp_path / "model.pt")
    torch.save({"epoch": 1, "weights": {}}, tmp_path / "more.pt")
    with pytest.raises(ValueError, match=r"holds more than weights: \['epoch', 'weights'\]"):
        read_state_dict(tmp_path / "more.pt")
    with pytest.raises(ValueError, match=r"`key` is 'state'.*no such entry"):
        read_state_dict(tmp_path / "more.pt", key="state")
    with pytest.raises(ValueError, match="holds no weights"):
        read_state_dict(tmp_path / "more.pt", key="weights")


def unrestricted_reads(source):
    """The calls that read pickled objects, other than `torch.load` with `weights_only=True`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [getattr(node, "module", None), *(alias.name for alias in node.names)]
            yield from set(modules) & {"pickle", "joblib", "dill", "cloudpickle", "shelve"}
        if not isinstance(node, ast.Call):
            continue
        call, options = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
        if call == "torch.load" and options.get("weights_only") != "True":
            yield call
        if options.get("allow_pickle") not in (None, "False"):
            yield call


def test_no_program_reads_a_pickle_without_restriction():
    rooms = (REPOSITORY / "vanilla_transformer", REPOSITORY / "scripts")
    files = [file for room in rooms for file in room.rglob("*.py")]
    assert len(files) > 100
    reading = {f.name for f in files if list(unrestricted_reads(f.read_text(encoding="utf-8")))}
    assert not reading
