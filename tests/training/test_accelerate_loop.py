"""A plain loop over Accelerate equals Trainer, on one process and two, and resumes."""

from pathlib import Path

import pytest
import torch
from accelerate_run import BATCHES_PER_STEP, BUDGET, SEED, STEPS, Loop
from small import losses, model, read_reports, rows, run_in_two_processes, trainer

from vanilla_transformer.training.muon import make_muon

PROGRAM = Path(__file__).with_name("accelerate_run.py")


def test_it_trains_as_trainer_does(tmp_path):
    run_in_two_processes(PROGRAM, tmp_path)
    options = {"optim": "sgd", "learning_rate": 0.3, "max_tokens": BUDGET, "max_steps": STEPS}
    options |= {"seed": SEED, "gradient_accumulation_steps": BATCHES_PER_STEP, "logging_steps": 1}
    run = trainer(tmp_path, net=model(dropout=0.0), data=rows(), **options)
    run.train()
    loop = Loop(dropout=0.0)
    loop.run()
    reports = read_reports(tmp_path, "batches")
    assert [report["processes"] for report in reports] == [2, 2]
    assert len(losses(run)) == STEPS
    found = [(loop.losses, loop.weights()), *((r["losses"], r["weights"]) for r in reports)]
    for values, weights in found:
        assert values == pytest.approx(list(losses(run).values()), rel=1e-4)
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
