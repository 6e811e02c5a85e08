"""Mixtures of old and adapted weights: exact, complete, and chosen by both validations."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run.adaptation_mixture import best_share, choose_mixture, mix_models


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({1.0: (9, 30), 0.5: (7, 30)}, 1.0),
        ({1.0: (9, 29), 0.5: (8, 31)}, 0.5),
        ({1.0: (-3, -4), 0.5: (-3, -4)}, 1.0),  # equal: the larger share
    ],
)
def test_the_best_share_has_the_best_scores_together(scores, best):
    assert best_share(scores) == best


@pytest.fixture
def changed(trained, tmp_path):
    """The model, with weights that are all larger by one."""
    folder = tmp_path / "changed"
    shutil.copytree(trained, folder)
    weights = load_file(folder / "model.safetensors")
    weights = {name: value + 1 for name, value in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_mixture_is_a_complete_model(trained, changed, tmp_path, dtype):
    old = tmp_path / "old"
    shutil.copytree(trained, old)
    weights = load_file(old / "model.safetensors")
    halves = {name: value.to(dtype) for name, value in weights.items()}
    save_file(halves, old / "model.safetensors", {"format": "pt"})
    mix_models(old, changed, 0.25, tmp_path / "mixed")
    found = load_file(tmp_path / "mixed" / "model.safetensors")
    assert found.keys() == weights.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, halves[name].float() + 0.25, rtol=1e-3, atol=1e-3)
    assert Translator.from_pretrained(str(tmp_path / "mixed")).translate(["a cat"])


def test_a_choice_is_made_once(trained, changed, tmp_path):
    asked = []

    def validation(name):
        asked.append(name)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        choose_mixture(trained, changed, validation, "bleu")
    assert asked == ["validation"]
    (tmp_path / "mixture.json").write_text(json.dumps({"share": 0.5}))
    mixed = choose_mixture(trained, changed, validation, "bleu")
    old, new = (load_file(one / "model.safetensors") for one in (trained, mixed))
    name = next(iter(old))
    torch.testing.assert_close(new[name], old[name] + 0.5)
