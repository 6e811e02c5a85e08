"""What users of transformers do with a model besides training: caches, loading, copies, numbers."""

import copy
import io
import pickle

import pytest
import torch
from torch.func import functional_call, grad, vmap

from vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerModel,
)

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
FUSED = {"fused_qkv": True, "gated_ffn": True, "position_embedding_type": "rope"}


def source(batch, rows=3):
    return {k: batch[k][:rows] for k in ("input_ids", "attention_mask")}


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


def through_torch(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = [copy.deepcopy, through_pickle, through_torch]


# --- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", COPIES)
def test_copies_are_whole_and_independent(tiny_config, tiny_model, tiny_batch, duplicate):
    config = tiny_config(position_embedding_type="rope")
    assert duplicate(config) == config != tiny_config(position_embedding_type="rope", dropout=0.3)
    model, batch = tiny_model(), tiny_batch()
    twin = duplicate(model)
    assert twin.lm_head.weight is twin.model.shared.weight is twin.model.decoder.embed_tokens.weight
    assert twin.lm_head.weight is not model.lm_head.weight
    del batch["labels"], batch["decoder_attention_mask"]
    with torch.no_grad():
        output = model(**batch, use_cache=True)
        torch.testing.assert_close(twin(**batch).logits, output.logits, rtol=0, atol=0)
    copied = duplicate(output)
    step = {"encoder_outputs": (output.encoder_last_hidden_state,)}
    step["attention_mask"] = batch["attention_mask"]
    step["decoder_input_ids"] = batch["decoder_input_ids"][:, :1]
    caches = (output.past_key_values, copied.past_key_values)
    logits = [model(**step, past_key_values=cache).logits for cache in caches]
    torch.testing.assert_close(*logits, rtol=0, atol=0)


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_ids_masks_and_labels_of_32_bits_give_the_same(tiny_model, tiny_batch, training):
    model, batch = tiny_model(dropout=0.0).train(training), tiny_batch()
    expected, found = (model(**each) for each in (batch, {k: v.int() for k, v in batch.items()}))
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(found.logits, expected.logits)


@pytest.mark.parametrize(
    "cls",
    [
        VanillaTransformerModel,
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerForSequenceClassification,
        VanillaTransformerEncoderModel,
    ],
)
def test_tuples_can_be_asked_for_by_argument_and_by_config(tiny_model, tiny_batch, cls):
    model, inputs = tiny_model(cls, seed=1, **LIVELY), source(tiny_batch())
    if model.can_generate():
        tokens = model.generate(**inputs, max_new_tokens=6)
    call = {**inputs, "output_hidden_states": True}
    if model.config.is_encoder_decoder:
        call["decoder_input_ids"] = inputs["input_ids"]
    expected, by_argument = model(**call).to_tuple(), model(**call, return_dict=False)
    model.config.return_dict = False
    for found in (by_argument, model(**call)):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        torch.testing.assert_close(found[0], expected[0])
    if model.can_generate():
        assert torch.equal(model.generate(**inputs, max_new_tokens=6), tokens)


# --- generation ----------------------------------------------------------------------------------


def test_logits_are_kept_for_the_positions_asked_for(tiny_model, tiny_batch):
    model = tiny_model(lm_head_bias=True)
    inputs = source(tiny_batch())
    inputs["decoder_input_ids"] = inputs["input_ids"]
    whole = model(**inputs, labels=inputs["input_ids"])
    for kept, where in ((0, slice(None)), (2, slice(-2, None)), (torch.tensor([1, 3]), [1, 3])):
        found = model(**inputs, logits_to_keep=kept).logits
        torch.testing.assert_close(found, whole.logits[:, where])
        with_labels = model(**inputs, labels=inputs["input_ids"], logits_to_keep=kept)
        torch.testing.assert_close(with_labels.loss, whole.loss)


def test_generation_projects_only_the_last_position_of_a_prompt(tiny_model, tiny_batch):
    model, seen = tiny_model(seed=1, **LIVELY), []
    model.lm_head.register_forward_hook(lambda _, __, output: seen.append(output.shape[1]))
    model.generate(
        **source(tiny_batch()), decoder_input_ids=torch.tensor([[0, 5, 6]] * 3), max_new_tokens=3
    )
    assert set(seen) == {1}


def test_generation_goes_on_from_a_past(tiny_model, tiny_batch):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch())
    options = {"eos_token_id": None, "return_dict_in_generate": True}
    whole = model.generate(**inputs, max_new_tokens=8, **options)
    first = model.generate(**inputs, max_new_tokens=3, **options)
    second = model.generate(
        **inputs,
        decoder_input_ids=first.sequences,
        decoder_attention_mask=torch.ones_like(first.sequences),  # tells what the past covers
        past_key_values=first.past_key_values,
        max_new_tokens=5,
        **options,
    )
    assert torch.equal(second.sequences, whole.sequences)


# --- loading -------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tiny_model, tmp_path):
    """A model, and the directory that holds it in files of at most five kilobytes."""
    model = tiny_model()
    model.save_pretrained(tmp_path / "model", max_shard_size="5KB")
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 5
    return model, tmp_path / "model"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"device_map": "auto", "max_memory": {"cpu": 30_000}},
        {"device_map": {"": "disk"}},
    ],
    ids=str,
)
def test_a_sharded_model_is_loaded_wherever_it_fits(sharded, tiny_batch, tmp_path, options):
    model, directory = sharded
    loaded = type(model).from_pretrained(directory, offload_folder=tmp_path / "off", **options)
    on_disk = any(p.is_meta for p in loaded.parameters())
    assert on_disk is ("max_memory" in options or options.get("device_map") == {"": "disk"})
    batch = tiny_batch()
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits)
    found, expected = (m.generate(**source(batch), max_new_tokens=5) for m in (loaded, model))
    assert torch.equal(found, expected)


# --- attention -----------------------------------------------------------------------------------


# --- numbers of fewer bits -----------------------------------------------------------------------


# --- transforms of functions ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("training", [False, True])
def test_vmap_computes_the_gradients_of_each_row(tiny_model, tiny_batch, training):
    model, batch = tiny_model(dropout=0.0, **FUSED).train(training), tiny_batch()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    rows, length = dict(batch), batch["labels"].shape[1]
    rows["attention_mask"] = batch["attention_mask"].bool()[:, None, None]
    causal = torch.ones(length, length).tril().bool()
    rows["decoder_attention_mask"] = causal & batch["decoder_attention_mask"].bool()[:, None, None]

    def loss(parameters, row):
        return functional_call(model, parameters, (), {k: v[None] for k, v in row.items()}).loss

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, rows)
    for i in range(3):
        model.zero_grad()
        model(**{name: value[i : i + 1] for name, value in batch.items()}).loss.backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name][i], parameter.grad, rtol=1e-3, atol=1e-5)


# --- compilation ---------------------------------------------------------------------------------
