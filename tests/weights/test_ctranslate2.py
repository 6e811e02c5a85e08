"""Exports to CTranslate2 compute what the model computes, or are refused with every reason."""

import ctranslate2
import pytest
import torch
from tiny_models import make_model

from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

SOURCE_LENS, TARGET_LENS = (7, 4, 6), (5, 6, 3)
VARIANTS = {
    "post-norm": {},
    "final norms, tanh gelu": {"final_layer_norm": True, "activation_function": "gelu_new"},
    "pre-norm": {"norm_placement": "pre"},
    "pre-norm without final norms": {"norm_placement": "pre", "final_layer_norm": False},
    "rms norm": {"norm_type": "rms_norm", "layer_norm_eps": 1e-2},
    "normalised queries": {"qk_norm": "self", "position_embedding_type": "rope"},
    "rms of queries": {
        "qk_norm": "self",
        "norm_type": "rms_norm",
        "decoder_num_key_value_heads": 2,
    },
    "embedding norm, gelu": {
        "normalize_embedding": True,
        "scale_embedding": False,
        "activation_function": "gelu",
    },
    "half sinusoids": {"position_embedding_type": "sinusoidal_half"},
    "fairseq's sinusoids": {"position_embedding_type": "sinusoidal_fairseq", "position_offset": 2},
    "learned": {"position_embedding_type": "learned"},
    "learned from 2": {"position_embedding_type": "learned", "position_offset": 2},
    "no positions": {"position_embedding_type": "none"},
    "rope": {
        "position_embedding_type": "rope",
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5},
    },
    "relative, as in T5": {
        "position_embedding_type": "relative",
        "relative_attention_max_distance": 20,
        "attention_scale": 1.0,
        "logit_scale": 0.25,
    },
    "swiglu": {"gated_ffn": True, "activation_function": "silu"},
    "grouped queries, wide heads": {
        "encoder_num_key_value_heads": 1,
        "decoder_num_key_value_heads": 2,
        "head_dim": 12,
    },
    "narrow rotated heads": {
        "position_embedding_type": "rope",
        "head_dim": 2,
        "encoder_num_key_value_heads": 1,
    },
    "no biases": {"attention_bias": False, "ffn_bias": False, "lm_head_bias": True},
    "scaled residuals": {"residual_scale": 0.5, "fused_qkv": True},
    "two vocabularies": {"decoder_vocab_size": 44, "tie_word_embeddings": False},
}


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
