"""Averages the weights of saved models or of the checkpoints of a run."""

import os
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.files.atomic_files import check_output_directory
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.options import REQUIRED, argument, option
from vanilla_transformer.rules import refuse

EXAMPLES = """
vanilla-transformer average runs/multi30k --best 5 --metric bleu --output runs/multi30k-mean
vanilla-transformer average runs/a/checkpoint-900 runs/a/checkpoint-1000 --output runs/mean
"""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints of a run that are averaged."""

    _argument_group_name = "checkpoints of a run"

    last: int | None = option("average the newest N checkpoints", ge=1)
    best: int | None = option("average the N best by --metric", ge=1)
    metric: str = option("validation score for --best: loss, bleu, wer, ...", "loss")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the subcommand."""

    models: list[str] = argument(
        "saved models; with --last or --best the directory of one run", "RUN_OR_MODEL"
    )
    output: str = option("directory of the new model", REQUIRED, metavar="DIR")
    overwrite: bool = option("replace the model in --output", False)
    checkpoints: Checkpoints

    def __post_init__(self) -> None:
        last, best = self.checkpoints.last, self.checkpoints.best
        refuse(
            (last and best, "--last and --best exclude each other"),
            (
                (last or best) and len(self.models) != 1,
                f"--last and --best take the directory of one run, not {len(self.models)}",
            ),
        )


def check(options: Options) -> None:
    """Checks the paths."""
    if options.checkpoints.last or options.checkpoints.best:
        os.stat(options.models[0])
    else:
        for path in options.models:
            check_model_directory(path)
    check_output_directory(options.output, options.overwrite, options.models)


def run(options: Options) -> None:
    """Chooses the models and writes their mean."""
    from vanilla_transformer.training.averaging import average_checkpoints, select_checkpoints

    chosen = [Path(model) for model in options.models]
    choice = options.checkpoints
    if choice.last:
        chosen = select_checkpoints(chosen[0], choice.last)
    elif choice.best:
        chosen = select_checkpoints(chosen[0], choice.best, choice.metric)
    average_checkpoints(chosen, options.output, options.overwrite)
    print(f"{options.output}: the mean of {', '.join(map(str, chosen))}")
