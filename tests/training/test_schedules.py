"""The paper's learning rate: the formula, and real runs."""

import pytest
import torch
from small import losses, rates, trainer
from transformers import Trainer, TrainingArguments

from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.training.schedules import NoamSchedule, noam_rate

NOAM = {"lr_scheduler_type": "noam", "warmup_steps": 4, "logging_steps": 1}


def test_the_numbers_of_the_papers_formula():
    assert noam_rate(1, 512, 4000) == pytest.approx(1.746928e-7, rel=1e-6)
    assert noam_rate(4000, 512, 4000) == pytest.approx(6.987712e-4, rel=1e-6)
    assert noam_rate(16000, 512, 4000) == pytest.approx(6.987712e-4 / 2, rel=1e-6)
    assert noam_rate(300, 512, 4000, factor=2) == pytest.approx(2 * 300 * 1.746928e-7, rel=1e-6)
    rates = [noam_rate(step, 512, 4000) for step in range(3990, 4010)]
    assert max(rates) == rates[10]


def test_every_group_has_the_rate_of_the_formula_whatever_it_was_made_with():
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.0, 3.0)]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    schedule = NoamSchedule(optimizer, d_model=16, warmup_steps=3, factor=0.5)
    for step in range(1, 8):
        expected = 0.5 * 16**-0.5 * min(step**-0.5, step * 3**-1.5)
        assert [g["lr"] for g in optimizer.param_groups] == [pytest.approx(expected)] * 2
        optimizer.step()
        schedule.step()


def test_a_run_follows_it_and_goes_on_after_an_interruption(tmp_path):
    options = {**NOAM, "lr_scheduler_kwargs": {"factor": 0.5}, "max_steps": 9}
    whole = trainer(tmp_path / "whole", **options)
    whole.train()
    expected = {step: pytest.approx(noam_rate(step, 16, 4, 0.5)) for step in range(1, 10)}
    assert rates(whole) == expected
    stopped = trainer(tmp_path / "parts", stop_at=5, save_strategy="steps", save_steps=5, **options)
    stopped.train()
    resumed = trainer(tmp_path / "parts", **options)
    resumed.train(resume_from_checkpoint=True)
    assert rates(resumed) == expected
    assert losses(resumed) == losses(whole)


def test_the_stock_trainer_takes_it_too(tmp_path):
    ours = trainer(tmp_path, max_steps=2)
    optimizer = torch.optim.Adam(ours.model.parameters())
    stock = Trainer(
        model=ours.model,
        args=TrainingArguments(
            tmp_path,
            max_steps=3,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=ours.train_dataset,
        data_collator=ours.data_collator,
        optimizers=(optimizer, NoamSchedule(optimizer, d_model=16, warmup_steps=2)),
    )
    stock.train()
    assert rates(stock) == {i: pytest.approx(noam_rate(i, 16, 2)) for i in (1, 2, 3)}


@pytest.mark.parametrize("name", ["linear", "cosine", "inverse_sqrt", "constant_with_warmup"])
def test_the_names_of_transformers_work_as_before(tmp_path, name):
    run = trainer(
        tmp_path,
        lr_scheduler_type=name,
        warmup_steps=2,
        max_steps=3,
        logging_steps=1,
        learning_rate=0.5,
    )
    run.train()
    assert rates(run)[2] == pytest.approx(0.25)
    assert rates(run)[3] == pytest.approx(0.5)


def test_the_options_of_a_run(tmp_path):
    argv = ["--output_dir", str(tmp_path), "--lr_scheduler_type", "noam", "--warmup_steps", "4000"]
    argv += ["--lr_scheduler_kwargs", '{"factor": 2.0}']
    training = parse_arguments(argv).training
    assert training.lr_scheduler_type == "noam"
    assert training.to_dict()["lr_scheduler_type"] == "noam"


def test_bad_numbers():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    for numbers in ((8, 0), (0, 8), (8, 8, 0.0)):
        with pytest.raises(ValueError, match=r"must be positive|at least 1"):
            NoamSchedule(optimizer, *numbers)
