"""A full disk is named with its file, whichever writer meets it."""

import errno
import json
import resource
import signal

import pytest
import torch
from safetensors.torch import save_file

from vanilla_transformer.data.disk_space import explained_full_disk
from vanilla_transformer.data.whole_files import write_whole


@pytest.fixture
def small_files():
    """Files cannot grow beyond 4,096 bytes, as on a disk that is nearly full."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, former[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, former)


WRITERS = {
    "optimizer.pt": lambda path: torch.save({"a": torch.zeros(9999)}, path),
    "model.safetensors": lambda path: save_file({"a": torch.zeros(9999)}, path),
    "plain.json": lambda path: path.write_text(json.dumps(["text"] * 9999)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.usefixtures("small_files")
def test_the_file_is_named(tmp_path, name):
    (tmp_path / "older.json").write_text("{}")
    with (
        pytest.raises(OSError, match=f"{name}' cannot be written whole: no space left"),
        explained_full_disk(tmp_path),
    ):
        WRITERS[name](tmp_path / name)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_is_written_whole_keeps_its_former_content(tmp_path):
    (tmp_path / "a.json").write_text("former")
    with pytest.raises(OSError, match=r"a\.json' cannot be written whole"):
        write_whole(tmp_path / "a.json", "text" * 9999)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.json": "former"}


def test_an_error_behind_another_one_counts(tmp_path):
    hidden = ValueError("I/O operation on closed file")
    hidden.__context__ = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="no space left"), explained_full_disk(tmp_path):
        raise hidden


def test_other_errors_stay(tmp_path):
    with pytest.raises(RuntimeError, match="other"), explained_full_disk(tmp_path):
        raise RuntimeError("other")
