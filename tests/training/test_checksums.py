"""Checksums of a checkpoint."""

import subprocess

import pytest

from vanilla_transformer.training.checksums import CHECKSUMS, changed_files, write_checksums


@pytest.fixture
def folder(tmp_path):
    for name in ("a.pt", "b.json", "README.md", "training_args.bin"):
        (tmp_path / name).write_text(f"content of {name}")
    (tmp_path / "sub").mkdir()
    write_checksums(tmp_path)
    return tmp_path


def test_the_list_is_that_of_sha256sum(folder):
    done = subprocess.run(["sha256sum", "--check", CHECKSUMS], cwd=folder, capture_output=True)
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == ["a.pt: OK", "b.json: OK"]


def test_changed_and_missing_files_are_listed(folder):
    assert changed_files(folder) == []
    (folder / "README.md").write_text("edited")
    (folder / "new").write_text("new")
    assert changed_files(folder) == []
    (folder / "a.pt").write_text("content of a.pu")
    (folder / "b.json").unlink()
    assert changed_files(folder) == ["a.pt", "b.json"]
    assert changed_files(folder, (".json",)) == ["b.json"]
    (folder / CHECKSUMS).unlink()
    assert changed_files(folder) == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"text\n", b"0" * 64 + b"  ../a.pt\n"])
def test_a_damaged_list_is_itself_named(folder, content):
    (folder / CHECKSUMS).write_bytes(content)
    assert changed_files(folder) == [CHECKSUMS]
