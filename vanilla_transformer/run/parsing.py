"""Reads the options of a run from the command line, or from a recipe and the command line."""

import argparse
import inspect
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from typing import Any, NoReturn, Self, cast, get_args

from transformers import HfArgumentParser

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.options import option
from vanilla_transformer.rules import refuse
from vanilla_transformer.run.defaults import CHOSEN_NAMES, RunFacts, choose_defaults
from vanilla_transformer.run.options import (
    CardArguments,
    ModelArguments,
    PreparationArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.run.recipes import RECIPE_SUFFIXES, Recipe, read_recipe
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

_DECIDED_OTHERWISE = (  # by a tokenizer or a training, or they are not for a translator
    *("vocab_size", "decoder_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("decoder_start_token_id", "forced_eos_token_id", "is_encoder_decoder", "use_cache"),
    *("alignment_heads", "classifier_pooling", "classifier_dropout"),
)
ARCHITECTURE_FIELDS = tuple(
    name for name in VanillaTransformerConfig.__annotations__ if name not in _DECIDED_OTHERWISE
)
"""The fields of the config that are options."""


def field_descriptions() -> dict[str, str]:
    """Returns the description of each field, on one line, from the docstring of the config."""
    text = inspect.cleandoc(VanillaTransformerConfig.__doc__ or "")
    block = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    entry = re.compile(r"^ {4}(\w[\w, ]*): (.*?)(?=^ {4}\S|\Z)", re.DOTALL | re.MULTILINE)
    return {
        name: " ".join(description.split())
        for names, description in entry.findall(block[1] if block else "")
        for name in names.split(", ")
    }


def _architecture_option(name: str, description: str) -> tuple[str, Any, Any]:
    """Returns name, type and field of an option; None is always allowed, and is its default."""
    annotation = VanillaTransformerConfig.__annotations__[name]
    types = set(get_args(annotation) or (annotation,)) - {type(None)}
    default = getattr(VanillaTransformerConfig, name, None)
    declared = option(f"{description} Default: {default!r}.".replace("%", "%%"))
    if dict in types:
        return name, json.loads, declared  # argparse calls the type with the text
    kind: Any = float if types == {float, int} else types.pop()
    return name, kind | None, declared


_DESCRIPTIONS = field_descriptions()
ArchitectureArguments = make_dataclass(
    "ArchitectureArguments",
    [_architecture_option(name, _DESCRIPTIONS[name]) for name in ARCHITECTURE_FIELDS],
    namespace={
        "__doc__": "Changes the architecture of a new model; None keeps a field.",
        "_argument_group_name": "architecture of a new model",
    },
)

TOPICS: Mapping[str, Any] = {
    "data": DataArguments,
    "model": ModelArguments,
    "architecture": ArchitectureArguments,
    "tokenizer": TokenizerArguments,
    "training": TokenBudgetTrainingArguments,
    "preparation": PreparationArguments,
    "subwords": SubwordArguments,
    "card": CardArguments,
}
"""The dataclasses of all options, by their names in `RunArguments`."""


@dataclass(frozen=True)
class RunArguments:
    """The options of one run: those that are given, and the defaults that it has chosen."""

    model: ModelArguments
    architecture: dict[str, Any]  # the fields of the config that differ from their defaults
    tokenizer: TokenizerArguments
    data: DataArguments
    preparation: PreparationArguments
    subwords: SubwordArguments
    card: CardArguments
    training: TokenBudgetTrainingArguments
    given: Mapping[str, Any]
    command: tuple[str, ...]  # on the model card
    recipe: Recipe | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)  # empty before the data are known

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """Returns a copy in which chosen values stand for options that are not given."""
        topics = _make_topics(self.given, defaults, tuple(TOPICS))
        return replace(self, **topics, defaults=defaults)

    def with_options(self, **options: Any) -> Self:
        """Returns a copy in which these options are given, for which nothing is chosen yet."""
        return replace(self, given={**self.given, **options}).with_defaults({})


def _make_topics(
    given: Mapping[str, Any], chosen: Mapping[str, Any], filled: Collection[str]
) -> dict[str, Any]:
    """Makes and checks the value of each topic; chosen options count in those that are `filled`."""
    topics: dict[str, Any] = {}
    for name, topic in TOPICS.items():
        options = {**chosen, **given} if name in filled else given
        names = [field.name for field in fields(topic) if field.init and field.name in options]
        topics[name] = topic(**{name: options[name] for name in names})
    changes = asdict(topics["architecture"])
    topics["architecture"] = {n: value for n, value in changes.items() if value is not None}
    computed = (*topics["model"].metrics, "loss", "gen_len")
    metric = topics["training"].metric_for_best_model
    refuse(
        (  # Trainer would refuse it after the first evaluation
            metric is not None and metric.removeprefix("eval_") not in computed,
            f"`metric_for_best_model` {metric!r} is not computed: choose from loss, "
            f"{', '.join(topics['model'].metrics)}, or add it to `metrics`.",
        ),
        (
            {"minutes", "max_steps"} <= given.keys(),
            "`minutes` and `max_steps` both say when the training ends: leave one of them out.",
        ),
    )
    return topics


class _OptionParser(HfArgumentParser):
    """A parser whose errors are exceptions: several commands read the options of a run."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def option_parser() -> HfArgumentParser:
    """Returns the parser of all options, each as `--snake_case` and `--kebab-case`."""
    parser = _OptionParser(
        cast(Any, tuple(TOPICS.values())),
        prog="vanilla-transformer train",
        usage="vanilla-transformer train [RECIPE] [--option value ...]",
        allow_abbrev=False,
    )
    for action in parser._actions:
        if action.dest in CHOSEN_NAMES:
            action.help = f"{action.help} Chosen for a new model."
    return parser


def parse_arguments(argv: Sequence[str], command: Sequence[str] | None = None) -> RunArguments:
    """Reads the options of a run and checks them.

    Args:
        argv: Arguments. If the first one ends in .yaml, .yml or .json, it is a recipe, and the
            arguments after it override it.
        command: Words of the command on the model card. None: `vanilla-transformer train` with
            the arguments.
    """
    recipe = read_recipe(argv[0]) if argv and argv[0].endswith(RECIPE_SUFFIXES) else None
    words = [*recipe.words, *argv[1:]] if recipe else argv
    names = [field.name for topic in TOPICS.values() for field in fields(topic) if field.init]
    absent = object()  # stands where a default would: a value may be given that equals it
    start = argparse.Namespace(**dict.fromkeys(names, absent))
    parsed = option_parser().parse_args(words, start)
    given = {name: value for name, value in vars(parsed).items() if value is not absent}
    # Until the data are known, the checks of the training see what would be chosen for some data.
    facts = RunFacts.on_this_machine(1, 0, has_validation=True, use_cpu=bool(given.get("use_cpu")))
    supposed = choose_defaults(given, facts)
    return RunArguments(
        **_make_topics(given, supposed, ("training",)),
        given=given,
        command=tuple(command or ("vanilla-transformer", "train", *argv)),
        recipe=recipe,
    )
