"""What a forward does with arguments and masks: none is dropped or read wrongly without a word."""

import copy

import pytest
import torch
from transformers import AttentionInterface

from vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerModel,
)

CLASSES = [
    VanillaTransformerModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerEncoderModel,
    VanillaTransformerForSequenceClassification,
]


def inputs_for(model, batch):
    names = ["input_ids", "attention_mask"]
    if model.config.is_encoder_decoder:
        names += ["decoder_input_ids", "decoder_attention_mask"]
    return {name: batch[name] for name in names}


# --- the two names of a cache --------------------------------------------------------------------


@pytest.mark.parametrize(
    "cls",
    [
        VanillaTransformerModel,
        VanillaTransformerForConditionalGeneration,
    ],
)
@torch.no_grad()
def test_a_cache_has_the_names_of_older_and_newer_versions_of_transformers(
    tiny_model, tiny_batch, cls
):
    model = tiny_model(cls).eval()
    inputs = inputs_for(model, tiny_batch())
    first = model(**inputs, use_cache=True).cache
    empty = copy.deepcopy(first)
    empty.crop(-6)
    tokens = _next_token(inputs)

    def run(**caches):
        return model(**tokens, **copy.deepcopy(caches))[0]

    expected = run(past_key_values=first)
    assert not torch.equal(expected, model(**tokens)[0])
    assert torch.equal(run(cache=first), expected)
    assert torch.equal(run(cache=empty, past_key_values=first), expected)
    assert torch.equal(run(cache=first, past_key_values=empty), expected)
    assert torch.equal(run(cache=None, past_key_values=first), expected)


def _next_token(inputs):
    """Returns inputs that go on after these by a token."""
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    kept = {each: x for each, x in inputs.items() if "attention_mask" not in each}
    return {**kept, name: inputs[name][:, -1:]}


# --- further arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_that_tools_pass_to_every_model_go_on_to_work(tiny_model, tiny_batch, cls):
    model = tiny_model(cls)
    inputs = inputs_for(model, tiny_batch())
    expected = model(**inputs, output_hidden_states=True, output_attentions=True)
    found = model(
        **inputs,
        output_hidden_states=True,
        output_attentions=True,
        return_dict=True,
        num_items_in_batch=torch.tensor(7),
        is_causal=None,
        token_type_ids=torch.zeros_like(inputs["input_ids"]),
    )
    torch.testing.assert_close(found[0], expected[0])
    assert found.keys() == expected.keys()


def test_generation_passes_labels_to_the_encoder(tiny_model, tiny_batch):
    """`Seq2SeqTrainer` hands all of a batch to `generate()`."""
    model, batch = tiny_model(), tiny_batch()
    inputs = {k: batch[k] for k in ("input_ids", "attention_mask")}
    found = model.generate(**inputs, labels=batch["labels"], max_new_tokens=4)
    assert torch.equal(found, model.generate(**inputs, max_new_tokens=4))
    for search in ({}, {"num_beams": 2}, {"prompt_lookup_num_tokens": 2}):  # pass it to the model
        model.generate(inputs["input_ids"][:1], tokenizer=object(), max_new_tokens=4, **search)


def test_an_attention_of_the_users_gets_its_arguments(tiny_model, tiny_batch):
    seen = []

    def attend(module, query, key, value, attention_mask, temperature=1.0, **kwargs):
        seen.append(temperature)
        return query.transpose(1, 2), None

    AttentionInterface.register("own_attention", attend)
    model = tiny_model(VanillaTransformerEncoderModel)
    model.set_attn_implementation("own_attention")
    model(tiny_batch()["input_ids"], temperature=0.5)
    assert seen == [0.5] * 2


def test_a_training_step_in_both_directions_computes_every_place(tiny_model, tiny_batch):
    model, batch = tiny_model(dropout=0.0).train(), tiny_batch()
    del batch["decoder_attention_mask"]
    found = model(**batch, is_causal=False).loss
    model.set_padding_free(False)
    torch.testing.assert_close(found, model(**batch, is_causal=False).loss)
    assert not torch.allclose(found, model(**batch).loss)


# --- masks ---------------------------------------------------------------------------------------


def four_dimensional(batch, lines):
    """The masks of a batch with four dimensions: of the source, and causal of the target."""
    real = batch["decoder_attention_mask"].bool()
    causal = torch.ones(real.shape[1], real.shape[1]).tril().bool() & real[:, None, None]
    source = batch["attention_mask"].bool()[:, None, None]
    return source.expand(-1, -1, lines, -1), causal


