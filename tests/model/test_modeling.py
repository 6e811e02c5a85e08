"""The bare model and the model with its output projection: masks, caches, outputs, errors."""

import math

import pytest
import torch
from torch import nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.inputs import shift_right
from vanilla_transformer.model.modeling_vanilla_transformer import token_loss

ATTENTIONS = ["eager", "sdpa"]
POSITIONS = CHOICES["position_embedding_type"]


def assert_same(found, expected, tolerance=1e-4):
    """Equal relative to the size of the expected values: residual-only logits are large."""
    scale = expected.std() + 1e-9
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=tolerance)


# --- padding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_source_of_padding_only_is_finite_and_alone(tiny_model, tiny_batch, attention, dtype):
    model = tiny_model(attention=attention, dropout=0.0).to(dtype)
    batch = tiny_batch()
    expected = model(**batch).logits
    batch["attention_mask"] = batch["attention_mask"].clone()
    batch["attention_mask"][1] = 0
    output = model.train()(**batch)
    assert output.logits.isfinite().all()
    real = batch["labels"][0] != -100
    torch.testing.assert_close(output.logits[0][real], expected[0][real])
    output.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_half_precision_is_close_to_full(tiny_model, tiny_batch, dtype, attention):
    model, batch = tiny_model(attention=attention), tiny_batch()
    full = model(**batch)
    half = model.to(dtype)(**batch)
    assert half.logits.dtype == dtype
    assert half.loss.dtype == torch.float32
    real = batch["decoder_attention_mask"].bool()
    assert_same(half.logits[real].float(), full.logits[real], tolerance=0.15)


# --- cache -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_cache",
    [
        DynamicCache,
        lambda: EncoderDecoderCache(DynamicCache(), DynamicCache()),
    ],
)
def test_the_cache_that_the_caller_gives_is_the_one_that_is_filled(
    tiny_model, tiny_batch, make_cache
):
    model, batch = tiny_model(), tiny_batch((5, 5), (4, 4))
    expected = model(**batch).logits
    cache = make_cache()
    arguments = {"input_ids": batch["input_ids"], "past_key_values": cache}
    model(**arguments, decoder_input_ids=batch["decoder_input_ids"][:, :3])
    assert cache.get_seq_length() == 3
    output = model(**arguments, decoder_input_ids=batch["decoder_input_ids"][:, 3:])
    assert_same(output.logits, expected[:, 3:])
    assert cache.get_seq_length() == 4


def test_the_cache_is_off_by_default_with_labels_and_in_training_on_checkpoints(
    tiny_model, tiny_batch
):
    model, batch = tiny_model(), tiny_batch()
    assert model(**batch).past_key_values is None
    del batch["labels"]
    assert model(**batch).past_key_values is not None
    assert model(**batch, use_cache=False).past_key_values is None


# --- outputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["argument", "config"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_attentions_are_real_weights_under_every_implementation(
    tiny_model, tiny_batch, attention, how
):
    batch = tiny_batch()
    model = tiny_model(attention=attention)
    expected = tiny_model(attention="eager")(**batch, output_attentions=True)
    if how == "config" and attention == "sdpa":
        with pytest.raises(ValueError, match="eager"):
            model.config.output_attentions = True
        return
    if how == "config":
        model.config.output_attentions = True
        output = model(**batch)
    else:
        output = model(**batch, output_attentions=True)
    shapes = {
        "encoder_attentions": (2, (3, 2, 7, 7)),
        "decoder_attentions": (3, (3, 4, 6, 6)),
        "cross_attentions": (3, (3, 4, 6, 7)),
    }
    for name, (count, shape) in shapes.items():
        weights = getattr(output, name)
        assert len(weights) == count
        for found, right in zip(weights, getattr(expected, name), strict=True):
            assert found.shape == shape
            torch.testing.assert_close(found.sum(-1), torch.ones(shape[:3]))
            torch.testing.assert_close(found, right)
    assert model.config._attn_implementation == attention
    hidden_source = (batch["attention_mask"] == 0)[:, None, None].expand(3, 4, 6, 7)
    assert (output.cross_attentions[0][hidden_source] == 0).all()
    assert model(**batch, output_attentions=False).cross_attentions is None


