"""Marian, Pegasus, BART, mBART, Blenderbot, FSMT, M2M100 and NLLB come in and go back."""

import pytest
import torch
from hf_models import (
    APART,
    assert_same_function,
    assert_same_weights,
    draw_batch,
    make,
    make_source,
)
from tiny_models import make_model

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.interop.hf_families import FAMILIES
from vanilla_transformer.interop.hf_models import from_transformers, to_transformers

SHARING_OF_MARIAN = {
    "shared": {},
    "two vocabularies": {"decoder_vocab_size": 60, **APART},
    "two vocabularies, tied output": {
        "decoder_vocab_size": 60,
        "share_encoder_decoder_embeddings": False,
    },
}
KINDS = ("marian", "pegasus", "bart", "mbart", "blenderbot", "m2m100", "fsmt")


def test_a_table_of_sinusoids_reaches_as_far_as_outputs():
    ours = make_model(position_embedding_type="sinusoidal_half", max_position_embeddings=3)
    ours.generation_config.max_length = 30
    ids, options = torch.randint(3, 40, (2, 12)), {"min_length": 25, "do_sample": False}
    outputs = [model.generate(ids, **options) for model in (ours, to_transformers(ours))]
    assert outputs[0].shape[1] > 20
    assert torch.equal(*outputs)


@pytest.mark.parametrize(
    ("kind", "activation"),
    [*((kind, "swish") for kind in KINDS), ("marian", "gelu"), ("bart", "relu"), ("fsmt", "relu")],
)
def test_every_family_computes_the_same_and_goes_back(kind, activation):
    source = make(kind, activation_function=activation, scale_embedding=activation != "gelu")
    ours = from_transformers(source)
    counts_tokens = kind in ("m2m100", "fsmt")
    assert_same_function(source, ours, sides=("right", "left") if counts_tokens else ("right",))
    back = to_transformers(ours, kind=kind)
    assert_same_weights(source, back)
    if activation == "relu":
        assert_same_function(back, ours, beams=(2,))


@pytest.mark.parametrize(("sharing", "count"), zip(SHARING_OF_MARIAN, (1, 3, 2), strict=True))
def test_every_sharing_of_marian_goes_back_and_tied_matrices_are_one(sharing, count):
    source = make("marian", **SHARING_OF_MARIAN[sharing])
    ours = from_transformers(source)
    back = to_transformers(ours, kind="marian")
    assert_same_function(source, ours)
    assert_same_weights(source, back)
    for model in (source, ours, back):
        stacks = (model.model.encoder, model.model.decoder)
        matrices = (model.lm_head.weight, *(stack.embed_tokens.weight for stack in stacks))
        assert len({id(matrix) for matrix in matrices}) == count


@pytest.mark.parametrize(("target", "tied"), [(60, False), (50, False), (50, True)])
def test_vocabularies_of_fsmt_can_be_tied_if_they_have_one_size(target, tied):
    source = make("fsmt", tgt_vocab_size=target, tie_word_embeddings=tied)
    ours = from_transformers(source)
    assert ours.config.decoder_vocab_size == target
    assert ours.config.share_encoder_decoder_embeddings == tied
    assert_same_function(source, ours, sides=("right", "left"))
    assert_same_weights(source, to_transformers(ours, kind="fsmt"))


def test_a_bias_of_zeros_becomes_no_bias():
    source = make("marian")
    source.final_logits_bias.zero_()
    ours = from_transformers(source)
    assert ours.lm_head.bias is None
    assert_same_function(source, ours)
    assert_same_weights(source, to_transformers(ours, kind="marian"))


@pytest.mark.parametrize("kind", ["marian", "mbart", "blenderbot", "m2m100"])
def test_untied_matrices_stay_apart(kind):
    source = make(kind, tie_word_embeddings=False)
    if kind == "blenderbot":  # by default, it compares the two sides
        source.generation_config.encoder_no_repeat_ngram_size = None
    ours = from_transformers(source)
    assert not ours.config.share_encoder_decoder_embeddings
    assert not ours.config.tie_word_embeddings
    assert_same_function(source, ours, beams=(1,))
    assert_same_function(to_transformers(ours, kind=kind), ours, beams=(1,))


@pytest.mark.parametrize(
    ("kind", "shared", "tied"), [("bart", True, False), ("pegasus", False, True)]
)
def test_what_a_family_cannot_tie_is_copied_on_the_way_back(kind, shared, tied):
    fields = from_transformers(make(kind)).config.to_dict()
    fields |= {"share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied}
    ours = make_source(
        VanillaTransformerForConditionalGeneration, VanillaTransformerConfig(**fields)
    )
    assert_same_function(to_transformers(ours, kind=kind), ours, beams=(1,))


def test_learned_positions_keep_their_limit_and_their_two_unused_rows():
    source = make("bart")
    ours = from_transformers(source)
    table = ours.model.encoder.embed_positions.weight
    assert torch.equal(table, source.model.encoder.embed_positions.weight)
    assert (len(table), ours.config.max_position_embeddings) == (42, 40)
    long = torch.full((1, 40), 7)
    with torch.no_grad():
        outputs = [each(long, decoder_input_ids=long).logits for each in (source, ours)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="`max_position_embeddings` is 40"):
        ours(torch.full((1, 41), 7), decoder_input_ids=long)


@pytest.mark.parametrize("pad", [0, 1])
def test_positions_of_fairseq_begin_after_padding(pad):
    source = make("m2m100", pad_token_id=pad)
    ours = from_transformers(source)
    assert ours.config.position_offset == pad + 1
    assert_same_function(source, ours, sides=("right", "left"))
    batch = draw_batch(source.config)
    with torch.no_grad():
        expected = ours(**batch).logits
        for changes in ({"position_embedding_type": "sinusoidal_half"}, {"position_offset": 0}):
            config = type(ours.config)(**ours.config.to_dict() | changes)
            other = type(ours)(config).eval()
            other.load_state_dict(ours.state_dict())
            assert (other(**batch).logits - expected).abs().max() > 0.01


@pytest.mark.parametrize("d_model", [20, 17])
def test_odd_widths_end_with_a_zero(d_model):
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    source = make("m2m100", d_model=d_model, **heads)
    assert_same_function(source, from_transformers(source), beams=(1,))


OTHER_OPTIONS = {  # without effect, of `generate()`, or read by a function of the family
    *("classifier_dropout", "init_std", "initializer_factor", "is_decoder", "is_encoder_decoder"),
    *("early_stopping", "encoder_no_repeat_ngram_size", "length_penalty", "max_length"),
    *("num_beams", "langs", "tie_word_embeddings", "decoder_vocab_size"),
    *("share_encoder_decoder_embeddings", "d_ff", "dropout_rate", "feed_forward_proj", "num_heads"),
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_option_of_a_class_is_known(family):
    """A newer transformers may add one that changes what the class computes."""
    known = {*family.options.values(), *OTHER_OPTIONS}
    assert family.config_class.__annotations__.keys() - known == set()


@pytest.mark.parametrize(("kind", "row"), [("marian", 3), ("fsmt", 5)])
def test_a_table_of_sinusoids_that_was_changed_is_refused(kind, row):
    """The table of FSMT is a parameter, which a fine-tuning may have moved."""
    source = make(kind)
    with torch.no_grad():
        source.model.decoder.embed_positions.weight[row] += 0.1
    with pytest.raises(ValueError, match=r"`model\.decoder\.embed_positions\.weight`: it does not"):
        from_transformers(source)
