"""Exports to CTranslate2 compute what the model computes, or are refused with every reason."""

import ctranslate2
import pytest
import torch
from tiny_models import make_model

from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

SOURCE_LENS, TARGET_LENS = (7, 4, 6), (5, 6, 3)


def load(model, tokenizer, folder, **options):
    convert_to_ctranslate2(model, tokenizer, folder / "ct2", **options)
    return ctranslate2.Translator(str(folder / "ct2"), intra_threads=1, compute_type="default")


def test_every_field_in_the_way_is_named(shared_words, tmp_path):
    changes = {
        "norm_placement": "none",
        "qk_norm": "all",
        "position_embedding_type": "alibi",
        "activation_function": "relu2",
    }
    model = make_model(**changes)
    with pytest.raises(ValueError, match="cannot compute") as refused:
        convert_to_ctranslate2(model, shared_words, tmp_path / "ct2")
    assert all(f"`{name}` is {value!r}" in str(refused.value) for name, value in changes.items())
    assert not (tmp_path / "ct2").exists()


def test_an_export_leaves_the_model_as_it_is(shared_words, tmp_path):
    model = make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    load(model, shared_words, tmp_path, quantization="int8")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_does_not_fit_is_refused(shared_words, tmp_path):
    with pytest.raises(ValueError, match="the model has 30 rows"):
        convert_to_ctranslate2(make_model(vocab_size=30), shared_words, tmp_path / "ct2")
