"""Outputs: packed files, pipes, links, and outputs that are made in parts."""

import gzip
import os

import pytest

from vanilla_transformer.commands import files
from vanilla_transformer.commands.files import open_output, write_in_chunks
from vanilla_transformer.commands.options import ResumedFile
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.data.directory_lock import locked_directory

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


@pytest.mark.parametrize(("resume", "exists"), [(False, True), (True, False)])
def test_an_output_that_is_a_link_stays_one(tmp_path, resume, exists):
    (tmp_path / "disk").mkdir()
    kept, link = tmp_path / "disk" / "out", tmp_path / "link"
    link.symlink_to(kept)
    if exists:
        kept.write_text("older")
    write_numbers(ResumedFile(output=str(link), resume=resume))
    assert link.is_symlink()
    assert kept.read_text() == "0\n1\n2\n3\n4\n"
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "link"}
    assert [path.name for path in kept.parent.iterdir()] == ["out"]


def write_numbers(options, fails_at=99, identity=None):
    def write(first, chunk, stream):
        for number in chunk:
            if number == fails_at:
                raise KeyboardInterrupt
            print(number, file=stream)

    write_in_chunks(options, identity or {}, iter(range(5)), write, 5, "numbers")


@pytest.mark.parametrize(
    ("fails_at", "name"), [(0, "out.gz"), *((place, "out") for place in range(1, 5))]
)
def test_an_output_goes_on_wherever_it_was_interrupted(tmp_path, monkeypatch, fails_at, name):
    monkeypatch.setattr(files, "LINES_PER_CHUNK", 2)
    options = ResumedFile(output=str(tmp_path / name), resume=True)
    folder = tmp_path / f"{name}.unfinished"
    with pytest.raises(KeyboardInterrupt):
        write_numbers(options, fails_at, {"seed": 1})
    parts = {path.name for path in folder.iterdir()}
    assert parts == {"manifest.json", *("part-000000000", "part-000000002")[: fails_at // 2]}
    (folder / "part-000000004.1234.partial").write_text("of a process that was kil")
    with monkeypatch.context() as patched:  # of a version with larger parts
        patched.setattr(files, "LINES_PER_CHUNK", 3)
        with pytest.raises(ValueError, match="another lines_per_part"):
            write_numbers(options, identity={"seed": 1})
    with pytest.raises(ValueError, match="another beams, seed"):
        write_numbers(options, identity={"seed": 2, "beams": 1})
    with locked_directory(folder, True), pytest.raises(ValueError, match="Another run"):
        write_numbers(options, identity={"seed": 1})
    write_numbers(options, identity={"seed": 1})
    content = (tmp_path / name).read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    assert content == b"0\n1\n2\n3\n4\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_directory_of_something_else_is_no_place_for_parts(tmp_path):
    (tmp_path / "out.unfinished").mkdir()
    (tmp_path / "out.unfinished" / "notes").touch()
    with pytest.raises(ValueError, match="is not empty"):
        write_numbers(ResumedFile(output=str(tmp_path / "out"), resume=True))
