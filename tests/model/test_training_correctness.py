"""Under the stock Seq2SeqTrainer: gradients under accumulation, checkpoints, and that it learns."""

import pytest
import torch
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)


def examples(count=16, seed=0):
    """Rows of very different lengths, so that a mean of means is far from the mean."""
    generator = torch.Generator().manual_seed(seed)

    def row(longest):
        length = int(torch.randint(1, longest, (1,), generator=generator))
        return torch.randint(3, 40, (length,), generator=generator).tolist()

    return [{"input_ids": row(12), "labels": row(24)} for _ in range(count)]


def collate(rows):
    def pad(name, value):
        longest = max(len(row[name]) for row in rows)
        return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])

    ids, labels = pad("input_ids", 1), pad("labels", -100)
    model_input = torch.cat([torch.zeros(len(rows), 1).long(), labels[:, :-1]], 1)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 1).long(),
        "labels": labels,
        "decoder_input_ids": model_input.masked_fill(model_input == -100, 1),
    }


class GradientRecorder(TrainerCallback):
    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})


def train(model, directory, rows, **arguments):
    recorder = GradientRecorder()
    options = {
        "per_device_train_batch_size": 16,
        "max_steps": 1,
        "learning_rate": 1e-3,
        "max_grad_norm": 0.0,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential",
    }
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(str(directory), **(options | arguments)),
        train_dataset=rows,
        data_collator=collate,
        callbacks=[recorder],
    )
    trainer.train()
    return trainer, recorder.gradients


SMOOTHING = {
    "none": ({}, {}),
    "config": ({"label_smoothing": 0.1}, {}),
    "trainer": ({}, {"label_smoothing_factor": 0.1}),
}


@pytest.mark.parametrize("smoothing", list(SMOOTHING))
def test_the_gradient_of_16_examples_is_the_same_under_accumulation(
    tiny_model, tmp_path, smoothing
):
    changes, arguments = SMOOTHING[smoothing]
    rows, gradients, logged = examples(), [], []
    for batch_size, steps in ((16, 1), (4, 4), (2, 8), (8, 2)):
        trainer, recorded = train(
            tiny_model(dropout=0.0, **changes),
            tmp_path,
            rows,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=steps,
            logging_steps=1,
            **arguments,
        )
        assert len(recorded) == 1
        gradients.append(recorded[0])
        logged.append(trainer.state.log_history[0]["loss"])
    model = tiny_model(dropout=0.0, label_smoothing=0.0 if smoothing == "none" else 0.1).train()
    model(**collate(rows)).loss.backward()
    gradients.append({n: p.grad for n, p in model.named_parameters()})
    for other in gradients[1:]:
        difference = sum((other[n] - g).square().sum() for n, g in gradients[0].items()).sqrt()
        norm = sum(g.square().sum() for g in gradients[0].values()).sqrt()
        assert difference / norm < 1e-4
    assert logged == pytest.approx([logged[0]] * 4, rel=1e-4)


def test_the_defaults_learn_to_reverse(tmp_path):
    """Post-norm, scaled embeddings, sinusoids, tied: nothing but the sizes is changed."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=14,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
    )
    model = VanillaTransformerForConditionalGeneration(config)

    def batch(count, generator):
        ids = torch.randint(3, 14, (count, 6), generator=generator)
        return ids, torch.cat([ids.flip(1), torch.full((count, 1), 2)], 1)

    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 60, (60 / (step + 1)) ** 0.5)
    )
    model.train()
    for _ in range(450):
        ids, labels = batch(64, generator)
        optimizer.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimizer.step()
        schedule.step()
    ids, labels = batch(200, torch.Generator().manual_seed(2))
    found = model.eval().generate(ids, max_new_tokens=7)[:, 1:]
    found = torch.nn.functional.pad(found, (0, 7 - found.shape[1]), value=1)
    assert (found == labels).float().mean() >= 0.95
