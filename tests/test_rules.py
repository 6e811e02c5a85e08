"""The tables of rules: options that break one are refused by name."""

import pytest

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.rules import Rule, check_rules
from vanilla_transformer.run.options import (
    ModelArguments,
    PreparationArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

CORPUS = '{"train": "a.tsv", "weight": 1}'
DATA = [
    (DataArguments, {"max_train_samples": 0}),
    (DataArguments, {"corpora_temperature": 0.0, "corpora": [CORPUS]}),
    (DataArguments, {"corpora_temperature": 2.0, "corpora": [CORPUS]}),
]
RUN = [
    (ModelArguments, {"metrics": ["bleu", "rouge"]}),
    (TokenizerArguments, {"target_tokenizer_kind": "letters"}),
    (ModelArguments, {"show_examples": 0}),
    (PreparationArguments, {"num_proc": 0}),
    (ModelArguments, {"lora_rank": 8}),
    (ModelArguments, {"teacher_weight": 0.0, "teacher": ["a"]}),
    (SubwordArguments, {"bpe_dropout": 2.0}),
    (ModelArguments, {"ema_decay": 1.0}),
]
TRAINING = [
    (TokenBudgetTrainingArguments, changes)
    for changes in (
        {"max_tokens": 0},
        {"muon_learning_rate": -1.0},
        {"simcut_cutoff": 1.0},
        {"warmup_steps": 0, "lr_scheduler_type": "noam"},
        {"simcut_alpha": 3.0, "rdrop_alpha": 5.0},
        {"simcut_alpha": 3.0, "torch_compile": True},
        {"guided_alignment": "links", "torch_compile": True},
        {"activation_checkpointing_kwargs": {"use_reentrant": True}, "guided_alignment": "links"},
    )
]


@pytest.mark.parametrize(
    ("kind", "changes"), [*DATA, *RUN, *TRAINING], ids=lambda value: str(value)[:40]
)
def test_an_option_that_breaks_a_rule_is_named_with_its_value(kind, changes, tmp_path):
    name, value = next(iter(changes.items()))
    output = {"output_dir": str(tmp_path)} if kind is TokenBudgetTrainingArguments else {}
    with pytest.raises(ValueError, match=f"`{name}`") as caught:
        kind(**changes, **output)
    assert str(value).split()[-1].strip("'[]{}") in str(caught.value)


def test_a_rule_is_checked_only_for_what_is_given():
    rules = [Rule(("source_column",), lambda value, options: True, "`{name}`: {options.test_file}")]
    check_rules(rules, DataArguments(target_column="en", max_train_samples=5))
    with pytest.raises(ValueError, match=r"`source_column`: a\.csv"):
        check_rules(rules, DataArguments(source_column="en", test_file="a.csv"))
