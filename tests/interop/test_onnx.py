"""Models on onnxruntime: their graphs compute the same, and generate the same."""

import importlib

import pytest
import torch
from conftest import make_batch, make_model

FEW_LAYERS = {"encoder_layers": 1, "decoder_layers": 1}  # tracing is slow
SLOW = pytest.mark.slow
MODELS = {
    "modern": {
        "position_embedding_type": "rope",
        "decoder_num_key_value_heads": 2,
        "norm_placement": "pre",
        "norm_type": "rms_norm",
        "gated_ffn": True,
        "attention_bias": False,
        "decoder_layers": 2,
        "decoder_vocab_size": 44,
        "residual_scale": 0.5,
    },
    "the paper's": {},
    "relative": {"position_embedding_type": "relative", "head_dim": 6, "logit_scale": 0.5},
    "alibi, fused": {"position_embedding_type": "alibi", "fused_qkv": True},
    "learned": {"position_embedding_type": "learned", "normalize_embedding": True},
    "no positions": {"position_embedding_type": "none", "norm_type": "unbiased_std"},
}
FAST_AND_SLOW = [
    pytest.param(
        {**FEW_LAYERS, **fields}, id=name, marks=[] if name == "modern" else [pytest.mark.slow]
    )
    for name, fields in MODELS.items()
]


@pytest.fixture(scope="module")
def onnx():
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra `onnx`")
    return importlib.import_module("vanilla_transformer.interop.onnx")


def test_the_class_of_the_graphs_generates_without_a_warning(onnx, heard):
    assert onnx.OnnxModel.can_generate()
    assert not heard.messages


@pytest.mark.parametrize("fields", FAST_AND_SLOW)
def test_the_graphs_generate_the_same(onnx, fields, tmp_path):
    model = make_model(**fields)
    settings = {"num_beams": 2, "length_penalty": 0.7, "max_new_tokens": 6}
    model.generation_config.update(**settings)
    done = onnx.export_to_onnx(model, None, tmp_path)
    assert done.comparison.agrees
    assert done.comparison.describe().endswith("tokens equal.")
    assert done.notes == ()
    assert not list(tmp_path.glob("*.py"))
    exported = onnx.OnnxModel.load(tmp_path, threads=1)
    for lengths in (((7, 4, 6), (6, 6, 6)), ((1,), (1,)), ((9, 3), (2, 2))):
        batch = make_batch(*lengths, decoder_vocab=model.config.decoder_vocab_size)
        del batch["labels"], batch["decoder_attention_mask"]
        with torch.no_grad():
            expected = model(**batch).logits
        torch.testing.assert_close(exported(**batch).logits, expected, rtol=0, atol=2e-5)
        del batch["decoder_input_ids"]
        for options in ({"num_beams": 1}, {"num_beams": 3}, {"use_cache": False}, {}):
            outputs = (each.generate(**batch, **options) for each in (model, exported))
            assert torch.equal(*outputs), options
        sampled = []
        for each in (model, exported):
            torch.manual_seed(0)
            sampled.append(each.generate(**batch, do_sample=True, num_beams=1))
        assert torch.equal(*sampled)
    scores_are_those_of_the_model(model, exported)
    refuse_what_is_not_computed(exported)
    with pytest.raises(FileNotFoundError, match=r"holds no encoder\.onnx"):
        onnx.OnnxModel.load(tmp_path / "none")


def scores_are_those_of_the_model(model, exported):
    ids = torch.tensor([[5, 6, 7], [8, 9, 4]])
    settings = {"num_beams": 3, "output_scores": True, "return_dict_in_generate": True}
    scores = []
    for each in (model, exported):
        found = each.generate(ids, **settings)
        scores.append(
            each.compute_transition_scores(found.sequences, found.scores, found.beam_indices)
        )
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)


def refuse_what_is_not_computed(exported):
    ids = torch.ones(1, 2).long()
    for options in ({"num_beams": 0}, {"guidance_scale": 2.0}, {"assistant_early_exit": 1}):
        with pytest.raises(ValueError, match=f"`{next(iter(options))}`"):
            exported.generate(ids, **options)
    for call in (exported.generate, lambda ids, **other: exported(ids, None, ids, **other)):
        with pytest.raises((ValueError, TypeError), match="no_such_option"):
            call(ids, no_such_option=1)
    with pytest.raises(ValueError, match="`output_attentions` is given"):
        exported(input_ids=ids, decoder_input_ids=ids, output_attentions=True)
    with pytest.raises(ValueError, match="`decoder_input_ids` is missing"):
        exported(input_ids=ids)
