"""Loading saved models, and generating text for lines of text."""

import copy
import gzip
import shutil
import subprocess
import sys

import pytest
import torch
from toy import command

from vanilla_transformer.commands.generate import main
from vanilla_transformer.inference.generation import generate_lines
from vanilla_transformer.inference.loading import (
    check_model_directory,
    load_model,
    load_weights,
)

LINES = [
    "a dog sees a cat .",
    "",
    "a woman likes a very old boat .",
    "  ",
    "a bird finds a child .",
]


@pytest.fixture(scope="module")
def loaded(trained):
    return load_model(str(trained), "cpu")


def test_outputs_keep_the_order_for_any_batch_size(loaded):
    one_by_one = list(generate_lines(*loaded, LINES, batch_size=1))
    assert one_by_one[0] == ["Hund sieht Katze ."]
    assert one_by_one[1] == one_by_one[3] == [""]
    assert list(generate_lines(*loaded, LINES, batch_size=4)) == one_by_one


def test_a_model_in_the_middle_of_training_generates_without_dropout(loaded):
    model, tokenizer = load_model(loaded[0].name_or_path, "cpu")
    for module in model.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    assert list(generate_lines(model, tokenizer, LINES)) == list(generate_lines(*loaded, LINES))
    assert model.training
    assert not loaded[0].training


def test_several_outputs_a_line(loaded):
    outputs = list(generate_lines(*loaded, LINES, num_beams=3, num_return_sequences=3))
    assert [len(texts) for texts in outputs] == [3] * len(LINES)
    assert outputs[0][0] == "Hund sieht Katze ."
    assert len(set(outputs[0])) == 3


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


def test_directories_without_a_model_of_ours_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        check_model_directory(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"no config\.json"):
        check_model_directory(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    with pytest.raises(ValueError, match="'bart'"):
        check_model_directory(str(tmp_path))


def test_directories_that_lack_something_say_what(trained, tmp_path):
    for name, message in (
        ("tokenizer*", "holds no tokenizer"),
        ("model.safetensors", "holds no weights"),
    ):
        folder = shutil.copytree(trained, tmp_path / name.strip("*"))
        for path in folder.glob(name):
            if path.suffix != ".py":
                path.unlink()
        with pytest.raises(FileNotFoundError, match=message):
            load_model(str(folder), "cpu")
    with pytest.raises(FileNotFoundError, match=r"'runs/nowhere' is not a local directory"):
        load_model("runs/nowhere", "cpu")


@pytest.mark.parametrize("content", ['{"model_ty', "[]", ""])
def test_a_damaged_config_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json' is not a valid config"):
        check_model_directory(str(tmp_path))


@pytest.mark.parametrize("cut", [0, 5, 2000])
def test_weights_cut_short_are_named(trained, tmp_path, cut):
    folder = shutil.copytree(trained, tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:cut])
    with pytest.raises(ValueError, match="damaged or was cut"):
        load_weights(str(folder))


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
        (["--input", "in.txt", "--output", "in.txt", "--overwrite"], "is the `--input`"),
        (["--input", "nowhere.txt", "--output", "out.txt", "--overwrite"], "does not exist"),
        (["--input", "bad.txt", "--output", "out.txt", "--overwrite"], r"bad\.txt, line 2"),
        (["--input", "in.txt", "a dog"], "both given"),
        (["--output", "nowhere/out.txt", "a dog"], "no directory"),
        (["--batch_size", "0", "a dog"], "at least 1"),
    ],
)
def test_what_is_refused_loses_nothing(trained, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    kept = {"in.txt": b"a dog\n", "out.txt": b"earlier\n", "bad.txt": b"a dog\n\xff\n"}
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        main([str(trained), "--device", "cpu", *options])
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


def test_truncated_sources_are_counted(loaded, caplog):
    model, tokenizer = loaded
    tokenizer = copy.deepcopy(tokenizer)
    list(generate_lines(model, tokenizer, LINES, max_new_tokens=2))
    assert "truncated" not in caplog.text
    tokenizer.model_max_length = 7
    list(generate_lines(model, tokenizer, LINES, max_new_tokens=2))
    assert "1 of 5 sources are truncated to 7 tokens" in caplog.text
