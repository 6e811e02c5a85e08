"""Outputs: packed files, pipes and links."""

import gzip
import os

import pytest

from vanilla_transformer.commands.files import open_output
from vanilla_transformer.commands.program import run_subcommand

LINES = ["a dog sees a cat .", "a bird finds a child ."] * 100


def test_a_packed_output_is_as_small_as_if_packed_at_once(trained, tmp_path):
    output = tmp_path / "out.gz"
    argv = [str(trained), "--num-beams", "1", "--device", "cpu", "--output", str(output), *LINES]
    run_subcommand("translate", argv)
    text = gzip.decompress(output.read_bytes())
    assert text.decode() == "Hund sieht Katze .\nVogel findet Kind .\n" * 100
    assert output.stat().st_size < len(gzip.compress(text)) + 50


def test_a_pipe_gets_each_line_at_once(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    with open_output(path) as stream:
        for line in ("one", "two"):
            print(line, file=stream)
            assert os.read(reader, 99) == f"{line}\n".encode()
    os.close(reader)


@pytest.mark.parametrize("exists", [True, False])
def test_an_output_that_is_a_link_stays_one(tmp_path, exists):
    (tmp_path / "disk").mkdir()
    kept, link = tmp_path / "disk" / "out", tmp_path / "link"
    link.symlink_to(kept)
    if exists:
        kept.write_text("older")
    with open_output(str(link)) as stream:
        print("new", file=stream)
    assert link.is_symlink()
    assert kept.read_text() == "new\n"
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "link"}
    assert [path.name for path in kept.parent.iterdir()] == ["out"]
