"""Trains a new model, or a saved one further, on pairs of texts; evaluates and saves it."""

import argparse
import ast
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from vanilla_transformer.command_line import (
    UsageError,
    option_of,
    read_some_options,
    spell_with_hyphens,
    unknown_option,
    usage_errors,
)
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.options import REQUIRED, option
from vanilla_transformer.run.options import ModelArguments
from vanilla_transformer.run.recipes import expand_recipe

if TYPE_CHECKING:
    from vanilla_transformer.run.arguments import RunArguments

EXAMPLES = """
vanilla-transformer train --train-source train.en --train-target train.de \\
    --validation-source val.en --validation-target val.de --output-dir runs/first
vanilla-transformer train scripts/recipes/multi30k.yaml --seed 2 --output-dir runs/second
accelerate launch --num_processes 2 -m vanilla_transformer train recipe.yaml
"""
MOST_USED = {
    *("train_file", "train_source", "train_target", "validation_source", "validation_target"),
    *("test_source", "test_target", "source_language", "target_language", "corpora"),
    *("model_name_or_path", "size", "minutes", "overwrite", "metrics", "vocab_size"),
    *("d_model", "encoder_layers", "decoder_layers", "dropout", "label_smoothing"),
    *("norm_placement", "position_embedding_type"),
    *("output_dir", "max_tokens", "learning_rate", "num_train_epochs", "max_steps", "use_cpu"),
    *("resume_from_checkpoint", "seed", "help", "help_all", "dry_run"),
}
"""The options that the short help shows: those of the guides."""
HELP = {"-h", "--help", "--help-all"}
DRY_RUN = ("--dry-run", "--dry_run")
_DECLARED = (
    *("data/arguments.py", "run/options.py", "training/training_arguments.py"),
    "model/configuration_vanilla_transformer.py",
)
"""The files that declare the options of a training, besides those of transformers."""
_BEGAN = monotonic()
"""When the command began; `--minutes` count the imports, too."""
ENVIRONMENT = {
    "THP_MEM_ALLOC_ENABLE": "1",  # torch uses large memory pages on a CPU (Linux)
}
"""Environment variables of a training, unless they are set."""


@dataclass(frozen=True)
class Paths:
    """The options that are checked before torch is imported."""

    data: DataArguments
    model: ModelArguments
    output_dir: str = option("directory that the run writes to", REQUIRED)
    resume_from_checkpoint: str | None = option("checkpoint that the run goes on from")


def parse(words: Sequence[str]) -> Sequence[str]:
    """Keeps the words: `run` reads them, because the options are those of transformers too."""
    names = {*_declared_names(), "help", "help_all", "verbose", "dry_run"}
    known = {option_of(f"{before}{name}") for name in names for before in ("", "no_")}
    with usage_errors():
        expanded, _ = expand_recipe(words)
    if problem := unknown_option(spell_with_hyphens(expanded), known):
        raise UsageError(problem)
    return words


def check(words: Sequence[str]) -> None:
    """Checks the data, the saved model and the output directory."""
    if HELP & set(words):
        return
    from vanilla_transformer.training.store import resolve_output_directory

    paths = check_data(words)
    if paths.model.model_name_or_path is not None:
        check_model_directory(paths.model.model_name_or_path)
    if (resumed := paths.resume_from_checkpoint or "").lower() != "true":  # it may warn, once
        resolve_output_directory(paths.output_dir, resumed, paths.model.overwrite)


def check_data(words: Sequence[str]) -> Paths:
    """Checks the data of a training, and returns the options that name paths."""
    expanded, _ = expand_recipe(words)
    paths, _ = read_some_options(Paths, expanded)
    paths.data.check_files()
    return paths


def _declared_names() -> Iterator[str]:
    """Yields the fields of the classes that declare options; to import these takes seconds."""
    library = find_spec("transformers")
    assert library is not None
    assert library.origin is not None
    files = [Path(__file__).parents[1] / name for name in _DECLARED]
    files += Path(library.origin).parent.glob("training_args*.py")
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id


def run(words: Sequence[str]) -> None:
    """Reads all options and carries out the run, with its messages on standard error."""
    set_environment()
    if asked := HELP & set(words):  # before extras are needed
        print_help(with_all="--help-all" in asked)
        return
    import torch.distributed

    from vanilla_transformer.run import fitting, training_run

    given = [word for word in words if word not in DRY_RUN]
    arguments = read_arguments(given)
    with _sigterm_as_exit(training_run.STATUS_OF_SIGTERM):
        if len(given) < len(words):
            fitting.dry_run(arguments)
        else:
            training_run.run(arguments, began=_BEGAN)
    if torch.distributed.is_initialized():  # its threads would abort a process that just ends
        torch.distributed.destroy_process_group()


def read_arguments(words: Sequence[str]) -> "RunArguments":
    """Reads the options of a run, and shows the messages of the run."""
    from vanilla_transformer.run.arguments import parse_arguments
    from vanilla_transformer.run.training_run import show_messages

    arguments = parse_arguments(words)
    show_messages(arguments)
    return arguments


def set_environment() -> None:
    """Sets the variables of `ENVIRONMENT` that nobody has set."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def print_help(with_all: bool) -> None:
    """Prints all options, or those of `MOST_USED`."""
    from vanilla_transformer.run.arguments import option_parser

    parser = option_parser(
        f"{__doc__}\n\nRECIPE is a YAML or JSON file of options, as `name: value`; options after "
        "it override it.\nWhat is chosen for a new model fits its data and the device.",
        EXAMPLES,
    )
    parser.add_argument(
        DRY_RUN[0], action="store_true", help="say what would be trained, how large and how long"
    )
    parser.add_argument("--help-all", action="store_true", help="show all options and exit")
    if not with_all:
        parser.epilog = f"{parser.epilog}\n\nThese are the most used options; --help-all shows all."
        for action in parser._actions:
            if action.dest not in MOST_USED:
                action.help = argparse.SUPPRESS
    parser.print_help()


@contextmanager
def _sigterm_as_exit(status: int) -> Iterator[None]:
    """Ends the process in order on SIGTERM, as on Ctrl-C: a training says what it has saved."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(status)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
