"""Options of a training that are refused early; test_rules.py has more."""

import pytest
from small import rates, trainer

from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

WORST_AS_BEST = {"metric_for_best_model": "bleu", "greater_is_better": False}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rdrop_alpha", "nan"),
        ("rdrop_alpha", "inf"),
        ("label_smoothing_factor", "-0.1"),
        ("learning_rate", "-1"),
        ("learning_rate", "nan"),
        ("gradient_accumulation_steps", "-2"),
        ("num_train_epochs", "nan"),
        ("num_train_epochs", "-1"),
        ("ema_decay", "nan"),
        ("scheduled_sampling", "nan"),
    ],
)
def test_numbers_out_of_range(tmp_path, option, value):
    with pytest.raises(ValueError, match=f"`{option}` is {float(value):g}"[:-1]):
        parse_arguments(["--output_dir", str(tmp_path), f"--{option}={value}"])


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
        (["bleu"], WORST_AS_BEST, "'bleu' is a score, and higher is better"),
        (["bleu"], {"greater_is_better": False}, "'bleu' is a score, and higher is better"),
        (["wer"], {"greater_is_better": True}, "'wer' is an error rate, and lower is better"),
        (
            ["wer"],
            {"metric_for_best_model": "loss", "greater_is_better": True},
            "'loss' is a loss, and lower is better",
        ),
    ],
)
def test_directions_that_choose_the_worst_model(tmp_path, metrics, changes, message):
    argv = [text for name, value in changes.items() for text in (f"--{name}", str(value))]
    with pytest.raises(ValueError, match=message):
        parse_arguments(["--output_dir", str(tmp_path), "--metrics", *metrics, *argv])
