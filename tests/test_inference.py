"""Lines of text in, lines of text out."""

import pytest
import torch
from toy import script

from vanilla_transformer.inference import check_model_directory, generate_lines, load_model

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


def test_outputs_keep_the_order_whatever_the_batch(loaded):
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
    assert script("generate.py", trained, *lines).stdout == expected
    text = "".join(f"{line}\r\n" for line in lines)
    assert script("generate.py", trained, input=text).stdout == expected

    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    argv = (trained, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt")
    assert script("generate.py", *argv).returncode == 0
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == expected
    again = script("generate.py", *argv)
    assert "--overwrite" in again.stderr.splitlines()[-1]


def test_undecodable_bytes_name_their_line(trained, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a dog\n\xff\xfe\n")
    done = script("generate.py", trained, "--input", tmp_path / "in.txt")
    assert "line 2" in done.stderr.splitlines()[-1]


def test_directories_without_a_model_of_ours_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        check_model_directory(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"no config\.json"):
        check_model_directory(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    with pytest.raises(ValueError, match="'bart'"):
        check_model_directory(str(tmp_path))
