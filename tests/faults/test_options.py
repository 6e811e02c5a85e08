"""Options of the command with drawn values: each works, or gets one error that names it."""

import random
import secrets
from dataclasses import fields

import forks
import pytest
from toy import arguments
from transformers import Seq2SeqTrainingArguments

from vanilla_transformer.run.parsing import TOPICS

VALUES = ("", "0", "1", "2", "-1", "-0.5", "0.5", "1.5", "1e-3", "1e999", "nan", "-inf", "abc")
VALUES += ("true", "False", "None", "no", "steps", "epoch", "{}", "[]", '{"a": 1}', "[1, 2]", "é")
VALUES += ("0x10", "1_0", " 1", "99", "bleu", "wer", "eval_loss", "relu", "/nowhere/at/all")
NOT_DRAWN = ("train_", "validation_", "test_", "dataset_")  # the data
QUICK = {"max_steps": 1, "max_train_samples": 8, "max_eval_samples": 2, "d_model": 8}


def names_of_options():
    """All options of `train` but those of transformers, and those that name the data."""
    names = {field.name for topic in TOPICS.values() for field in fields(topic)}
    names -= Seq2SeqTrainingArguments.__dataclass_fields__.keys()
    return sorted(name for name in names if not name.startswith(NOT_DRAWN))


def draw_options(seed, names):
    """Returns one or two options with values."""
    chance = random.Random(seed)
    chosen = chance.sample(names, chance.choice((1, 1, 2)))
    return {name: chance.choice(VALUES) for name in chosen}


def names_an_option(message, options):
    """Whether an error tells which of the options it is about, by its name or its value."""
    plain = message.replace("_", " ").replace("-", " ")
    named = [name for name in options if name.replace("_", " ").replace("-", " ") in plain]
    return bool(named) or any(repr(value) in message for value in options.values())


@pytest.fixture
def seeds(pytestconfig):
    """Fixed seeds, or N random ones with `--fuzz N`."""
    count = pytestconfig.getoption("--fuzz")
    first = pytestconfig.getoption("--fuzz-seed")
    if count is None:
        return range(30)
    first = secrets.randbelow(10**9) if first is None else first
    return range(first, first + count)


def check_error(done, argv, options):
    """One line of ours on standard error that names an option; never a bug, never silence."""
    last = (done.stderr.strip().splitlines() or [""])[-1]
    assert done.returncode in (1, 2), f"{argv}: {done.returncode}, {last}"
    assert "error: " in last, f"{argv}: {last}"
    assert "--debug ..." not in last, f"{argv}: {last}"
    assert names_an_option(last, options), f"{argv}: {last}"


def test_drawn_options_of_train_work_or_are_named(corpus, tmp_path, seeds):
    names, errors = names_of_options(), 0
    for seed in seeds:
        options = draw_options(seed, names)
        argv = arguments(corpus, tmp_path / str(seed), "train", "validation", **QUICK)
        drawn = [f"--{name}={value}" for name, value in options.items()]
        done = forks.run("vanilla_transformer", "train", *argv, *drawn)
        if done.returncode:
            check_error(done, f"--fuzz 1 --fuzz-seed {seed}: {drawn}", options)
            errors += 1
        else:
            assert (tmp_path / str(seed) / "all_results.json").is_file()
    assert errors < len(seeds) or len(seeds) < 5, "nothing works"