@pytest.mark.parametrize(
    "cls", [VanillaTransformerModel, VanillaTransformerForConditionalGeneration]
)
def test_hidden_states_are_the_input_and_every_layer(tiny_model, tiny_batch, cls):
    model, batch = tiny_model(cls=cls, norm_placement="pre"), tiny_batch()
    del batch["labels"]
    output = model(**batch, output_hidden_states=True)
    assert len(output.encoder_hidden_states) == 1 + 2
    assert len(output.decoder_hidden_states) == 1 + 3
    assert torch.equal(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)
    assert model(**batch).encoder_hidden_states is None


@pytest.mark.parametrize("kind", ["output", "tuple", "list"])
def test_encoder_outputs_can_be_given(tiny_model, tiny_batch, kind):
    model, batch = tiny_model(), tiny_batch()
    expected = model(**batch).logits
    encoded = model.get_encoder()(batch.pop("input_ids"), attention_mask=batch["attention_mask"])
    assert isinstance(encoded, BaseModelOutput)
    given = {"output": encoded, "tuple": (encoded[0],), "list": [encoded[0]]}[kind]
    torch.testing.assert_close(model(encoder_outputs=given, **batch).logits, expected)


def test_embeddings_can_be_given_instead_of_ids(tiny_model, tiny_batch):
    model, batch = tiny_model(share_encoder_decoder_embeddings=False), tiny_batch()
    expected = model(**batch).logits
    embeds = model.get_encoder().embed_tokens(batch.pop("input_ids"))
    decoder_embeds = model.get_decoder().embed_tokens(batch.pop("decoder_input_ids"))
    output = model(inputs_embeds=embeds, decoder_inputs_embeds=decoder_embeds, **batch)
    torch.testing.assert_close(output.logits, expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_checkpointing_does_not_drop_a_cache_without_gradients(tiny_model, tiny_batch, beams):
    model, batch = tiny_model(dropout=0.0), tiny_batch()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {**source, "max_new_tokens": 8, "num_beams": beams, "eos_token_id": None}
    expected = model.generate(**options)
    ids = batch["decoder_input_ids"][:, :3]
    logits = model(**source, decoder_input_ids=ids).logits
    model.gradient_checkpointing_enable()
    model.train()
    assert model.generate(**options).tolist() == expected.tolist()
    with torch.no_grad():
        before = model(**source, decoder_input_ids=ids[:, :2], use_cache=True)
        after = model(**source, decoder_input_ids=ids[:, 2:], past_key_values=before.cache)
    torch.testing.assert_close(after.logits, logits[:, 2:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("reentrant", "changes"),
    [
        (True, {"dropout": 0.0}),
        (False, {"dropout": 0.3}),
        (False, {"dropout": 0.0, "position_embedding_type": "relative"}),
        (False, {"dropout": 0.0, "encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}),
    ],
)
def test_gradient_checkpointing_gives_the_same_gradients(
    tiny_model, tiny_batch, reentrant, changes
):
    batch, gradients = tiny_batch(), []
    for checkpointing in (False, True):
        model = tiny_model(**changes).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            assert model.is_gradient_checkpointing
        torch.manual_seed(1)  # the second computation draws the same dropout and layers
        output = model(**batch, output_hidden_states=True)
        output.loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert ("encoder_layerdrop" in changes) is (len(gradients[0]) < len(list(model.parameters())))
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


# --- layer drop --------------------------------------------------------------------------------


def used_layers(stack, **inputs):
    """Indices of the layers that ran."""
    used, handles = [], []
    for index, layer in enumerate(stack.layers):
        hook = lambda *_, index=index: used.append(index)  # noqa: E731 - one index each
        handles.append(layer.register_forward_hook(hook))
    stack(**inputs)
    for handle in handles:
        handle.remove()
    return used


def calls(model):
    ids = torch.tensor([[4, 5, 6]])
    encoded = torch.randn(1, 3, 16)
    yield "encoder", model.get_encoder(), {"input_ids": ids}
    inputs = {"input_ids": ids, "encoder_hidden_states": encoded, "use_cache": False}
    yield "decoder", model.get_decoder(), inputs


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_are_left_out_at_the_given_rate_in_training_only(tiny_model, side):
    layers = {"encoder_layers": 4, "decoder_layers": 4}
    model = tiny_model(**layers, **{f"{side}_layerdrop": 0.3})
    for name, stack, inputs in calls(model):
        assert used_layers(stack.eval(), **inputs) == [0, 1, 2, 3]
        torch.manual_seed(0)
        stack.train()
        draws = [used_layers(stack, **inputs) for _ in range(100)]
        assert all(draw == sorted(draw) for draw in draws)
        share = sum(map(len, draws)) / 400
        assert share == (pytest.approx(0.7, abs=0.06) if name == side else 1)
    assert used_layers(stack.train(), **inputs | {"use_cache": True}) == [0, 1, 2, 3]


def test_a_step_without_any_layer_still_trains_the_embeddings(tiny_model, tiny_batch):
    model = tiny_model(encoder_layerdrop=0.999999, decoder_layerdrop=0.999999).train()
    model(**tiny_batch()).loss.backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {"model.shared.weight"}


# --- initial values ----------------------------------------------------------------------------


def fresh(tiny_config, **changes):
    torch.manual_seed(0)
    return VanillaTransformerForConditionalGeneration(tiny_config(**changes))


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_the_first_loss_is_that_of_a_uniform_guess(tiny_config, tiny_batch, placement):
    model = fresh(tiny_config, vocab_size=1000, d_model=64, norm_placement=placement).eval()
    batch = tiny_batch((20,) * 8, (20,) * 8, vocab=1000)
    assert model(**batch).loss.item() == pytest.approx(math.log(1000), rel=0.12)


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_parameter_gets_an_initial_value(tiny_config, positions):
    """Built on meta and filled with NaN: what _init_weights does not set stays NaN."""
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(
            tiny_config(
                position_embedding_type=positions,
                norm_placement="pre",
                lm_head_bias=True,
                share_encoder_decoder_embeddings=False,
                tie_word_embeddings=False,
            )
        )
    model.to_empty(device="cpu")
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data.fill_(torch.nan)
        tensor._is_hf_initialized = False
    for module in model.modules():
        module._is_hf_initialized = False
    model.init_weights()
    assert all(p.isfinite().all() for p in [*model.parameters(), *model.buffers()])


# --- loss --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rope", "alibi", "relative"])
@pytest.mark.parametrize("is_training", [False, True])
def test_labels_padded_on_either_side_have_one_loss(tiny_model, tiny_batch, scheme, is_training):
    model = tiny_model(position_embedding_type=scheme, dropout=0.0).train(is_training)
    source = {name: tiny_batch()[name][:2] for name in ("input_ids", "attention_mask")}
    right = torch.tensor([[5, 6, 7, -100, -100], [8, 9, 7, 6, 2]])
    left = torch.tensor([[-100, -100, 5, 6, 7], [8, 9, 7, 6, 2]])
    expected = model(**source, labels=right).loss
    torch.testing.assert_close(model(**source, labels=left).loss, expected)
    inputs = model.prepare_decoder_input_ids_from_labels(left)  # as a collator calls it
    assert inputs.tolist() == [[1, 1, 0, 5, 6], [0, 8, 9, 7, 6]]
    found = model(**source, labels=left, decoder_input_ids=inputs).loss
    torch.testing.assert_close(found, expected)


def test_a_start_token_before_an_ignored_label_is_no_padding(tiny_model, tiny_batch):
    model = tiny_model(decoder_start_token_id=1, dropout=0.0)  # that of padding, as in Marian
    source = {name: tiny_batch()[name][:1] for name in ("input_ids", "attention_mask")}
    given = {"decoder_input_ids": torch.tensor([[1, 9, 5]])}
    logits = model(**source, **given, labels=torch.tensor([[-100, 5, 6]])).logits
    torch.testing.assert_close(logits, model(**source, **given).logits)


def test_labels_are_shifted_once_and_left_alone(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    labels = batch["labels"]
    before = labels.clone()
    shifted = torch.tensor([[0, *row[:-1]] for row in labels.tolist()]).masked_fill_(
        torch.tensor([[False, *row[:-1]] for row in (labels == -100).tolist()]), 1
    )
    assert torch.equal(shift_right(labels, 1, 0), shifted)
    source = {k: batch[k] for k in ("input_ids", "attention_mask")}
    implicit = model(**source, labels=labels)
    assert torch.equal(labels, before)
    explicit = model(**source, decoder_input_ids=shifted)
    torch.testing.assert_close(implicit.logits, explicit.logits)
    expected = nn.functional.cross_entropy(explicit.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(implicit.loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_over_real_tokens(tiny_model, tiny_batch, smoothing):
    model, batch = tiny_model(label_smoothing=smoothing), tiny_batch()
    output, total, count = model(**batch), 0.0, 0
    for logits, label in zip(
        output.logits.flatten(0, 1).log_softmax(-1), batch["labels"].flatten(), strict=True
    ):
        if label != -100:
            total -= ((1 - smoothing) * logits[label] + smoothing * logits.mean()).item()
            count += 1
    assert output.loss.item() == pytest.approx(total / count, rel=1e-5)
    given = model(**batch, num_items_in_batch=torch.tensor(2 * count)).loss
    assert given.item() == pytest.approx(total / count / 2, rel=1e-5)
    assert model(**batch, num_items_in_batch=count).loss.item() == pytest.approx(
        total / count, rel=1e-5
    )


def test_the_loss_of_half_precision_logits_is_computed_in_full():
    logits = torch.randn(2, 300, 50).to(torch.bfloat16)
    labels = torch.randint(50, (2, 300))
    loss = token_loss(logits, labels)
    torch.testing.assert_close(
        loss, nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
    )


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_ids", 40),
        ("input_ids", -1),
        ("decoder_input_ids", 50),
        ("decoder_input_ids", -100),
        ("labels", 50),
        ("labels", -1),
    ],
)
def test_ids_outside_the_vocabulary_are_named(tiny_model, tiny_batch, field, value):
    model, batch = tiny_model(decoder_vocab_size=50), tiny_batch(decoder_vocab=50)
    model(**batch)
    batch[field][1, 0] = value
    with pytest.raises(ValueError, match=f"`{field}` holds the id {value}"):
        model(**batch)


IDS, EMBEDS = torch.ones(2, 5).long(), torch.ones(2, 5, 16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"input_ids": IDS[:0], "decoder_input_ids": IDS}, "`input_ids` is empty"),
        ({"input_ids": IDS[:, :0], "decoder_input_ids": IDS}, "`input_ids` is empty"),
        ({"input_ids": IDS, "decoder_input_ids": IDS[:0]}, "`decoder_input_ids` is empty"),
        ({"input_ids": IDS, "decoder_input_ids": IDS[:, :0]}, "`decoder_input_ids` is empty"),
        ({"inputs_embeds": EMBEDS[:0], "decoder_input_ids": IDS}, "`inputs_embeds` is empty"),
        ({"input_ids": IDS, "labels": IDS[:, :0]}, "`labels` is empty"),
        (
            {"input_ids": IDS, "inputs_embeds": EMBEDS, "decoder_input_ids": IDS},
            "one of `input_ids` and `inputs_embeds`",
        ),
        ({"decoder_input_ids": IDS}, "one of `input_ids` and `inputs_embeds`"),
        (
            {"input_ids": IDS, "decoder_input_ids": IDS, "decoder_inputs_embeds": EMBEDS},
            "`decoder_input_ids` and `decoder_inputs_embeds`",
        ),
        ({"input_ids": IDS}, r"`decoder_inputs_embeds`.*`labels`.*model=model"),
    ],
)
def test_empty_missing_and_double_inputs_are_named(tiny_model, call, message):
    with pytest.raises(ValueError, match=message):
        tiny_model()(**call)


def test_labels_need_a_start_token_and_a_padding_token(tiny_model):
    ids = torch.full((2, 5), 7)
    for name in ("pad_token_id", "decoder_start_token_id"):
        with pytest.raises(ValueError, match=f"`{name}`"):
            tiny_model(**{name: None})(ids, labels=ids)
