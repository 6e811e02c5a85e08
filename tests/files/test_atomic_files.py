"""Files and directories that exist whole or not at all, and full disks that are named."""

import errno
import json
import resource
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vanilla_transformer.files.atomic_files import (
    explained_full_disk,
    replaced_directory,
    write_atomic,
)


def fill(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def old(tmp_path):
    """A directory that holds a model."""
    fill(tmp_path / "out", config="old", weights="old")
    return tmp_path / "out"


def test_a_directory_is_made_or_replaced(old, tmp_path):
    for path in (old, tmp_path / "above" / "new"):
        with replaced_directory(path) as made:
            assert made.name == path.name
            fill(made, config="new")
        assert content(path) == {"config": "new"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["above", "out"]


def test_the_working_directory_and_a_mount_point_stay_the_same_directory(
    old, tmp_path, monkeypatch
):
    """A shell may be in it; and no file can be renamed into a mount point from its parent."""
    inode = old.stat().st_ino
    monkeypatch.chdir(old)
    for path in (".", f"../{old.name}", old):
        with replaced_directory(path) as made:
            assert made.name == old.name
            assert made.is_relative_to(old)
            fill(made, config="new", card=str(path))
        assert content(Path()) == content(old) == {"config": "new", "card": str(path)}
    assert list(tmp_path.iterdir()) == [old]
    assert old.stat().st_ino == inode


@pytest.mark.parametrize("held", [{}, {"config": "old"}])
def test_a_link_stays_a_link(tmp_path, held):
    fill(tmp_path / "disk", **held)
    (tmp_path / "out").symlink_to("disk")
    with replaced_directory(tmp_path / "out") as made:
        fill(made, config="new")
    assert (tmp_path / "out").is_symlink()
    assert content(tmp_path / "disk") == {"config": "new"}


def replace(path, error=None, **files):
    with replaced_directory(path) as made:
        fill(made, **files)
        if error is not None:
            raise error


def test_a_failure_keeps_the_old_directory(old, tmp_path, monkeypatch):
    before, rename = content(old), Path.rename
    with pytest.raises(KeyboardInterrupt):
        replace(old, KeyboardInterrupt(), config="new")
    assert content(old) == before

    def fails_at_the_new_weights(self, target):
        if self.name == "weights" and self.read_text() == "new":
            raise OSError("the disk has failed")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_at_the_new_weights)
    with pytest.raises(OSError, match="the disk has failed"):
        replace(old, config="new", weights="new")
    assert content(old) == before
    assert list(tmp_path.iterdir()) == [old]


# Full disks --------------------------------------------------------------------------------------


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
        write_atomic(tmp_path / "a.json", "text" * 9999)
    assert content(tmp_path) == {"a.json": "former"}


def test_an_error_behind_another_one_counts_and_other_errors_stay(tmp_path):
    hidden = ValueError("I/O operation on closed file")
    hidden.__context__ = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="no space left"), explained_full_disk(tmp_path):
        raise hidden
    with pytest.raises(RuntimeError, match="other"), explained_full_disk(tmp_path):
        raise RuntimeError("other")
    circle = RuntimeError("its own cause")
    with pytest.raises(RuntimeError, match="its own cause"), explained_full_disk(tmp_path):
        raise circle from circle
