"""A plain loop over Accelerate, which test_accelerate_loop.py runs in one process and in two.

Arguments: the folder for the report.
"""

import sys
from contextlib import nullcontext
from itertools import islice

import torch
from accelerate import Accelerator
from small import model, rows, tokenizer, write_report
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, get_scheduler

from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler, token_lengths

torch.set_num_threads(1)
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


def main(folder):
    loop = Loop(dropout=0.0)
    loop.run()
    report = {
        "losses": loop.losses,
        "weights": loop.weights(),
        "processes": loop.accelerator.num_processes,
    }
    write_report(folder, "batches", loop.accelerator.process_index, report)


if __name__ == "__main__":
    main(*sys.argv[1:])
