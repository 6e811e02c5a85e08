"""A plain loop over Accelerate equals Trainer, and resumes."""

from contextlib import nullcontext
from itertools import islice

import pytest
import torch
from accelerate import Accelerator
from tiny_training import losses, model, rows, tokenizer, trainer
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, get_scheduler

from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler, token_lengths
from vanilla_transformer.training.muon import make_muon

BUDGET, STEPS, BATCHES_PER_STEP, SEED = 60, 8, 2, 42


def sampled(accelerator, collate):
    """Returns the loader of a data set, whose batches Accelerate shares."""
    data = rows()
    lengths = (token_lengths(data, name) for name in ("input_ids", "labels"))
    sampler = TokenBudgetBatchSampler(
        *lengths, BUDGET, seed=SEED, num_processes=accelerator.num_processes
    )
    return accelerator.prepare(DataLoader(data, batch_sampler=sampler, collate_fn=collate))


def sgd(net, lr):
    return torch.optim.SGD(net.parameters(), lr)


class Loop:
    """A plain training script; `run` is its loop."""

    def __init__(self, make_optimizer=sgd, rate=0.3, **changes):
        self.accelerator = Accelerator(cpu=True)
        net = model(**changes)
        optimizer = make_optimizer(net, lr=rate)
        self.schedule = get_scheduler("linear", optimizer, 0, STEPS)
        self.accelerator.register_for_checkpointing(self.schedule)
        self.net, self.optimizer = self.accelerator.prepare(net.train(), optimizer)
        self.loader = sampled(self.accelerator, DataCollatorForSeq2Seq(tokenizer(), model=net))
        self.losses = []

    def run(self, start=0, stop=STEPS):
        """Trains for some steps, with the same number of batches in all on one process and two."""
        count = BATCHES_PER_STEP // self.accelerator.num_processes
        per_epoch = len(self.loader) // count
        for epoch in range(start // per_epoch, -(-stop // per_epoch)):
            loader, first = self.loader, max(0, start - epoch * per_epoch)
            loader.set_epoch(epoch)
            if first:
                loader = self.accelerator.skip_first_batches(loader, first * count)
            batches = iter(loader)
            for _ in range(first, min(per_epoch, stop - epoch * per_epoch)):
                self.step(list(islice(batches, count)))

    def step(self, batches):
        run = self.accelerator
        items = run.reduce(sum((batch["labels"] != -100).sum() for batch in batches))
        total = torch.zeros(())
        for batch in batches:
            waits = run.no_sync(self.net) if batch is not batches[-1] else nullcontext()
            with waits:
                loss = self.net(**batch, num_items_in_batch=items).loss
                run.backward(loss * run.num_processes)  # DDP takes the mean over processes
            total += loss.detach()
        run.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.losses.append(run.reduce(total).item())

    def weights(self):
        net = self.accelerator.unwrap_model(self.net)
        return {name: parameter.tolist() for name, parameter in net.named_parameters()}


def test_it_trains_as_trainer_does(tmp_path):
    options = {"optim": "sgd", "learning_rate": 0.3, "max_tokens": BUDGET, "max_steps": STEPS}
    options |= {"seed": SEED, "gradient_accumulation_steps": BATCHES_PER_STEP, "logging_steps": 1}
    run = trainer(tmp_path, net=model(dropout=0.0), data=rows(), **options)
    run.train()
    loop = Loop(dropout=0.0)
    loop.run()
    assert loop.losses == pytest.approx(list(losses(run).values()), rel=1e-4)
    weights = loop.weights()
    for name, value in run.model.named_parameters():
        torch.testing.assert_close(torch.tensor(weights[name]), value, rtol=1e-4, atol=1e-5)


def adamw(net, lr):
    return torch.optim.AdamW(net.parameters(), lr)


@pytest.mark.parametrize("make_optimizer", [adamw, make_muon])
def test_it_resumes_to_the_bit_in_the_middle_of_a_later_epoch(tmp_path, make_optimizer):
    options = {"make_optimizer": make_optimizer, "rate": 0.01, "dropout": 0.3}
    torch.manual_seed(3)
    whole = Loop(**options)
    steps_of_an_epoch = len(whole.loader) // BATCHES_PER_STEP
    middle = steps_of_an_epoch + 1
    assert 1 < steps_of_an_epoch < middle < STEPS
    whole.run(stop=middle)
    whole.accelerator.save_state(str(tmp_path))
    whole.run(start=middle)

    torch.manual_seed(4)
    resumed = Loop(**options)
    resumed.accelerator.load_state(str(tmp_path))
    resumed.run(start=middle)
    assert resumed.losses == whole.losses[middle:]
    assert resumed.weights() == whole.weights()
