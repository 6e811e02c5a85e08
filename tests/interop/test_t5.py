"""T5 v1.0 and v1.1, mT5, Flan-T5 and ByT5 come in and go back."""

import pytest
import torch
from hf_models import assert_same_function, assert_same_weights, make_source
from t5_models import t5
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, T5ForConditionalGeneration

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.hf_models import from_transformers, to_transformers

ACTIVATIONS = ("relu", "gated-silu", "gelu_new")


@pytest.mark.parametrize(
    ("version", "activation"),
    [*(("1.0", name) for name in ACTIVATIONS), ("1.1", "gated-gelu"), ("mt5", "gated-gelu")],
)
def test_every_t5_computes_the_same_and_goes_back(version, activation):
    source = t5(version, feed_forward_proj=activation, num_decoder_layers=1)
    ours = from_transformers(source)
    assert_same_function(source, ours, sides=("right", "left"))
    back = to_transformers(ours, kind="t5")
    assert_same_function(back, ours, beams=(1,))
    if version != "mt5":
        assert_same_weights(source, back)


def test_long_sequences_reach_every_bucket():
    fields = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
    source = t5(num_layers=1, **fields)
    ours = from_transformers(source)
    ids = torch.randint(3, 50, (2, 200))
    with torch.no_grad():
        expected, found = (each(ids, decoder_input_ids=ids).logits for each in (source, ours))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_float16_does_not_overflow_where_it_does_not_in_t5(tmp_path, version):
    source = t5(version)
    for block in [*source.encoder.block, *source.decoder.block]:
        block.layer[-1].DenseReluDense.wo.weight.data *= 1e6  # as large as in published ones
    ours = from_transformers(source)
    ids, errors = torch.randint(3, 50, (2, 9)), []
    with torch.no_grad():
        expected = source(ids, decoder_input_ids=ids).logits
        for model in (source, ours):
            model.save_pretrained(tmp_path / type(model).__name__)
            half = AutoModelForSeq2SeqLM.from_pretrained(
                tmp_path / type(model).__name__, dtype=torch.float16
            )
            logits = half(ids, decoder_input_ids=ids).logits
            assert logits.dtype == torch.float16
            errors.append((logits - expected).abs().max())
            assert half.generate(ids, num_beams=2, max_new_tokens=3).shape[1] > 1
    assert errors[1] < 2 * errors[0]


@pytest.mark.parametrize("version", ["1.0", "mt5"])
def test_a_directory_is_converted(tmp_path, version):
    source = t5(version)
    source.generation_config = GenerationConfig(
        num_beams=3, max_length=9, decoder_start_token_id=0, eos_token_id=1, pad_token_id=0
    )
    source.save_pretrained(tmp_path / "source")
    loaded = type(source).from_pretrained(tmp_path / "source")
    assert torch.equal(loaded.lm_head.weight, source.lm_head.weight)
    assert convert("t5", tmp_path / "source", tmp_path / "out").comparison.agrees
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    ids = torch.randint(3, 45, (2, 6))
    assert torch.equal(ours.generate(ids), source.generate(ids))


def test_fields_without_effect_do_not_stand_in_the_way():
    fields = from_transformers(t5("1.1", d_kv=8)).config.to_dict()
    assert fields.pop("head_dim") == 8
    fields |= {"max_position_embeddings": 77, "label_smoothing": 0.1, "dropout": 0.3}
    config = VanillaTransformerConfig(**fields)
    ours = make_source(VanillaTransformerForConditionalGeneration, config)
    assert_same_function(to_transformers(ours, kind="t5"), ours, beams=(1,))


def test_float16_keeps_what_the_class_keeps_in_float32(tmp_path):
    """The class loads some matrices in float32, so that all of them are."""
    t5("1.1").to(torch.float16).save_pretrained(tmp_path / "source")
    converted = convert("t5", tmp_path / "source", tmp_path / "out")
    assert converted.comparison.agrees
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    theirs = T5ForConditionalGeneration.from_pretrained(tmp_path / "source").float()
    weights = theirs.state_dict()
    found = to_transformers(ours.float(), kind="t5").state_dict()
    assert all(torch.equal(found[name], value) for name, value in weights.items())
