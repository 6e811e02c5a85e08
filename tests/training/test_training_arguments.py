"""Schedules of the learning rate, and options of a training that are refused early."""

from functools import partial

import pytest
import torch
from small import assert_resumes_exactly, model, rates, stock, trainer

from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.training.schedules import NoamSchedule, noam_rate
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

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


def test_the_stock_trainer_takes_it_too(tmp_path):
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    optimizers = optimizer, NoamSchedule(optimizer, d_model=16, warmup_steps=2)
    run = stock(tmp_path, net, optimizers=optimizers, max_steps=3, logging_steps=1)
    run.train()
    assert rates(run) == {i: pytest.approx(noam_rate(i, 16, 2)) for i in (1, 2, 3)}


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


# Options that are refused early; test_rules.py has more ----------------------------------------


def test_numbers_at_the_border(tmp_path):
    argv = ["--max_steps", "-1", "--learning_rate", "0", "--max_grad_norm", "inf"]
    parse_arguments(["--output_dir", str(tmp_path), *argv, "--num_train_epochs", "0.1"])


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        ("linear", "{factor: 2}", r"`lr_scheduler_kwargs` '\{factor: 2\}'"),
        ("linear", "factor", "`lr_scheduler_kwargs` 'factor'"),
        ("linear", "[1]", r"`lr_scheduler_kwargs` '\[1\]'"),
        ("linear", '{"a": 1}', "`lr_scheduler_kwargs` .*'linear'"),
        ("cosine", '{"num_cycles": "many"}', "`lr_scheduler_kwargs` .*'cosine'"),
        ("polynomial", '{"lr_end": 1}', "`lr_scheduler_kwargs` .*'polynomial'"),
        ("noam", '{"factor": "a"}', "`lr_scheduler_kwargs` .*'a'"),
    ],
)
def test_options_of_the_schedule(tmp_path, schedule, options, message):
    argv = ["--output_dir", str(tmp_path), "--lr_scheduler_type", schedule, "--warmup_steps", "1"]
    with pytest.raises(ValueError, match=message):
        parse_arguments([*argv, f"--lr_scheduler_kwargs={options}"])


def test_every_schedule_works_without_options(tmp_path):
    types = TokenBudgetTrainingArguments.__dataclass_fields__["lr_scheduler_type"].metadata["help"]
    names = types.rpartition(": ")[2].rstrip(".").split(", ")
    assert "warmup_stable_decay" in names
    needs_options = {"cosine_with_min_lr", "cosine_warmup_with_min_lr"}
    for name in set(names) - needs_options:
        scored = {"eval_strategy": "steps", "eval_steps": 1}
        scored = scored if name in ("reduce_lr_on_plateau", "greedy") else {}
        options = {"lr_scheduler_type": name, "warmup_steps": 1, **scored}
        TokenBudgetTrainingArguments(str(tmp_path), **options)


def test_a_schedule_follows_a_score_in_its_direction(tmp_path):
    options = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"}
    for metric, mode in (("chrf", "max"), ("loss", "min"), (None, "min")):
        run = trainer(tmp_path, max_steps=2, eval_steps=1, metric_for_best_model=metric, **options)
        run.create_optimizer_and_scheduler(2)
        assert run.lr_scheduler.mode == mode


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lr_scheduler_type": "constant_with_warmup", "lr_scheduler_kwargs": '{"x": 1}'},
            "`lr_scheduler_kwargs`",
        ),
        ({"eval_steps": 3, "model_name_or_path": "runs/saved"}, "`eval_steps`"),
        ({"label_smoothing": 0.1, "label_smoothing_factor": 0.2}, "`label_smoothing` 0.1"),
        ({"stream_buffer": 7}, "`stream_buffer`"),
    ],
)
def test_options_without_effect_are_refused(tmp_path, options, message):
    words = [f"--{name}={value}" for name, value in options.items()]
    with pytest.raises(ValueError, match=f"{message}.* no effect"):
        parse_arguments(["--output_dir", str(tmp_path), *words])


def test_the_stable_schedule_decays_in_the_last_tenth(tmp_path):
    options = {"lr_scheduler_type": "warmup_stable_decay", "learning_rate": 0.01}
    run = trainer(tmp_path, max_steps=20, warmup_steps=2, logging_steps=1, **options)
    run.train()
    found = rates(run)
    assert found[2] < 0.01
    assert {found[step] for step in range(3, 20)} == {0.01}
    assert 0 < found[20] < 0.01


@pytest.mark.parametrize(
    ("metrics", "changes", "message"),
    [
        (["bleu"], {"metric_for_best_model": "bleu", "greater_is_better": False}, "False.*'bleu'"),
        (["bleu"], {"greater_is_better": False}, "`greater_is_better` is False.*'bleu'"),
        (["wer"], {"greater_is_better": True}, "`greater_is_better` is True.*'wer'"),
        (["wer"], {"metric_for_best_model": "loss", "greater_is_better": True}, "True.*'loss'"),
    ],
)
def test_directions_that_choose_the_worst_model(tmp_path, metrics, changes, message):
    argv = [text for name, value in changes.items() for text in (f"--{name}", str(value))]
    with pytest.raises(ValueError, match=message):
        parse_arguments(["--output_dir", str(tmp_path), "--metrics", *metrics, *argv])


@pytest.mark.parametrize("optimizer", ["grokadamw", "stable_adamw", "schedule_free_sgd"])
def test_a_missing_package_of_an_optimizer_is_named_at_once(tmp_path, optimizer):
    with pytest.raises((ImportError, ValueError), match="nstall"):
        TokenBudgetTrainingArguments(output_dir=str(tmp_path), optim=optimizer)
