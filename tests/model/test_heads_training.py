"""The heads in the stock Trainer and in stock pipelines, with the tokenizer of this package."""

import random

import made_up_language
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, pipeline

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerTokenizer,
)

PEOPLE, PLACES = ["Anna", "Bob", "Carla", "Dan"], ["Paris", "Rome", "Oslo", "Lima"]
GOOD, BAD = ["loves", "likes"], ["hates", "leaves"]
SIZES = {**made_up_language.SIZES, "dropout": 0.0}


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


MULTI = {"problem_type": "multi_label_classification", "num_labels": 3}


@pytest.mark.parametrize("head", ["class", "several", "number"])
def test_accumulation_does_not_change_the_gradient(tokenizer, tmp_path, head):
    """One optimiser step on 8 examples of unequal lengths, at once and in four parts."""
    changes = {"several": MULTI, "number": {"num_labels": 1}}
    rows = classification_rows(tokenizer, 8)
    for place, row in enumerate(rows):
        if head == "several":
            row["labels"] = [1.0, float(place % 2), 0.0]
        if head == "number":
            row["labels"] = float(place)
    norms = []
    for steps in (1, 4):
        trainer = train(
            make(VanillaTransformerForSequenceClassification, tokenizer, **changes.get(head, {})),
            tokenizer,
            tmp_path,
            rows,
            DataCollatorWithPadding(tokenizer),
            max_steps=1,
            per_device_train_batch_size=8 // steps,
            gradient_accumulation_steps=steps,
        )
        norms.append(trainer.state.log_history[0]["grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
