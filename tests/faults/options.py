"""Draws of options of the command, with values of which most are wrong."""

import random
from dataclasses import fields

from vanilla_transformer.run.parsing import TOPICS

VALUES = ("", "0", "1", "2", "-1", "-0.5", "0.5", "1.5", "1e-3", "1e999", "nan", "-inf", "abc")
VALUES += ("true", "False", "None", "no", "steps", "epoch", "{}", "[]", '{"a": 1}', "[1, 2]", "é")
VALUES += ("0x10", "1_0", " 1", "99", "bleu", "wer", "eval_loss", "relu", "/nowhere/at/all")
NOT_DRAWN = ("train_", "validation_", "test_", "dataset_", "output_dir")  # the data
NOT_DRAWN += ("max_steps", "num_train_epochs", "torch_compile", "dataloader_num_workers")  # slow
NOT_DRAWN += ("hub_", "push_", "_n_gpu", "local_rank", "debug")


def names_of_options():
    """All options of `train` but those that name the data, and those that take long."""
    names = (field.name for topic in TOPICS for field in fields(topic))
    return sorted({name for name in names if not name.startswith(NOT_DRAWN)})


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
