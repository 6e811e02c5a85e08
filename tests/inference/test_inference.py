"""Loading saved models, and generating text for lines of text."""

import copy
import shutil

import pytest
import torch

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


def test_outputs_that_are_cut_off_are_counted(loaded, heard):
    def said():
        return [message for message in heard.messages if "cut off" in message]

    model, tokenizer = loaded
    assert len(list(generate_lines(model, tokenizer, LINES))) == 5
    assert said() == []
    texts = list(generate_lines(model, tokenizer, LINES, num_beams=1, max_new_tokens=3))
    assert texts[0] == ["Hund sieht Katze"]
    (message,) = said()
    assert "at the longest length of 3 tokens: 3. Give a larger `max_new_tokens`" in message


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
    with pytest.raises(ValueError, match=r"config\.json' is not valid"):
        check_model_directory(str(tmp_path))


@pytest.mark.parametrize("cut", [0, 5, 2000])
def test_weights_cut_short_are_named(trained, tmp_path, cut):
    folder = shutil.copytree(trained, tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:cut])
    with pytest.raises(ValueError, match="damaged or was cut"):
        load_weights(str(folder))


def test_truncated_sources_are_counted(loaded, caplog):
    model, tokenizer = loaded
    tokenizer = copy.deepcopy(tokenizer)
    list(generate_lines(model, tokenizer, LINES, max_new_tokens=2))
    assert "truncated" not in caplog.text
    tokenizer.model_max_length = 7
    list(generate_lines(model, tokenizer, LINES, max_new_tokens=2))
    assert "1 of 5 sources are truncated to 7 tokens" in caplog.text
