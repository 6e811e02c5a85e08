"""`vanilla-transformer generate`: lines of text in, lines of text out."""

import gzip
import subprocess
import sys
from functools import partial

import pytest
from toy import command

from vanilla_transformer.commands.program import run_subcommand

main = partial(run_subcommand, "generate")
LINES = [
    "a dog sees a cat .",
    "",
    "a woman likes a very old boat .",
    "  ",
    "a bird finds a child .",
]


def test_the_program_reads_arguments_files_and_standard_input(trained, tmp_path):
    expected = "Hund sieht Katze .\n\nVogel findet Kind .\n"
    lines = [LINES[0], LINES[1], LINES[4]]
    assert command("generate", trained, *lines).stdout == expected
    text = "".join(f"{line}\r\n" for line in lines)
    assert command("generate", trained, input=text).stdout == expected

    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    argv = (trained, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt")
    assert command("generate", *argv).returncode == 0
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == expected
    again = command("generate", *argv)
    assert "--overwrite" in again.stderr.splitlines()[-1]


def test_undecodable_bytes_name_their_line(trained, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a dog\n\xff\xfe\n")
    done = command("generate", trained, "--input", tmp_path / "in.txt")
    assert "line 2" in done.stderr.splitlines()[-1]


def test_input_with_marks_and_odd_line_ends_keeps_its_lines(trained, tmp_path, capsys):
    text = f"\ufeff{LINES[0]}\r\n\n \u2028\u0085\n{LINES[4]}\x00\n{LINES[4]}"
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.encode()))
    main([str(trained), "--input", str(tmp_path / "in.gz"), "--device", "cpu"])
    lines = capsys.readouterr().out.split("\n")
    assert (len(lines), lines[0], lines[1]) == (6, "Hund sieht Katze .", "")
    assert lines[4] == "Vogel findet Kind ."


def test_lines_may_stand_after_options(trained, capsys):
    options = ["--num_beams", "3", "--num_return_sequences", "3", "--device", "cpu"]
    main([str(trained), *options, LINES[0], ""])
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "Hund sieht Katze ."
    assert lines[3:] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "in.txt", "--output", "in.txt", "--overwrite"], "is also the `--input`"),
        (["--input", "nowhere.txt", "--output", "out.txt", "--overwrite"], "does not exist"),
        (["--input", "bad.txt", "--output", "out.txt", "--overwrite"], r"bad\.txt, line 2"),
        (["--output", "nowhere/out.txt", "a dog"], "'nowhere' does not exist"),
        (["--output", "folder", "a dog"], "is a directory"),
    ],
)
def test_what_is_refused_loses_nothing(trained, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    kept = {"in.txt": b"a dog\n", "out.txt": b"earlier\n", "bad.txt": b"a dog\n\xff\n"}
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    with pytest.raises((ValueError, OSError), match=message):
        main([str(trained), "--device", "cpu", *options])
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "folder"}
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept


def test_a_reader_that_leaves_ends_the_program_quietly(trained, tmp_path):
    program = f'"{sys.executable}" -m vanilla_transformer generate'
    pipeline = f'{program} "{trained}" "a dog" | true; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", pipeline], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.stdout == "1\n"
    assert "Error" not in done.stderr


def test_a_name_that_ends_in_gz_is_packed(trained, tmp_path):
    (tmp_path / "in").write_text("a dog sees a cat .\n", encoding="utf-8")
    argv = [str(trained), "--input", str(tmp_path / "in"), "--output"]
    main([*argv, str(tmp_path / "out.gz")])
    main([*argv, str(tmp_path / "out")])
    with gzip.open(tmp_path / "out.gz", "rt", encoding="utf-8") as stream:
        assert stream.read() == (tmp_path / "out").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "in.txt", "a dog"], "not both"),
        (["--batch-size", "0", "a dog"], "0 is below 1"),
        (["--num_beams", "0", "a dog"], "--num-beams: 0 is below 1"),
        (["--num-beams"], "--num-beams: expected one argument"),
        (["--num_bea", "2", "a dog"], "unrecognized arguments: --num-bea"),
        (["--top-p", "1.5", "a dog"], "not above 0 and at most 1"),
        (["--temperature", "nan", "a dog"], "not a finite number above 0"),
        (["--length-penalty", "inf", "a dog"], "not a finite number"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(options, message, tmp_path):
    done = command("generate", tmp_path, *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_input_that_is_not_utf8_leaves_no_file(trained, tmp_path):
    argv = (trained, "--device", "cpu", "--output", tmp_path / "out.txt")
    done = command("generate", *argv, input="a dog\n\udcff\n")
    assert done.returncode == 1
    assert "standard input, line 2" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_text_after_two_hyphens_is_text(trained, capsys):
    main([str(trained), "--device", "cpu", "--", "--debug", "a dog sees a cat ."])
    assert capsys.readouterr().out.splitlines()[1:] == ["Hund sieht Katze ."]
