"""FSMT, M2M100 and NLLB: fairseq's positions, two vocabularies, forced language tokens."""

import itertools

import pytest
import torch
from hf_models import SIZES, assert_same_function, assert_same_weights, draw_batch, make_source
from transformers import (
    AutoModelForSeq2SeqLM,
    FSMTConfig,
    FSMTForConditionalGeneration,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
)

from vanilla_transformer.interop.fsmt import from_fsmt, to_fsmt
from vanilla_transformer.interop.m2m100 import from_m2m100, to_m2m100
from vanilla_transformer.interop.models import convert_model

WITHOUT_VOCABULARY = {name: size for name, size in SIZES.items() if name != "vocab_size"}


def m2m100(**changes):
    return make_source(M2M100ForConditionalGeneration, M2M100Config(**{**SIZES, **changes}))


def fsmt(target=60, **changes):
    fields = {**WITHOUT_VOCABULARY, "src_vocab_size": 50, "tgt_vocab_size": target, **changes}
    return make_source(FSMTForConditionalGeneration, FSMTConfig(**fields))


@pytest.mark.parametrize(
    ("activation", "scale", "tied", "pad"),
    [
        (activation, scale, index % 3 != 0, index % 2)
        for index, (activation, scale) in enumerate(
            itertools.product(("relu", "gelu", "swish"), (True, False))
        )
    ],
)
def test_every_m2m100_computes_the_same_and_goes_back(activation, scale, tied, pad):
    source = m2m100(
        activation_function=activation,
        scale_embedding=scale,
        tie_word_embeddings=tied,
        pad_token_id=pad,
    )
    ours = from_m2m100(source)
    assert ours.config.position_offset == pad + 1
    assert_same_function(source, ours, sides=("right", "left"))
    assert_same_function(to_m2m100(ours), ours, beams=(1,))
    if tied:
        assert_same_weights(source, to_m2m100(ours))


@pytest.mark.parametrize("target", [60, 50])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_every_fsmt_computes_the_same_and_goes_back(target, tied, activation):
    """Only vocabularies of one size can be tied."""
    tied = tied and target == 50
    source = fsmt(target, tie_word_embeddings=tied, activation_function=activation)
    ours = from_fsmt(source)
    assert ours.config.decoder_vocab_size == target
    assert ours.config.share_encoder_decoder_embeddings == tied
    assert_same_function(source, ours, sides=("right", "left"))
    assert_same_weights(source, to_fsmt(ours))


@pytest.mark.parametrize("d_model", [20, 17])
def test_odd_widths_end_with_a_zero(d_model):
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    source = m2m100(d_model=d_model, **heads)
    assert_same_function(source, from_m2m100(source), beams=(1,))


def test_the_schemes_of_marian_and_fairseq_differ():
    source = m2m100()
    ours, batch = from_m2m100(source), draw_batch(source.config)
    with torch.no_grad():
        expected = ours(**batch).logits
        for changes in ({"position_embedding_type": "sinusoidal_half"}, {"position_offset": 0}):
            config = type(ours.config)(**ours.config.to_dict() | changes)
            other = type(ours)(config).eval()
            other.load_state_dict(ours.state_dict())
            assert (other(**batch).logits - expected).abs().max() > 0.01


def test_language_tokens_are_forced_as_in_the_source(tmp_path):
    source = m2m100()
    source.generation_config = GenerationConfig(
        forced_bos_token_id=7,
        num_beams=5,
        max_length=10,
        decoder_start_token_id=2,
        eos_token_id=2,
        pad_token_id=1,
    )
    source.save_pretrained(tmp_path / "source")
    for kind in ("m2m100", "nllb"):
        assert convert_model(kind, tmp_path / "source", tmp_path / kind).comparison.agrees
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "nllb")
    ids = torch.randint(3, 45, (2, 6))
    for tag in (7, 11):
        output = ours.generate(ids, forced_bos_token_id=tag)
        assert torch.equal(output, source.generate(ids, forced_bos_token_id=tag))
        assert set(output[:, 1].tolist()) == {tag}


def test_a_directory_of_fsmt_is_converted_with_its_beams(tmp_path):
    source = fsmt()
    source.generation_config.num_beams = 5
    source.save_pretrained(tmp_path / "source")
    assert convert_model("fsmt", tmp_path / "source", tmp_path / "out").comparison.agrees
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert ours.generation_config.num_beams == 5
    ids = torch.randint(3, 45, (2, 6))
    assert torch.equal(ours.generate(ids, max_length=9), source.generate(ids, max_length=9))


def test_sinusoids_that_were_trained_are_refused():
    """FSMT's table is a parameter, which a fine-tuning may have moved."""
    source = fsmt()
    with torch.no_grad():
        source.model.decoder.embed_positions.weight[5] += 0.1
    with pytest.raises(ValueError, match=r"decoder\.embed_positions\.weight` is not the table"):
        from_fsmt(source)
