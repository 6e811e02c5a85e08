"""BART, mBART, Pegasus and Blenderbot come in and go back."""

import pytest
import torch
from hf_models import SIZES, assert_same_function, assert_same_weights, make_source
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    GenerationConfig,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
)

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.interop.bart import from_bart, to_bart
from vanilla_transformer.interop.blenderbot import from_blenderbot, to_blenderbot
from vanilla_transformer.interop.mbart import from_mbart, to_mbart
from vanilla_transformer.interop.models import convert_model
from vanilla_transformer.interop.pegasus import from_pegasus, to_pegasus

FAMILIES = {
    "bart": (BartForConditionalGeneration, BartConfig, from_bart, to_bart),
    "mbart": (MBartForConditionalGeneration, MBartConfig, from_mbart, to_mbart),
    "pegasus": (PegasusForConditionalGeneration, PegasusConfig, from_pegasus, to_pegasus),
    "blenderbot": (
        BlenderbotForConditionalGeneration,
        BlenderbotConfig,
        from_blenderbot,
        to_blenderbot,
    ),
}


def make(kind, **changes):
    model_class, config_class, *functions = FAMILIES[kind]
    fields = {**SIZES, "decoder_start_token_id": 2, **changes}
    return make_source(model_class, config_class(**fields)), *functions


@pytest.mark.parametrize("activation", ["gelu", "swish", "relu"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_computes_the_same_and_goes_back(kind, activation):
    scale = activation != "gelu"
    source, come_in, go_back = make(kind, activation_function=activation, scale_embedding=scale)
    ours = come_in(source)
    assert_same_function(source, ours)
    assert_same_weights(source, go_back(ours))


@pytest.mark.parametrize("kind", FAMILIES)
def test_untied_matrices_stay_apart(kind):
    source, come_in, go_back = make(kind, tie_word_embeddings=False)
    if kind == "blenderbot":  # by default, it compares the two sides
        with pytest.raises(ValueError, match="`encoder_no_repeat_ngram_size` is 3"):
            come_in(source)
        source.generation_config.encoder_no_repeat_ngram_size = None
    ours = come_in(source)
    assert (ours.config.share_encoder_decoder_embeddings, ours.config.tie_word_embeddings) == (
        False,
        False,
    )
    assert_same_function(source, ours, beams=(1,))
    assert_same_function(go_back(ours), ours, beams=(1,))


@pytest.mark.parametrize(("shared", "tied"), [(True, False), (False, True)])
@pytest.mark.parametrize("kind", FAMILIES)
def test_what_a_family_cannot_tie_is_copied_on_the_way_back(kind, shared, tied):
    source, come_in, go_back = make(kind)
    fields = come_in(source).config.to_dict()
    fields |= {"share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied}
    ours = make_source(
        VanillaTransformerForConditionalGeneration, VanillaTransformerConfig(**fields)
    )
    assert_same_function(go_back(ours), ours, beams=(1,))


def test_learned_positions_keep_their_limit_and_their_two_unused_rows():
    source, come_in, _ = make("bart")
    ours = come_in(source)
    table = ours.model.encoder.embed_positions.weight
    assert torch.equal(table, source.model.encoder.embed_positions.weight)
    assert (len(table), ours.config.max_position_embeddings) == (42, 40)
    long = torch.full((1, 40), 7)
    with torch.no_grad():
        outputs = [each(long, decoder_input_ids=long).logits for each in (source, ours)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="`max_position_embeddings` is 40"):
        ours(torch.full((1, 41), 7), decoder_input_ids=long)


def test_forced_tokens_and_repetition_rules_come_along(tmp_path):
    source, *_ = make("bart")
    source.generation_config = GenerationConfig(
        forced_bos_token_id=5,
        forced_eos_token_id=2,
        no_repeat_ngram_size=2,
        encoder_no_repeat_ngram_size=3,
        min_length=6,
        max_length=12,
        num_beams=3,
        early_stopping=True,
        decoder_start_token_id=2,
        eos_token_id=2,
        pad_token_id=1,
    )
    source.save_pretrained(tmp_path / "source")
    done = convert_model("bart", tmp_path / "source", tmp_path / "out")
    assert done.comparison.agrees
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    ids = torch.randint(3, 45, (3, 9))
    output = ours.generate(ids)
    assert torch.equal(output, source.generate(ids))
    assert set(output[:, 1].tolist()) == {5}


@pytest.mark.parametrize("kind", FAMILIES)
def test_options_that_contradict_the_class_are_refused(kind):
    source, come_in, _ = make(kind)
    source.config.normalize_before = kind == "bart"
    source.config.static_position_embeddings = kind != "pegasus"
    with pytest.raises(ValueError, match="2 problem"):
        come_in(source)


def test_a_tokenizer_comes_along_as_it_is(tmp_path):
    source, *_ = make("bart")
    source.save_pretrained(tmp_path / "source")
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    vocabulary |= {letter: 5 + number for number, letter in enumerate(sorted(letters))}
    vocabulary |= {"th": 261, "the": 262}
    merges = [("t", "h"), ("th", "e")]
    tokenizer = BartTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.save_pretrained(tmp_path / "source")
    assert convert_model("bart", tmp_path / "source", tmp_path / "out").tokenizer_class
    texts = ["the cat", "Ünïcode 字 <mask> \n", "", "</s>the"]
    before, after = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("source", "out"))
    assert type(before) is type(after) is BartTokenizer
    assert before(texts)["input_ids"] == after(texts)["input_ids"]
    assert len({*map(tuple, after(texts)["input_ids"])}) == 4
    assert after.decode(after("the cat")["input_ids"]) == "<s>the cat</s>"


def test_a_plain_tokenizer_file_comes_along(tmp_path):
    """A tokenizer.json without a class of its own."""
    source, *_ = make("pegasus")
    source.save_pretrained(tmp_path / "source")
    plain = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "cat": 3}, "<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", 1)])
    plain.save(str(tmp_path / "source" / "tokenizer.json"))
    (tmp_path / "source" / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>"}'
    )
    convert_model("pegasus", tmp_path / "source", tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("cat dog")["input_ids"] == [3, 2, 1]
