"""Lines in files, packed files, pipes and interrupted files."""

import gzip
import os
from argparse import Namespace

import pytest

from vanilla_transformer.commands.files import (
    check_output,
    open_output,
    open_resumable,
    print_line,
)
from vanilla_transformer.commands.program import run_subcommand

LINES = ["a dog sees a cat .", "a bird finds a child ."] * 100


def test_a_packed_output_is_as_small_as_if_packed_at_once(trained, tmp_path):
    output = tmp_path / "out.gz"
    argv = [str(trained), "--num-beams", "1", "--device", "cpu", "--output", str(output), *LINES]
    run_subcommand("translate", argv)
    text = gzip.decompress(output.read_bytes())
    assert text.decode() == "Hund sieht Katze .\nVogel findet Kind .\n" * 100
    assert output.stat().st_size < len(gzip.compress(text)) + 50


def test_a_packed_alignment_is_small(trained, tmp_path):
    for name, line in (("s", "a dog sees a cat .\n"), ("t", "Hund sieht Katze .\n")):
        (tmp_path / name).write_text(line * 200)
    files = [f"--{key}={tmp_path / key[0]}" for key in ("source", "target")]
    run_subcommand("align", [str(trained), *files, "--output", str(tmp_path / "out.gz")])
    assert (tmp_path / "out.gz").stat().st_size < 200


def test_a_pipe_gets_each_line_at_once(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    with open_output(path) as stream:
        for line in ("one", "two"):
            print_line(line, stream)
            assert os.read(reader, 99) == f"{line}\n".encode()
    os.close(reader)


def test_an_interrupted_file_holds_each_line_at_once(tmp_path):
    options = Namespace(output=str(tmp_path / "out"), resume=True)
    with open_resumable(options, {}) as (stream, _):
        print_line("one", stream)
        assert (tmp_path / "out.unfinished").read_text() == "one\n"


@pytest.mark.parametrize("resume", [False, True])
def test_an_output_that_is_a_link_stays_one(tmp_path, resume):
    (tmp_path / "disk").mkdir()
    kept, link = tmp_path / "disk" / "out", tmp_path / "link"
    link.symlink_to(kept)
    for text in ("one", "two"):  # where it names nothing yet, and where it names a file
        options = Namespace(output=str(link), resume=resume, overwrite=True)
        check_output(options, {})
        with open_resumable(options, {}) as (stream, _):
            print_line(text, stream)
        assert link.is_symlink()
        assert kept.read_text() == f"{text}\n"
    assert [path.name for path in kept.parent.iterdir()] == ["out"]
    link.unlink()
    link.symlink_to(tmp_path / "nowhere" / "out")
    with pytest.raises(OSError, match=r"no file can be made in .*nowhere"):
        check_output(Namespace(output=str(link), resume=resume, overwrite=True), {})
