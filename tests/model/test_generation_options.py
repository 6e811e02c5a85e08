"""Options of `generate()` under two vocabularies, early exit, and options that are refused."""

import re

import pytest
import torch
from transformers import GenerationConfig, WatermarkDetector, WatermarkingConfig
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    LogitsProcessorList,
)

from vanilla_transformer import (
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.configuration_vanilla_transformer import check_rules
from vanilla_transformer.model.generation import REFUSALS

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
SIZES = [{}, {"decoder_vocab_size": 60}, {"decoder_vocab_size": 30}]


def source(batch, rows=3):
    return {k: batch[k][:rows] for k in ("input_ids", "attention_mask")}


# --- two vocabularies ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("beams", [1, 3])
def test_transition_scores_are_those_of_the_tokens(tiny_model, tiny_batch, beams, sizes):
    model, inputs = tiny_model(seed=1, **LIVELY, **sizes), source(tiny_batch())
    found = model.generate(
        **inputs,
        max_new_tokens=5,
        num_beams=beams,
        eos_token_id=None,
        pad_token_id=1,
        output_scores=True,
        return_dict_in_generate=True,
    )
    scores = model.compute_transition_scores(
        found.sequences, found.scores, found.get("beam_indices"), normalize_logits=beams == 1
    )
    logits = model(**inputs, decoder_input_ids=found.sequences[:, :-1]).logits
    log_probabilities = logits.log_softmax(-1)
    expected = log_probabilities.gather(2, found.sequences[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_watermark_colours_the_vocabulary_of_the_target(tiny_model, tiny_batch, sizes):
    model = tiny_model(seed=1, decoder_start_token_id=2, **LIVELY, **sizes)
    inputs = source(tiny_batch(), rows=1)
    watermark = WatermarkingConfig(bias=100.0)
    found = model.generate(**inputs, max_new_tokens=20, watermarking_config=watermark)
    detector = WatermarkDetector(model.config.get_text_config(decoder=True), "cpu", watermark)
    result = detector(found, return_dict=True)
    assert result.num_green_tokens == result.num_tokens_scored > 0


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_lookup_in_the_text_itself_changes_nothing(tiny_model, tiny_batch, sizes):
    model, inputs = tiny_model(seed=1, **LIVELY, **sizes), source(tiny_batch(), rows=1)
    expected = model.generate(**inputs, max_new_tokens=12)
    prefix = torch.cat([expected[:, :6], expected[:, 1:4]], dim=1)  # has something to find
    options = {"decoder_input_ids": prefix, "max_new_tokens": 8}
    expected = model.generate(**inputs, **options)
    found = model.generate(**inputs, **options, prompt_lookup_num_tokens=3)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "option", [{"encoder_no_repeat_ngram_size": 1}, {"encoder_repetition_penalty": 1.5}], ids=str
)
@pytest.mark.parametrize("size", [40, 60, 30])
def test_ids_of_the_source_are_not_compared_with_those_of_another_vocabulary(
    tiny_model, tiny_batch, option, size
):
    separate = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": size}
    model, inputs = tiny_model(seed=1, **LIVELY, **separate), source(tiny_batch())
    with pytest.raises(ValueError, match=f"{next(iter(option))}.*logits_processor"):
        model.generate(**inputs, max_new_tokens=4, **option)
    assert tiny_model(seed=1, **LIVELY).generate(**inputs, max_new_tokens=4, **option) is not None


def test_a_caller_who_knows_that_the_ids_agree_may_compare_them(tiny_model, tiny_batch):
    model = tiny_model(seed=1, share_encoder_decoder_embeddings=False, **LIVELY)
    ids = tiny_batch()["input_ids"][:1]
    processor = EncoderNoRepeatNGramLogitsProcessor(1, ids)
    found = model.generate(ids, max_new_tokens=9, logits_processor=LogitsProcessorList([processor]))
    assert not set(found[0, 1:].tolist()) & set(ids[0].tolist())


def test_an_assistant_must_predict_the_same_vocabulary(tiny_model, tiny_batch):
    model, inputs = tiny_model(decoder_vocab_size=30, **LIVELY), source(tiny_batch(), rows=1)
    with pytest.raises(ValueError, match=r"assistant_model.* 60 tokens"):
        model.generate(**inputs, assistant_model=tiny_model(decoder_vocab_size=60))
    with pytest.raises(ValueError, match="assistant_tokenizer"):
        model.generate(
            **inputs,
            assistant_model=tiny_model(vocab_size=50, decoder_vocab_size=30),
            tokenizer=object(),
            assistant_tokenizer=object(),
        )
    twin = tiny_model(seed=2, decoder_vocab_size=30, **LIVELY)
    found = model.generate(**inputs, assistant_model=twin, max_new_tokens=6)
    assert torch.equal(found, model.generate(**inputs, max_new_tokens=6))


# --- early exit ----------------------------------------------------------------------------------


def count_calls(layers):
    counts = [0] * len(layers)

    def counter(index):
        def count(*_):
            counts[index] += 1

        return count

    for index, layer in enumerate(layers):
        layer.register_forward_hook(counter(index))
    return counts


@pytest.mark.parametrize(
    "cls", [VanillaTransformerForConditionalGeneration, VanillaTransformerForCausalLM]
)
@pytest.mark.parametrize("count", [1, 2])
def test_early_exit_uses_the_first_layers_and_changes_nothing(tiny_model, tiny_batch, cls, count):
    model = tiny_model(cls=cls, seed=1, **LIVELY)
    inputs, config = source(tiny_batch(), rows=1), model.config.to_dict()
    expected = model.generate(**inputs, max_new_tokens=8)
    counts = count_calls(model.model.decoder.layers)
    found = model.generate(**inputs, max_new_tokens=8, assistant_early_exit=count)
    assert torch.equal(found, expected)
    assert counts[0] == counts[count - 1] > counts[count] == counts[-1] > 0
    assert model.config.to_dict() == config


@pytest.mark.parametrize(
    "cls", [VanillaTransformerForConditionalGeneration, VanillaTransformerForCausalLM]
)
def test_an_error_in_early_exit_leaves_the_model_whole(tiny_model, tiny_batch, cls):
    model = tiny_model(cls=cls, seed=1, **LIVELY)
    inputs, config = source(tiny_batch(), rows=1), model.config.to_dict()
    expected = model.generate(**inputs, max_new_tokens=8)

    def fail(*_):
        raise RuntimeError("as if interrupted")

    handle = model.model.decoder.layers[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="as if interrupted"):
        model.generate(**inputs, max_new_tokens=8, assistant_early_exit=1)
    handle.remove()
    assert model.config.to_dict() == config
    assert len(model.model.decoder.layers) == 3
    assert torch.equal(model.generate(**inputs, max_new_tokens=8), expected)


@pytest.mark.parametrize("count", [0, 4, -1])
def test_early_exit_names_the_layers_that_there_are(tiny_model, tiny_batch, count):
    with pytest.raises(ValueError, match=f"assistant_early_exit.*1 to 3, got {count}"):
        tiny_model().generate(**source(tiny_batch(), rows=1), assistant_early_exit=count)


# --- options that are refused --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["num_beams", "num_return_sequences"])
@pytest.mark.parametrize("value", [0, -3])
def test_counts_are_at_least_one(tiny_model, tiny_batch, name, value):
    model, inputs = tiny_model(), source(tiny_batch())
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got {value}"):
        model.generate(**inputs, **{name: value})
    config = GenerationConfig(max_new_tokens=3, decoder_start_token_id=0)
    setattr(config, name, value)
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got {value}"):
        model.generate(**inputs, generation_config=config)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"decoder_start_token_id": 60}, "decoder_start_token_id"),
        ({"forced_bos_token_id": 1000}, "forced_bos_token_id"),
        ({"forced_eos_token_id": [2, -5]}, "forced_eos_token_id"),
    ],
)
def test_tokens_that_the_target_does_not_have_are_refused(tiny_model, tiny_batch, options, name):
    model = tiny_model(vocab_size=80, decoder_vocab_size=60)
    inputs = source(tiny_batch())
    with pytest.raises(ValueError, match=f"`{name}` is .* no such token"):
        model.generate(**inputs, max_new_tokens=3, **options)
    ids = model.generate(**inputs, max_new_tokens=3, forced_bos_token_id=59)
    assert (ids[:, 1] == 59).all()


