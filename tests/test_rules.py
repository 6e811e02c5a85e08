"""Every row of the tables of rules: an option that breaks it, and what the error names."""

import pytest

from vanilla_transformer.data import arguments as data_arguments
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.rules import Rule, at_least, check_rules, one_of, within
from vanilla_transformer.run import options as run_options
from vanilla_transformer.run import parsing
from vanilla_transformer.run.options import (
    AveragingArguments,
    ModelArguments,
    PreparationArguments,
    ShowArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.training import training_arguments
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

NOAM = {"lr_scheduler_type": "noam", "warmup_steps": 9}
CORPUS = '{"train": "a.tsv", "weight": 1}'
DATA = [
    (DataArguments, {"max_train_samples": 0}),
    (DataArguments, {"corpora_temperature": 0.0, "corpora": [CORPUS]}),
    (DataArguments, {"corpora_temperature": 2.0}),
    (DataArguments, {"corpora_temperature": 2.0, "corpora": [CORPUS]}),
    (DataArguments, {"dataset_config_name": "a"}),
    (DataArguments, {"source_lang": "en", "test_source": "a.en"}),
]
RUN = [
    (ModelArguments, {"metrics": ["bleu", "rouge"]}),
    (TokenizerArguments, {"target_tokenizer_kind": "letters"}),
    (SubwordArguments, {"sampled_sides": "all"}),
    (ShowArguments, {"show_examples": 0}),
    (PreparationArguments, {"num_proc": 0}),
    (ModelArguments, {"lora_rank": 8}),
    (ModelArguments, {"lora_embeddings": True}),
    (ModelArguments, {"teacher_weight": 0.3}),
    (ModelArguments, {"teacher_weight": 0.0, "teacher": ["a"]}),
    (ModelArguments, {"teacher_temperature": -1.0, "teacher": ["a"]}),
    (PreparationArguments, {"num_proc": 9999}),
    (SubwordArguments, {"bpe_dropout": 2.0}),
    (SubwordArguments, {"unigram_alpha": float("nan")}),
    (AveragingArguments, {"ema_decay": 1.0}),
    (SubwordArguments, {"sampled_sides": "source"}),
    (AveragingArguments, {"average_last": 3, "ema_decay": 0.9}),
]
BEFORE = [
    {"lr_scheduler_type": "steep"},
    {"optim": "adamm"},
    {"optim_args": "a"},
    {"report_to": "wandbb"},
    {"weight_decay": float("inf")},
    {"gradient_accumulation_steps": 0},
    {"generation_max_length": 1},
    {"max_grad_norm": float("nan")},
    {"adam_beta2": 1.0},
    {"data_seed": -1},
    {"num_train_epochs": 0.0},
    {"max_steps": 0},
    {"use_liger_kernel": True},
    {"torch_compile_backend": "tensorrt"},
]
AFTER = [
    {"metric_for_best_model": "bleu", "prediction_loss_only": True},
    {"learning_rate": 1.0, **NOAM},
    {"warmup_steps": 0, "lr_scheduler_type": "noam"},
    {"lr_scheduler_kwargs": {"x": 2}, "lr_scheduler_type": "constant"},
    {"lr_scheduler_kwargs": {"fctor": 2}, **NOAM},
    {"lr_scheduler_kwargs": {"factor": 0}, **NOAM},
    {"muon_momentum": 0.5},
    {"optim_args": "a=1", "optim": "muon"},
    {"fsdp": "full_shard", "optim": "muon"},
    {"fsdp": "full_shard", "use_cpu": True},
    {"fp16": True, "use_cpu": True},
    {"early_stopping_patience": 2},
    {"hub_strategy": "checkpoint", "push_to_hub": True},
    {"simcut_alpha": 3.0, "rdrop_alpha": 5.0},
    {"simcut_alpha": 3.0, "torch_compile": True},
    {"simcut_cutoff": 0.1},
    {"guided_alignment_head": 1},
    {"guided_alignment_weight": 0.0, "guided_alignment": "own"},
    {"guided_alignment": "own", "torch_compile": True},
    {"activation_checkpointing_kwargs": {"use_reentrant": True}, "guided_alignment": "own"},
    {"auto_find_batch_size": True, "max_tokens": 100},
    {"accelerator_config": {"split_batches": True}, "max_tokens": 100},
    {"accelerator_config": {"even_batches": False}},
]


@pytest.fixture
def broken(monkeypatch):
    """The rules that were broken, in order."""
    found = []

    def record(rules, options):
        for rule in rules:
            try:
                check_rules([rule], options)
            except ValueError:
                found.append(rule)
                raise

    for module in (data_arguments, run_options, parsing, training_arguments):
        monkeypatch.setattr(module, "check_rules", record)
    return found


def break_rules(cases):
    """Makes options, each of which is refused; the error names the first one and its value."""
    for kind, changes in cases:
        name, value = next(iter(changes.items()))
        with pytest.raises(ValueError, match=f"`{name}`") as caught:
            kind(**changes)
        assert str(value).split()[-1].strip("'[]{}") in str(caught.value)


def test_the_rules_of_the_data(broken):
    break_rules(DATA)
    assert broken == list(data_arguments.RULES)


def test_the_rules_of_a_run(broken, tmp_path):
    break_rules(RUN)
    assert broken == list(run_options.RULES)
    del broken[:]
    for name, value, message in (
        ("predict_with_generate", "False", "` False has no effect"),
        ("accelerator_config", '{"dispatch_batches": true}', "` has `dispatch_batches` True"),
    ):
        argv = ["--output_dir", str(tmp_path)]
        with pytest.raises(ValueError, match=f"`{name}{message}"):
            parse_arguments([*argv, f"--{name}", value])
    assert broken == list(parsing.RULES)


@pytest.mark.parametrize(
    ("cases", "table"),
    [(BEFORE, training_arguments.RULES_BEFORE), (AFTER, training_arguments.RULES_AFTER)],
    ids=["before", "after"],
)
def test_the_rules_of_a_training(cases, table, broken, tmp_path, monkeypatch):
    monkeypatch.setattr(training_arguments, "find_spec", lambda package: None)
    monkeypatch.setattr(
        training_arguments.TokenBudgetTrainingArguments, "_process_fsdp_args", lambda self: None
    )
    given = {"output_dir": str(tmp_path), "report_to": "none"}
    break_rules(
        (TokenBudgetTrainingArguments, changes | {k: given[k] for k in given.keys() - changes})
        for changes in cases
    )
    assert broken == list(table)


def test_a_rule_is_checked_only_for_what_is_given():
    rules = (
        at_least(5, "max_train_samples"),
        one_of(["en"], "source_lang"),
        Rule(("source_column",), lambda value, options: True, "`{name}`: {options.test_file}"),
    )
    check_rules(rules, DataArguments(source_lang="en", max_train_samples=5))
    with pytest.raises(ValueError, match=r"`source_column`: a\.csv"):
        check_rules(rules, DataArguments(source_column="en", test_file="a.csv"))


@pytest.mark.parametrize(
    ("ends", "legal"), [("[]", [0, 0.5, 1]), ("(]", [0.5, 1]), ("[)", [0, 0.5]), ("()", [0.5])]
)
def test_the_ends_of_an_interval_are_in_it_as_its_brackets_say(ends, legal):
    rule = within(0, 1, "ema_decay", ends=ends)
    values = (-0.1, 0, 0.5, 1, 1.1, float("nan"))
    assert [value for value in values if not rule.is_broken(value, None)] == legal
