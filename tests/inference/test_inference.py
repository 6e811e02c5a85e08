"""Loading saved models, whole and damaged."""

import shutil

import pytest
import torch

from vanilla_transformer.files.loading import load_model, load_weights
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.inference.translator import Translator

LINES = [
    "a dog sees a cat .",
    "",
    "a woman likes a very old boat .",
    "  ",
    "a bird finds a child .",
]


def test_a_model_in_the_middle_of_training_generates_without_dropout(trained):
    expected = Translator.from_pretrained(str(trained), "transformers", "cpu").translate(LINES)
    model, tokenizer = load_model(str(trained), "cpu")
    for module in model.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    assert Translator.from_model(model, tokenizer).translate(LINES) == expected
    assert model.training


def test_directories_without_a_model_of_ours_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json"):
        check_model_directory(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    with pytest.raises(ValueError, match="'bart'"):
        check_model_directory(str(tmp_path))


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
def test_directories_that_lack_something_say_what(trained, tmp_path, name):
    folder = shutil.copytree(trained, tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises((OSError, ValueError), match=name.replace(".", r"\.")):
        load_model(str(folder), "cpu")


def test_a_name_that_is_nowhere_is_named():
    with pytest.raises(FileNotFoundError, match=r"'nobody/nowhere'"):
        load_model("nobody/nowhere", "cpu")


@pytest.mark.parametrize("content", ['{"model_ty', "[]", ""])
def test_a_damaged_config_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json' is not valid"):
        check_model_directory(str(tmp_path))


@pytest.mark.parametrize("content", ['{"eos_to', "[1]"])
@pytest.mark.parametrize(
    "name", ["generation_config.json", "tokenizer.json", "tokenizer_config.json"]
)
def test_other_damaged_files_are_named(tmp_path, name, content):
    (tmp_path / "config.json").write_text('{"model_type": "vanilla_transformer"}')
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name}' is not valid".replace(".json", r"\.json")):
        check_model_directory(str(tmp_path))


@pytest.mark.parametrize("cut", [0, 5, 2000])
def test_weights_cut_short_are_named(trained, tmp_path, cut):
    folder = shutil.copytree(trained, tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:cut])
    with pytest.raises(ValueError, match="damaged or was cut"):
        load_weights(str(folder))
