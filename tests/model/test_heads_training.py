"""The heads in the stock Trainer and in stock pipelines, with the tokenizer of this package."""

import random

import numpy as np
import pytest
import torch
import toy
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerForTokenClassification,
    VanillaTransformerTokenizer,
)

PEOPLE, PLACES = ["Anna", "Bob", "Carla", "Dan"], ["Paris", "Rome", "Oslo", "Lima"]
GOOD, BAD = ["loves", "likes"], ["hates", "leaves"]
TAGS = {0: "O", 1: "B-PER", 2: "B-LOC"}
SIZES = {**toy.SIZES, "dropout": 0.0}


def sentences(count=160, seed=0):
    """Lists of words: two of people and places, in any order, around a verb."""
    chance = random.Random(seed)
    return [
        [
            chance.choice(PEOPLE + PLACES),
            chance.choice(GOOD + BAD),
            *chance.choice([[], ["only"]]),
            chance.choice(PEOPLE + PLACES),
        ]
        for _ in range(count)
    ]


def train(model, tokenizer, folder, rows, collator, **changes):
    options = {
        "learning_rate": 1e-2,
        "num_train_epochs": 6,
        "per_device_train_batch_size": 16,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": True,
        **changes,
    }
    trainer = Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **options),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator,
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def make(cls, tokenizer, **changes):
    torch.manual_seed(0)
    return cls(VanillaTransformerConfig(**{"vocab_size": len(tokenizer), **SIZES, **changes}))


@pytest.fixture(scope="module")
def tokenizer():
    texts = [" ".join(words) for words in sentences()]
    return VanillaTransformerTokenizer.train(texts, kind="bpe", vocab_size=120)


def classification_rows(tokenizer, count=160):
    return [
        {**tokenizer(" ".join(words)), "labels": int(words[1] in GOOD)}
        for words in sentences(count)
    ]


def tagged_rows(tokenizer, count=160):
    rows = []
    for words in sentences(count):
        encoded = tokenizer(words, is_split_into_words=True)
        tags = [1 if word in PEOPLE else 2 if word in PLACES else 0 for word in words]
        labels = [-100 if place is None else tags[place] for place in encoded.word_ids()]
        rows.append({**encoded, "labels": labels})
    return rows


def test_sequences_are_classified(tokenizer, tmp_path):
    cls = VanillaTransformerForSequenceClassification
    model = make(cls, tokenizer, id2label={0: "bad", 1: "good"})
    collator = DataCollatorWithPadding(tokenizer)
    trainer = train(model, tokenizer, tmp_path, classification_rows(tokenizer), collator)
    found = trainer.predict(classification_rows(tokenizer))
    assert (found.predictions.argmax(-1) == found.label_ids).mean() > 0.98
    trainer.save_model(tmp_path / "saved")
    classify = pipeline("text-classification", model=str(tmp_path / "saved"))
    answers = classify(["Anna loves Rome", "Bob hates only Lima"], batch_size=2)
    assert [answer["label"] for answer in answers] == ["good", "bad"]
    assert all(0.9 < answer["score"] <= 1 for answer in answers)


def test_tokens_are_classified(tokenizer, tmp_path):
    model = make(VanillaTransformerForTokenClassification, tokenizer, id2label=TAGS)
    rows, collator = tagged_rows(tokenizer), DataCollatorForTokenClassification(tokenizer)
    trainer = train(model, tokenizer, tmp_path, rows, collator)
    found = trainer.predict(rows)
    real = found.label_ids != -100
    assert (found.predictions.argmax(-1) == found.label_ids)[real].mean() > 0.98
    trainer.save_model(tmp_path / "saved")
    tag = pipeline(
        "token-classification", model=str(tmp_path / "saved"), aggregation_strategy="first"
    )
    text = "Carla leaves only Oslo"
    entities = tag([text, "Rome likes Dan"], batch_size=2)
    assert [(e["entity_group"], e["word"]) for e in entities[0]] == [
        ("PER", "Carla"),
        ("LOC", "Oslo"),
    ]
    assert [e["entity_group"] for e in entities[1]] == ["LOC", "PER"]
    for entity in entities[0]:
        assert text[entity["start"] : entity["end"]].strip() == entity["word"]


