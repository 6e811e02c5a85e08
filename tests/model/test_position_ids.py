"""Position ids of the caller: schemes, concatenated sequences, caches."""

import pytest
import torch
from transformers import (
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)
from transformers.cache_utils import DynamicCache

from vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerForTokenClassification,
)
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES

POSITIONS = CHOICES["position_embedding_type"]
LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
LENGTHS = (5, 2, 7)


def rows_of(lengths=LENGTHS, vocab=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocab, (1, length), generator=generator) for length in lengths]


def joined(rows):
    return torch.cat(rows, dim=1)


def restarts(rows):
    return joined([torch.arange(row.shape[1])[None] for row in rows])


# --- concatenated sequences -----------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("training", [False, True])
def test_a_row_of_a_language_model_is_its_sequences(tiny_model, positions, attention, training):
    model = tiny_model(
        VanillaTransformerForCausalLM,
        attention=attention,
        position_embedding_type=positions,
        dropout=0.0,
    ).train(training)
    rows = rows_of()
    batch = DataCollatorWithFlattening()([{"input_ids": row[0]} for row in rows])
    singles = [model(row, labels=row, num_items_in_batch=11) for row in rows]
    found = model(**batch)
    torch.testing.assert_close(found.logits, joined([single.logits for single in singles]))
    torch.testing.assert_close(found.loss, sum(single.loss for single in singles))
    del batch["labels"]
    torch.testing.assert_close(model(**batch).logits, found.logits)  # with an empty cache


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_row_of_an_encoder_is_its_sequences(tiny_model, positions, attention):
    model = tiny_model(
        VanillaTransformerForTokenClassification,
        attention=attention,
        position_embedding_type=positions,
    )
    rows = rows_of()
    found = model(joined(rows), position_ids=restarts(rows)).logits
    torch.testing.assert_close(found, joined([model(row).logits for row in rows]))


def test_a_row_of_sequences_has_no_single_class(tiny_model):
    model, rows = tiny_model(VanillaTransformerForSequenceClassification), rows_of()
    with pytest.raises(ValueError, match="3 sequences"):
        model(joined(rows), position_ids=restarts(rows))
    with pytest.raises(ValueError, match="seq_idx"):
        model(joined(rows), seq_idx=torch.zeros_like(joined(rows)))


@pytest.mark.parametrize("form", ["return_flash_attn_kwargs", "return_seq_idx"])
@pytest.mark.parametrize(
    "cls", [VanillaTransformerForCausalLM, VanillaTransformerForTokenClassification]
)
def test_boundaries_of_sequences_may_have_another_form(tiny_model, cls, form):
    model, features = tiny_model(cls), [{"input_ids": row[0]} for row in rows_of()]
    expected = DataCollatorWithFlattening()(features)
    batch = DataCollatorWithFlattening(return_position_ids=False, **{form: True})(features)
    both = DataCollatorWithFlattening(**{form: True})(features)
    logits = []
    for inputs in (expected, batch, both):
        inputs.pop("labels")
        logits.append(model(**inputs).logits)
    torch.testing.assert_close(logits[1], logits[0])
    torch.testing.assert_close(logits[2], logits[0])
    with pytest.raises(ValueError, match=r"cu_seq_lens_q|seq_idx"):
        tiny_model()(**batch, decoder_input_ids=batch["input_ids"])


def test_a_row_is_split_where_llamas_is(tiny_model):
    """Without a mask only, and wherever a position is not the last one plus 1."""
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    ).eval()
    own = tiny_model(VanillaTransformerForCausalLM, position_embedding_type="rope")
    ids = rows_of((6,), vocab=39)[0]
    other = ids.clone()
    other[0, 1] += 1
    for position_ids in ([0, 1, 2, 0, 1, 2], [3, 4, 5, 6, 7, 8], [0, 1, 5, 6, 7, 0]):
        for mask in (None, torch.ones_like(ids)):
            sees = []
            for model in (llama, own):
                options = {"position_ids": torch.tensor([position_ids]), "attention_mask": mask}
                options["use_cache"] = (
                    False  # Llama does not look for concatenated sequences with a cache
                )
                difference = model(ids, **options).logits - model(other, **options).logits
                sees.append((difference.abs().sum(-1) > 1e-6).tolist())
            assert sees[0] == sees[1]