BROKEN = [
    {"num_beams": 0},
    {"num_return_sequences": -1},
    {"decoder_start_token_id": -1},
    {"forced_bos_token_id": 60},
    {"forced_eos_token_id": [2, 60]},
    {"assistant_early_exit": 4},
    {"guidance_scale": 1.5},
    {"token_healing": True},
    {"encoder_repetition_penalty": 1.5},
    {"encoder_no_repeat_ngram_size": 1},
    {"assistant_tokenizer": "another"},
    {"assistant_model": {"decoder_vocab_size": 50}},
]


def test_every_rule_is_broken_by_an_option(tiny_model):
    config = tiny_model(decoder_vocab_size=60).config
    messages = []
    for option in BROKEN:
        (name, value), options, others = *option.items(), GenerationConfig(), {}
        if name == "assistant_model":
            others = {name: tiny_model(**value)}
        elif name == "assistant_tokenizer":
            others = option
        else:
            setattr(options, name, value)
        with pytest.raises(ValueError, match=f"`{name}`") as error:
            check_rules(REFUSALS, config=config, options=options, others=others)
        messages.append(str(error.value))
    for rule in REFUSALS:
        pattern = re.sub(r"\\\{.*?\\\}", ".*", re.escape(rule.message))
        assert any(re.fullmatch(pattern, message) for message in messages), rule.message


def test_guidance_works_for_a_language_model(tiny_model):
    model = tiny_model(cls=VanillaTransformerForCausalLM, seed=1, **LIVELY)
    ids, negative = torch.tensor([[5, 6, 7]]), torch.tensor([[9, 7]])
    found = model.generate(
        ids, max_new_tokens=1, guidance_scale=3.0, negative_prompt_ids=negative, do_sample=False
    )
    with_prompt, without = (model(x).logits[:, -1].log_softmax(-1) for x in (ids, negative))
    assert found[0, -1] == (3.0 * (with_prompt - without) + without).argmax()