def test_a_language_model_learns_and_generates(tokenizer, tmp_path):
    tokenizer = VanillaTransformerTokenizer.train(
        ["one two three four five six"] * 4, kind="word", vocab_size=30
    )
    tokenizer.padding_side = "left"
    numbers = ["one", "two", "three", "four", "five", "six"]
    rows = [
        {"input_ids": tokenizer(" ".join(numbers[first:last])).input_ids}
        for first in range(5)
        for last in range(first + 2, 7)
    ] * 6
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    model = make(VanillaTransformerForCausalLM, tokenizer)
    trainer = train(model, tokenizer, tmp_path, rows, collator, num_train_epochs=8)
    model.eval()
    whole = tokenizer("one two three four five six", return_tensors="pt").input_ids
    guessed = model(whole).logits[0, :-1].argmax(-1)
    assert guessed[:5].tolist() == whole[0, 1:6].tolist()
    tokenizer.add_eos_token = False
    trainer.save_model(tmp_path / "saved")
    assert not AutoTokenizer.from_pretrained(tmp_path / "saved").add_eos_token
    write = pipeline("text-generation", model=str(tmp_path / "saved"))
    options = {"max_new_tokens": 2, "min_new_tokens": 2, "do_sample": False, "batch_size": 2}
    texts = write(["one two three", "two"], return_full_text=False, **options)
    assert [text[0]["generated_text"].split() for text in texts] == [
        ["four", "five"],
        ["three", "four"],
    ]


def test_the_pipeline_for_prompts_uses_the_vocabulary_of_the_target(tiny_model, tmp_path):
    """A translator's directory with two vocabularies, loaded as a language model."""
    tokenizer = VanillaTransformerTokenizer.train(
        ["a b c d e f"], ["z y x"], kind="word", shared=False, model_max_length=9
    )
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": tokenizer.target_vocab_size}
    tiny_model(**sizes).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    write = pipeline("text-generation", model=str(tmp_path))
    target = tokenizer.target_tokenizer()
    expected = target("z y", add_special_tokens=False, return_tensors="pt").input_ids
    assert write.tokenizer("z y", return_tensors="pt").input_ids.equal(expected)
    assert write.tokenizer.model_max_length == 9
    generated = write.model.generate(expected, max_new_tokens=3, do_sample=False)
    [output] = write("z y", max_new_tokens=3, do_sample=False, return_full_text=False)
    assert output["generated_text"] == target.decode(generated[0, 2:], skip_special_tokens=True)
    assert AutoTokenizer.from_pretrained(tmp_path).separate_vocabularies


def test_features_are_extracted_from_a_saved_encoder(tokenizer, tmp_path):
    encoder = make(VanillaTransformerEncoderModel, tokenizer).eval()
    encoder.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    extract = pipeline("feature-extraction", model=str(tmp_path))
    found = extract(["Anna loves Rome", "Bob"], batch_size=2)
    expected = encoder(**tokenizer("Anna loves Rome", return_tensors="pt")).last_hidden_state
    length = expected.shape[1]
    np.testing.assert_allclose(np.array(found[0])[0, :length], expected[0].detach(), atol=1e-5)


MULTI = {"problem_type": "multi_label_classification", "num_labels": 3}


@pytest.mark.parametrize("head", ["class", "several", "number", "tokens", "text"])
def test_accumulation_does_not_change_the_gradient(tokenizer, tmp_path, head):
    """One optimiser step on 8 examples of unequal lengths, at once and in four parts."""
    changes = {"several": MULTI, "number": {"num_labels": 1}, "tokens": {"num_labels": 3}}
    cls = {
        "tokens": VanillaTransformerForTokenClassification,
        "text": VanillaTransformerForCausalLM,
    }.get(head, VanillaTransformerForSequenceClassification)
    collator = DataCollatorWithPadding(tokenizer)
    if head == "tokens":
        rows, collator = tagged_rows(tokenizer, 8), DataCollatorForTokenClassification(tokenizer)
    else:
        rows = classification_rows(tokenizer, 8)
    if head == "text":
        rows = [{"input_ids": row["input_ids"]} for row in rows]
        collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    for place, row in enumerate(rows):
        if head == "several":
            row["labels"] = [1.0, float(place % 2), 0.0]
        if head == "number":
            row["labels"] = float(place)
    norms = []
    for steps in (1, 4):
        trainer = train(
            make(cls, tokenizer, **changes.get(head, {})),
            tokenizer,
            tmp_path,
            rows,
            collator,
            max_steps=1,
            per_device_train_batch_size=8 // steps,
            gradient_accumulation_steps=steps,
        )
        norms.append(trainer.state.log_history[0]["grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def test_trainers_own_label_smoothing_shifts_a_language_models_labels(tokenizer, tmp_path):
    model = make(VanillaTransformerForCausalLM, tokenizer).eval()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path), label_smoothing_factor=0.2, report_to="none", use_cpu=True
        ),
    )
    ids = torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    labels = ids.clone()
    labels[1, 2:] = -100
    found = trainer.compute_loss(model, {"input_ids": ids, "labels": labels.clone()})
    model.config.label_smoothing = 0.2
    torch.testing.assert_close(found, model(ids, labels=labels).loss)