def test_a_trainer_trains_on_concatenated_sequences(tiny_model, tmp_path):
    """The same weights as with rows one by one; the loss is that of the sequences."""
    features = [{"input_ids": row[0].tolist()} for row in rows_of((5, 2, 7, 4))]
    losses = []
    for size in (1, 4):
        trainer = Trainer(
            tiny_model(VanillaTransformerForCausalLM, dropout=0.0),
            TrainingArguments(
                str(tmp_path),
                per_device_train_batch_size=size,
                gradient_accumulation_steps=4 // size,
                max_steps=2,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
            ),
            train_dataset=features,
            data_collator=DataCollatorWithFlattening(),
        )
        losses.append(trainer.train().training_loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# --- other positions -----------------------------------------------------------------------------


def learned_twins(tiny_model, cls, position_ids):
    """A model with learned positions, and one whose table is in the order of the given ones."""
    models = [tiny_model(cls, position_embedding_type="learned") for _ in range(2)]
    for stack in models[1].modules():
        if hasattr(stack, "embed_positions"):
            table = stack.embed_positions.weight.data
            table[: len(position_ids)] = table[position_ids].clone()
    return models


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize(
    "cls",
    [
        VanillaTransformerEncoderModel,
        VanillaTransformerForTokenClassification,
        VanillaTransformerForSequenceClassification,
        VanillaTransformerForCausalLM,
    ],
)
def test_every_model_of_one_stack_honours_given_positions(tiny_model, cls, with_mask):
    given = [4, 2, 9, 0, 1, 7] if with_mask else [3, 4, 5, 6, 7, 8]
    model, twin = learned_twins(tiny_model, cls, given)
    ids, position_ids = rows_of((6,))[0], torch.tensor([given])
    inputs = {"input_ids": ids}
    if with_mask:
        inputs["attention_mask"] = torch.ones_like(ids)
    found, expected = model(**inputs, position_ids=position_ids), twin(**inputs)
    torch.testing.assert_close(found[0], expected[0])
    assert not torch.allclose(found[0], model(**inputs)[0])


def test_rotary_positions_are_the_given_ones(tiny_model):
    """Every second position is what the linear type with the factor 2 undoes."""
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    options = {"position_embedding_type": "rope"}
    plain = tiny_model(VanillaTransformerForCausalLM, **options)
    scaled = tiny_model(VanillaTransformerForCausalLM, rope_parameters=rope, **options)
    ids = rows_of((6,))[0]
    found = scaled(ids, torch.ones_like(ids), position_ids=2 * torch.arange(6)[None]).logits
    torch.testing.assert_close(found, plain(ids).logits)


def test_the_distances_of_alibi_are_those_of_the_given_positions(tiny_model):
    """A masked token takes no position; given positions can put it back."""
    model = tiny_model(VanillaTransformerForCausalLM, position_embedding_type="alibi")
    ids, mask = rows_of((6,))[0], torch.tensor([[1, 1, 0, 0, 1, 1]])
    gap = torch.tensor([[0, 1, 1, 1, 2, 3]])
    counted = model(ids, mask).logits[mask == 1]
    torch.testing.assert_close(model(ids, mask, position_ids=gap).logits[mask == 1], counted)
    causal = torch.ones(6, 6).tril().bool() & mask.bool()[:, None, None]
    placed = model(ids, causal, position_ids=torch.arange(6)[None]).logits[mask == 1]
    found = model(ids, mask, position_ids=torch.arange(6)[None]).logits[mask == 1]
    torch.testing.assert_close(found, placed)
    assert not torch.allclose(found, counted)


@pytest.mark.parametrize("positions", POSITIONS)
def test_given_positions_go_on_with_a_cache(tiny_model, positions):
    model = tiny_model(VanillaTransformerForCausalLM, position_embedding_type=positions)
    ids, position_ids = joined(rows_of()), torch.arange(20, 20 + sum(LENGTHS))[None]
    expected, cache = model(ids, position_ids=position_ids).logits, DynamicCache()
    for where in (slice(0, 5), slice(5, 6), slice(6, 9), slice(9, None)):
        found = model(
            ids[:, where], position_ids=position_ids[:, where], past_key_values=cache
        ).logits
        torch.testing.assert_close(found, expected[:, where])


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_starts_from_given_positions(tiny_model, positions, cache):
    """Greedy tokens are those of a loop without a cache, from position 20 on."""
    model = tiny_model(
        VanillaTransformerForCausalLM, seed=1, position_embedding_type=positions, **LIVELY
    )
    ids, options = rows_of((4,))[0], {"cache_implementation": cache, "disable_compile": True}
    found = model.generate(
        ids, position_ids=torch.arange(20, 24)[None], max_new_tokens=6, **options
    )
    for _ in range(found.shape[1] - 4):
        position_ids = torch.arange(20, 20 + ids.shape[1])[None]
        next_id = model(ids, position_ids=position_ids).logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, next_id], dim=1)
    assert torch.equal(found, ids)


@pytest.mark.parametrize(
    ("position_ids", "message"),
    [
        (torch.arange(5)[None], r"shape \(1, 5\), but \(3, 7\) is needed"),
        (torch.arange(7), r"shape \(7,\), but \(3, 7\)"),
        (torch.arange(7)[None].float(), r"torch\.float32"),
        (torch.arange(7)[None] - 1, "holds -1"),
    ],
)
def test_positions_that_cannot_be_are_named(tiny_model, tiny_batch, position_ids, message):
    model = tiny_model(VanillaTransformerForCausalLM)
    with pytest.raises(ValueError, match=f"`position_ids`.*{message}"):
        model(tiny_batch()["input_ids"], position_ids=position_ids)
