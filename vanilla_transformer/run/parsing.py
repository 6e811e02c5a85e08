"""Reads the options of a run from the command line, or from a recipe and the command line."""

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from transformers import HfArgumentParser

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.run.architecture import ArchitectureArguments, architecture_changes
from vanilla_transformer.run.arguments import (
    AveragingArguments,
    CardArguments,
    ModelArguments,
    ShowArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.run.command_line import run_command
from vanilla_transformer.run.recipes import RECIPE_SUFFIXES, read_recipe
from vanilla_transformer.training.option_checks import check_direction
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

_DATACLASSES = (
    ModelArguments,
    ArchitectureArguments,
    TokenizerArguments,
    DataArguments,
    SubwordArguments,
    AveragingArguments,
    ShowArguments,
    CardArguments,
    TokenBudgetTrainingArguments,
)
_SMALLEST_SEARCH = {"generation_max_length": 2, "generation_num_beams": 1}


@dataclass(frozen=True)
class RunArguments:
    """The options of one run, as they were given.

    Attributes:
        architecture: The fields of the config that were given, by name.
        command: Words of the command on the model card.
        recipe: File that the options came from; None: no file.
        recipe_text: What the file held; None: no file.
    """

    model: ModelArguments
    architecture: dict[str, Any]
    tokenizer: TokenizerArguments
    data: DataArguments
    subwords: SubwordArguments
    averaging: AveragingArguments
    show: ShowArguments
    card: CardArguments
    training: TokenBudgetTrainingArguments
    command: tuple[str, ...]
    recipe: Path | None = None
    recipe_text: str | None = None


def option_parser() -> HfArgumentParser:
    """Returns the parser of all options, each as `--snake_case` and `--kebab-case`."""
    return HfArgumentParser(
        cast(Any, _DATACLASSES),
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
        command: Words of the command on the model card. None: the command that repeats the run.

    Returns:
        The options.

    Raises:
        FileNotFoundError: If the recipe does not exist.
        ValueError: If the recipe cannot be read, an option is unknown, or a value is illegal.
        SystemExit: If a value has the wrong type.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    command = run_command(argv) if command is None else command
    recipe = read_recipe(argv[0]) if argv and argv[0].endswith(RECIPE_SUFFIXES) else None
    words = [*recipe.words, *argv[1:]] if recipe else argv
    parser = option_parser()
    parsed: Any = parser.parse_args_into_dataclasses(
        words, return_remaining_strings=True, look_for_args_file=False
    )
    model, architecture, *topics, training, unknown = parsed
    if unknown:
        raise ValueError(_unknown_option_message(unknown[0].partition("=")[0]))
    _check_metric_is_computed(training.metric_for_best_model, model.metrics)
    if not training.metric_is_chosen:
        check_direction(model.metrics[0], training.chosen_direction)
    for name, smallest in _SMALLEST_SEARCH.items():
        if (value := getattr(training, name)) is not None and value < smallest:
            raise ValueError(f"`{name}` is {value}: it must be at least {smallest}.")
    changes = architecture_changes(architecture)
    origin = (recipe.path, recipe.text) if recipe else ()
    return RunArguments(*[model, changes, *topics, training, tuple(command), *origin])


def _unknown_option_message(word: str) -> str:
    if not word.startswith("--"):
        return (
            f"The argument {word!r} is unexpected: give options as `--name value`, and a recipe "
            "(.yaml, .yml or .json) as the first argument."
        )
    known = [f"--{option.name}" for topic in _DATACLASSES for option in fields(cast(Any, topic))]
    close = difflib.get_close_matches(word.replace("-", "_").replace("__", "--", 1), known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`--help` lists the options."
    return f"The option `{word}` is unknown: {hint}"


def _check_metric_is_computed(metric: str | None, computed: list[str]) -> None:
    if metric is not None and metric.removeprefix("eval_") not in (*computed, "loss", "gen_len"):
        raise ValueError(
            f"`metric_for_best_model` {metric!r} is not computed: choose from loss, "
            f"{', '.join(computed)}, or add it to `metrics`."
        )
