"""Schedules of the learning rate."""

from functools import partial

import pytest
import torch
from tiny_training import assert_resumes_exactly, rates, trainer
from transformers.trainer_utils import SchedulerType

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
    whole, _, resumed = assert_resumes_exactly(partial(trainer, **options), tmp_path, 5)
    expected = {step: pytest.approx(noam_rate(step, 16, 4, 0.5)) for step in range(1, 10)}
    assert rates(whole) == rates(resumed) == expected


def test_every_schedule_works_without_options(tmp_path):
    needs_options = {"cosine_with_min_lr", "cosine_warmup_with_min_lr"}
    for name in {"noam", *(kind.value for kind in SchedulerType)} - needs_options:
        options = {"lr_scheduler_type": name, "warmup_steps": 1, "eval_strategy": "epoch"}
        trainer(tmp_path, **options).create_optimizer_and_scheduler(10)


def test_a_schedule_follows_a_score_in_its_direction(tmp_path):
    options = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"}
    for metric, mode in (("chrf", "max"), ("loss", "min"), (None, "min")):
        run = trainer(tmp_path, max_steps=2, eval_steps=1, metric_for_best_model=metric, **options)
        run.create_optimizer_and_scheduler(2)
        assert run.lr_scheduler.mode == mode


def test_the_stable_schedule_decays_in_the_last_tenth(tmp_path):
    options = {"lr_scheduler_type": "warmup_stable_decay", "learning_rate": 0.01}
    run = trainer(tmp_path, max_steps=20, warmup_steps=2, logging_steps=1, **options)
    run.train()
    found = rates(run)
    assert found[2] < 0.01
    assert {found[step] for step in range(3, 20)} == {0.01}
    assert 0 < found[20] < 0.01
