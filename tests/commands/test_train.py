"""`vanilla-transformer train`: its options, its help, and its start in several processes."""

import argparse
import dataclasses
import json
import os

import pytest
from small import launch
from toy import REPOSITORY, arguments, command

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.commands import train
from vanilla_transformer.commands.options import UsageError
from vanilla_transformer.commands.train import (
    ARCHITECTURE_OPTIONS,
    LARGE_PAGES,
    TRAINING_OPTIONS,
)
from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments


def default_in(text):
    """What a help text gives in brackets at its end, besides a choice by the data."""
    given = text.rpartition("(")[2].rstrip(")") if text.endswith(")") else None
    return None if given in (None, "chosen") else given.removeprefix("chosen, or ")


def test_the_most_used_options_exist_with_these_defaults(tmp_path):
    training = {field.name: field for field in dataclasses.fields(TokenBudgetTrainingArguments)}
    assert set(TRAINING_OPTIONS) <= set(training)
    argv = ["--output_dir", str(tmp_path), "--choose_defaults", "False"]
    defaults = parse_arguments(argv).training
    for name, text in TRAINING_OPTIONS.items():
        if name != "output_dir" and (given := default_in(text)) is not None:
            value = getattr(defaults, name)
            assert given == str(getattr(value, "value", value)) or float(given) == value, name
    config = VanillaTransformerConfig()
    for name, text in ARCHITECTURE_OPTIONS.items():
        assert default_in(text) == str(getattr(config, name)), name


def test_the_whole_help_lists_every_option():
    done = command("train", "--help-all")
    assert done.returncode == 0, done.stderr
    for name in ("--train_source", "--d_model", "--adam_beta2", "--bpe_dropout", "--max_tokens"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--d_mode", "8"],
        ["--d-model", "eight"],
        ["--metrics", "rouge"],
        ["--seed"],
        ["recipe.yaml"],
    ],
)
def test_wrong_options_are_one_line_and_status_2(options, tmp_path):
    (tmp_path / "recipe.yaml").write_text("d_modell: 3\n")
    done = command("train", *options, "--output_dir", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2
    wrong = "d_modell" if options == ["recipe.yaml"] else options[0].strip("-").replace("-", "_")
    assert wrong in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_accelerate_starts_it_in_two_processes(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    argv = arguments(corpus, tmp_path / "out", "train", "validation", max_steps=4)
    launch("-m", "vanilla_transformer", "train", *argv)
    results = json.loads((tmp_path / "out" / "all_results.json").read_text(encoding="utf-8"))
    assert "eval_bleu" in results


def test_a_failure_in_two_processes_shows_in_the_status(tmp_path):
    with pytest.raises(AssertionError, match="`train_source`"):
        launch("-m", "vanilla_transformer", "train", "--train_source", tmp_path / "nowhere")


@pytest.mark.parametrize("given", [None, "0"])
def test_training_uses_large_pages_unless_told_otherwise(monkeypatch, given):
    monkeypatch.setenv(LARGE_PAGES, given or "")  # so that its absence is restored at the end
    if given is None:
        monkeypatch.delenv(LARGE_PAGES)
    with pytest.raises(UsageError, match="no_such_option"):
        train.run(argparse.Namespace(words=["--no_such_option", "1"]))
    assert os.environ[LARGE_PAGES] == (given or "1")