@pytest.mark.parametrize(("side", "attention"), [("left", "eager"), ("right", "sdpa")])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi"])
@pytest.mark.parametrize("lines", [1, 7])
def test_masks_of_four_dimensions_count_tokens(
    tiny_model, tiny_batch, attention, positions, side, lines
):
    model = tiny_model(attention=attention, position_embedding_type=positions)
    batch = tiny_batch(side=side)
    real, expected = batch["decoder_attention_mask"].bool(), model(**batch).logits
    source, causal = four_dimensional(batch, lines)
    for kind in (torch.bool, torch.long, torch.int32, torch.uint8, torch.float32):
        masks = [mask.to(kind) for mask in (source, source[:, :, :1], causal)]
        if kind == torch.float32:  # added to the scores
            masks = [(1 - mask) * -3e38 for mask in masks]
        encoded = model.get_encoder()(batch["input_ids"], attention_mask=masks[0])
        found = model(
            encoder_outputs=encoded,
            attention_mask=masks[1],
            decoder_input_ids=batch["decoder_input_ids"],
            decoder_attention_mask=masks[2],
        )
        torch.testing.assert_close(found.logits[real], expected[real])


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_classifier_pools_tokens_under_a_mask_of_four_dimensions(
    tiny_model, tiny_batch, pooling, side
):
    model = tiny_model(VanillaTransformerForSequenceClassification, classifier_pooling=pooling)
    batch = tiny_batch(side=side)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    expected, wide = model(ids, mask).logits, mask.bool()[:, None, None]
    additive = torch.zeros(wide.shape).masked_fill(~wide, -3e38)
    for four in (wide, wide.long(), wide.expand(-1, -1, 7, -1), additive):
        torch.testing.assert_close(model(ids, four).logits, expected)


BAD_MASKS = {
    "three dimensions": torch.ones(3, 7, 7).bool(),
    "one dimension": torch.ones(7).bool(),
    "short": torch.ones(3, 5).long(),
    "long": torch.ones(3, 12).long(),
    "one row": torch.ones(1, 7).long(),
    "four rows": torch.ones(4, 7).long(),
}


@pytest.mark.parametrize("case", BAD_MASKS)
@pytest.mark.parametrize("cls", CLASSES)
def test_a_mask_that_does_not_fit_is_refused(tiny_model, tiny_batch, cls, case):
    model, mask = tiny_model(cls), BAD_MASKS[case]
    inputs = inputs_for(model, tiny_batch())
    with pytest.raises(ValueError, match="`attention_mask` has the shape"):
        model(**{**inputs, "attention_mask": mask})
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
        with pytest.raises(ValueError, match="`decoder_attention_mask` has the shape"):
            model(**{**inputs, "decoder_attention_mask": mask})
        encoded = model.get_encoder()(inputs.pop("input_ids"))
        del inputs["decoder_attention_mask"]
        with pytest.raises(ValueError, match="`attention_mask` has the shape"):
            model(**{**inputs, "attention_mask": mask}, encoder_outputs=encoded)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_refuses_a_mask_that_counts_more_than_its_ids(tiny_model, tiny_batch, cache):
    """The start token, which `generate()` adds to both, is counted twice."""
    model, ids = tiny_model(), tiny_batch()["input_ids"]
    options = {"cache_implementation": cache, "max_new_tokens": 3}
    target = {"decoder_input_ids": ids[:, :3], "decoder_attention_mask": torch.ones(3, 4)}
    with pytest.raises(ValueError, match=r"has the shape \(3, 5\): give \(3, 4\)"):
        model.generate(ids, **target, **options)


def test_a_mask_of_one_line_does_not_hide_later_tokens_from_a_decoder(tiny_model, tiny_batch):
    batch = tiny_batch()
    mask = batch["decoder_attention_mask"].bool()[:, None, None]
    with pytest.raises(ValueError, match="`decoder_attention_mask` has the shape"):
        tiny_model()(**{**batch, "decoder_attention_mask": mask})


def test_a_bias_of_any_sign_may_be_added_to_the_scores(tiny_model, tiny_batch):
    ids = tiny_batch()["input_ids"]
    bias = torch.randn(1, 2, 7, 7)
    eager, sdpa = (
        tiny_model(VanillaTransformerEncoderModel, attention=attention)(ids, bias)[0]
        for attention in ("eager", "sdpa")
    )
    torch.testing.assert_close(eager, sdpa)
