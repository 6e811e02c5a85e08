"""Reads the options of a run from the command line, or from a recipe and the command line."""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self, cast, get_args

from transformers import HfArgumentParser
from transformers.trainer_utils import IntervalStrategy

from vanilla_transformer.data.arguments import DataArguments, option
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.rules import Rule, check_rules, refuse
from vanilla_transformer.run.defaults import CHOSEN_NAMES, ChosenDefaults, Facts, choose_defaults
from vanilla_transformer.run.option_names import NO_ARCHITECTURE_OPTIONS, unknown_option_message
from vanilla_transformer.run.options import (
    AveragingArguments,
    CardArguments,
    ModelArguments,
    PreparationArguments,
    ShowArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.run.recipes import RECIPE_SUFFIXES, read_recipe
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

ARCHITECTURE_FIELDS = tuple(
    name for name in VanillaTransformerConfig.__annotations__ if name not in NO_ARCHITECTURE_OPTIONS
)
"""The fields of the config that are options."""


_CHOSEN = "chosen by the size of its data, or "


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


def _architecture_option(name: str, text: str) -> tuple[str, Any, Any]:
    """Returns name, type and field of an option; None is always allowed, and is its default."""
    annotation = VanillaTransformerConfig.__annotations__[name]
    types = set(get_args(annotation) or (annotation,)) - {type(None)}
    if dict in types:
        types = {dict[str, Any] | str}  # the command line gives JSON
    kind: Any = float if types == {float, int} else types.pop()
    if (default := getattr(VanillaTransformerConfig, name, None)) is not None:
        text += f" Default of a new model: {_CHOSEN * (name in CHOSEN_NAMES)}{default!r}."
    return name, kind | None, option(text.replace("%", "%%"))


_DESCRIPTIONS = field_descriptions()
ArchitectureArguments = make_dataclass(
    "ArchitectureArguments",
    [_architecture_option(name, _DESCRIPTIONS.get(name, "")) for name in ARCHITECTURE_FIELDS],
)
ArchitectureArguments.__doc__ = "Changes the architecture of a new model; None keeps a field."
setattr(ArchitectureArguments, "_argument_group_name", "architecture")  # noqa: B010

TOPICS: Mapping[str, Any] = {
    "model": ModelArguments,
    "architecture": ArchitectureArguments,
    "tokenizer": TokenizerArguments,
    "data": DataArguments,
    "preparation": PreparationArguments,
    "subwords": SubwordArguments,
    "averaging": AveragingArguments,
    "show": ShowArguments,
    "card": CardArguments,
    "training": TokenBudgetTrainingArguments,
}
"""The dataclasses of all options, by their names in `RunArguments`."""


RULES = (
    Rule(
        ("predict_with_generate",),
        lambda value, _: not value,
        "`{name}` {value} has no effect, because a run scores generated texts: leave it out, or "
        "set `prediction_loss_only`.",
    ),
    Rule(
        ("accelerator_config",),
        lambda value, _: bool(value.dispatch_batches),
        "`{name}` has `dispatch_batches` {value.dispatch_batches}, which needs batches that are "
        "padded to one length: leave it out, and each process reads its own.",
    ),
)
"""The rules of a run for the options of its training."""


@dataclass(frozen=True)
class RunArguments:
    """The options of one run: those that are given, and the defaults that it has chosen.

    Attributes:
        architecture: The fields of the config that differ from their defaults, by name.
        command: Words of the command on the model card.
        recipe: File that the options came from; None: no file.
        recipe_text: What the file held; None: no file.
        defaults: What the run has chosen for options that are not given; None: nothing, or the
            data are not known yet.
    """

    model: ModelArguments
    architecture: dict[str, Any]
    tokenizer: TokenizerArguments
    data: DataArguments
    preparation: PreparationArguments
    subwords: SubwordArguments
    averaging: AveragingArguments
    show: ShowArguments
    card: CardArguments
    training: TokenBudgetTrainingArguments
    given: Mapping[str, Any]
    command: tuple[str, ...]
    recipe: Path | None = None
    recipe_text: str | None = None
    defaults: ChosenDefaults | None = None

    def __post_init__(self) -> None:
        both = self.architecture.get("label_smoothing"), self.training.label_smoothing_factor
        refuse(
            (
                self.model.model_name_or_path is not None  # else `eval_strategy` is chosen
                and "eval_steps" in self.given
                and "eval_strategy" not in self.given
                and self.training.eval_strategy == IntervalStrategy.NO,
                "`eval_steps` has no effect without `eval_strategy`: set it to steps.",
            ),
            (
                all(both),
                f"`label_smoothing` {both[0]} has no effect beside `label_smoothing_factor` "
                f"{both[1]}: give one of them.",
            ),
        )

    def with_defaults(self, defaults: ChosenDefaults | None) -> Self:
        """Returns a copy in which chosen values stand for options that are not given."""
        topics = _make_topics(self.given, defaults.options if defaults else {}, tuple(TOPICS))
        return replace(self, **topics, defaults=defaults)


def _make_topics(
    given: Mapping[str, Any], chosen: Mapping[str, Any], filled: Collection[str]
) -> dict[str, Any]:
    """Makes the value of each topic, by its name in `RunArguments`, and checks them."""
    topics: dict[str, Any] = {}
    for name, topic in TOPICS.items():
        options = {**chosen, **given} if name in filled else given
        names = [one.name for one in fields(topic) if one.init and one.name in options]
        topics[name] = topic(**{name: options[name] for name in names})
    topics["architecture"] = architecture_changes(topics["architecture"])
    _check_training(topics["model"], topics["training"])
    return topics


def _check_training(model: ModelArguments, training: TokenBudgetTrainingArguments) -> None:
    check_rules(RULES, training)
    metric = training.metric_for_best_model
    if metric is not None and metric.removeprefix("eval_") not in (
        *model.metrics,
        "loss",
        "gen_len",
    ):
        raise ValueError(
            f"`metric_for_best_model` {metric!r} is not computed: choose from loss, "
            f"{', '.join(model.metrics)}, or add it to `metrics`."
        )


class _OptionParser(HfArgumentParser):
    """A parser whose errors are exceptions: several commands read the options of a run."""

    def error(self, message: str) -> NoReturn:
        option, _, problem = message.partition(": ")
        name = option.partition("--")[2].partition("/")[0]
        raise ValueError(f"`{name}`: {problem.rstrip('.')}.")


def option_parser() -> HfArgumentParser:
    """Returns the parser of all options, each as `--snake_case` and `--kebab-case`."""
    return _OptionParser(
        cast(Any, tuple(TOPICS.values())),
        prog="vanilla-transformer train",
        usage="vanilla-transformer train [RECIPE] [--option value ...]",
        allow_abbrev=False,
    )


def parse_arguments(
    argv: Sequence[str] | None = None, command: Sequence[str] | None = None
) -> RunArguments:
    """Reads the options of a run and checks them.

    Args:
        argv: Arguments; None: those of the process. If the first one ends in .yaml, .yml or .json,
            it is a recipe, and the arguments after it override it.
        command: Words of the command on the model card. None: `vanilla-transformer train` with
            the arguments.

    Raises:
        FileNotFoundError: If the recipe does not exist.
        ValueError: If the recipe cannot be read, an option is unknown, or a value is illegal or of
            the wrong type.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    recipe = read_recipe(argv[0]) if argv and argv[0].endswith(RECIPE_SUFFIXES) else None
    given, unknown = _read_given([*recipe.words, *argv[1:]] if recipe else argv)
    if unknown:
        raise ValueError(unknown_option_message(unknown[0].partition("=")[0]))
    # Until the data are known, the checks of the training see what would be chosen for some data.
    supposed = choose_defaults(given, Facts.before_loading(given))
    return RunArguments(
        **_make_topics(given, supposed.options if supposed else {}, ("training",)),
        given=given,
        command=tuple(command or ("vanilla-transformer", "train", *argv)),
        recipe=recipe.path if recipe else None,
        recipe_text=recipe.text if recipe else None,
    )


def _read_given(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the values of the options that are given, by name, and the words left over."""
    names = [one.name for topic in TOPICS.values() for one in fields(topic) if one.init]
    absent = object()  # stands where a default would: a value may be given that equals it
    start = argparse.Namespace(**dict.fromkeys(names, absent))
    parsed, unknown = option_parser().parse_known_args(words, start)
    given = {name: value for name, value in vars(parsed).items() if value is not absent}
    return given, unknown


def architecture_changes(options: Any) -> dict[str, Any]:
    """Returns the fields of `ArchitectureArguments` that are not None, by name."""
    changes = {name: value for name, value in asdict(options).items() if value is not None}
    if isinstance(text := changes.get("rope_parameters"), str):
        try:
            changes["rope_parameters"] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"`rope_parameters` {text!r} is not valid JSON ({error}): give an object, e.g. "
                '\'{"rope_type": "linear", "factor": 2.0}\'.'
            ) from error
    return changes
