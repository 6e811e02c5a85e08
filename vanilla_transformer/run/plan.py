"""The plan of a run: everything that is decided before its model is made."""

from copy import copy, deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import DatasetDict
from transformers import GenerationConfig, Seq2SeqTrainer
from transformers.trainer_utils import SaveStrategy

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.run.options import (
    AveragingArguments,
    CardArguments,
    ShowArguments,
    SubwordArguments,
)
from vanilla_transformer.run.output_directory import OutputDirectory
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.search import Search, learned_positions
from vanilla_transformer.training.schedules import SCHEDULES_OF_A_SCORE
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments


@dataclass(frozen=True)
class LengthLimits:
    """The maximum number of tokens of a source and of a target; None: no limit."""

    source: int | None
    target: int | None


@dataclass(frozen=True)
class WatchedMetric:
    """The metric that selects the best checkpoint; None: the Trainer's own choice."""

    name: str | None
    greater_is_better: bool | None


@dataclass(frozen=True)
class RunPlan:
    """What a run does. It is made once; nothing changes it or what it was made from.

    Attributes:
        directory: Output directory, with the checkpoint to resume from.
        start: Saved model or checkpoint whose weights the run starts from; None: a new model.
        splits: The splits in use.
        limits: Length limits of the training and evaluation texts.
        search: How text is generated.
        watched: Metric that selects the best checkpoint.
        attention: Attention implementation.
        training: Training arguments with these decisions filled in, for the Trainer.
        metrics: Names of the scores, the main one first.
    """

    directory: OutputDirectory
    start: str | None
    splits: DatasetDict
    limits: LengthLimits
    search: Search
    watched: WatchedMetric
    attention: str
    training: TokenBudgetTrainingArguments
    metrics: tuple[str, ...]
    subwords: SubwordArguments
    averaging: AveragingArguments
    show: ShowArguments
    card: CardArguments
    command: tuple[str, ...]
    recipe: Path | None
    recipe_text: str | None


def starting_point(arguments: RunArguments, directory: OutputDirectory) -> str | None:
    """Returns the checkpoint or saved model that a run starts from; None: it starts a new model.

    Args:
        arguments: Options of the run.
        directory: Output directory.
    """
    if directory.checkpoint is not None:
        return str(directory.checkpoint.path)
    return arguments.model.model_name_or_path


def splits_in_use(arguments: RunArguments, data: DatasetDict, start: str | None) -> DatasetDict:
    """Selects the splits that `do_train`, `do_eval` and `do_predict` allow.

    Args:
        arguments: Options of the run.
        data: The splits that were loaded.
        start: Saved model or checkpoint that the run starts from.

    Returns:
        The splits of the run.

    Raises:
        ValueError: If a split is missing, if nothing is left to do, or if nothing is trained and
            there is no saved model to score, or nothing to push to the Hub.
    """
    training = arguments.training
    wanted = {
        "train": ("`do_train`", training.do_train),
        "validation": ("`do_eval` or `eval_strategy`", training.do_eval),
        "test": ("`do_predict`", training.do_predict),
    }
    for split, (name, value) in wanted.items():
        if value and split not in data:
            raise ValueError(f"{name} needs {split} data: give the data, or leave the option out.")
    splits = DatasetDict(
        {name: rows for name, rows in data.items() if wanted[name][1] is not False}
    )
    if not splits:
        raise ValueError(
            "`do_train`, `do_eval` and `do_predict` leave nothing to do: allow one of them."
        )
    if "train" not in splits and start is None:
        raise ValueError(
            "This run trains nothing and has no saved model to score: give training data (without "
            "`--do_train False`), or `--model_name_or_path`."
        )
    if "train" not in splits and training.push_to_hub:
        raise ValueError(
            "`push_to_hub` pushes a trained model, but this run trains nothing: leave the option "
            "out, or push the saved model with `model.push_to_hub`."
        )
    return splits


def make_plan(
    arguments: RunArguments,
    directory: OutputDirectory,
    splits: DatasetDict,
    config: VanillaTransformerConfig,
    settings: GenerationConfig,
) -> RunPlan:
    """Makes the plan of a run.

    Args:
        arguments: Options of the run.
        directory: Output directory.
        splits: The splits in use.
        config: Config of the model.
        settings: Generation config that the model has before the run changes it.

    Returns:
        The plan.
    """
    start = starting_point(arguments, directory)
    search = plan_search(arguments.training, config, settings)
    watched = watched_metric(arguments)
    positions = learned_positions(config)
    given = (arguments.data.max_source_length, arguments.data.max_target_length)
    return RunPlan(
        directory=directory,
        start=start,
        splits=splits,
        limits=LengthLimits(*(_smaller_limit(limit, positions) for limit in given)),
        search=search,
        watched=watched,
        attention=arguments.model.attn_implementation or default_attention(arguments.training),
        training=_resolved_training_arguments(arguments.training, search, watched),
        metrics=tuple(arguments.model.metrics),
        subwords=arguments.subwords,
        averaging=arguments.averaging,
        show=arguments.show,
        card=arguments.card,
        command=arguments.command,
        recipe=arguments.recipe,
        recipe_text=arguments.recipe_text,
    )


def _smaller_limit(limit: int | None, positions: int | None) -> int | None:
    return min((number for number in (limit, positions) if number is not None), default=None)


def plan_search(
    training: TokenBudgetTrainingArguments,
    config: VanillaTransformerConfig,
    settings: GenerationConfig,
) -> Search:
    """Decides how text is generated, in validation and by a plain `generate()` of the saved model.

    The settings of a saved model, or of the file in `training.generation_config`, are kept unless
    `training` has others.

    Args:
        training: Training arguments.
        config: Config of the model.
        settings: Generation config that the model has before the run changes it.

    Returns:
        The search.

    Raises:
        ValueError: If the settings ask for several outputs per source, if `Search` refuses them, or
            if they could not be saved with the model.
    """
    settings = deepcopy(settings)
    given: Any = training.generation_config
    if given is not None:
        try:
            loaded = Seq2SeqTrainer.load_generation_config(given)
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(
                f"`generation_config` {str(given)!r} cannot be loaded "
                f"({' '.join(str(error).split())}): give a directory or file of saved settings."
            ) from error
        settings.update(**loaded.to_diff_dict())
    if (settings.num_return_sequences or 1) != 1:
        raise ValueError(
            f"The generation config has `num_return_sequences` {settings.num_return_sequences}, "
            "but an evaluation scores one output per source. Correct the file in "
            "`generation_config`, or that of the saved model."
        )
    search = Search.of_training(training, settings, learned_positions(config))
    search.to_save()  # or saving would fail after the training
    return search


def watched_metric(arguments: RunArguments) -> WatchedMetric:
    """Chooses the metric that selects the best checkpoint.

    A given metric stays. Otherwise the first of `metrics` is watched where a best checkpoint is
    needed, except with a schedule that follows the loss.

    Args:
        arguments: Options of the run.

    Returns:
        The metric and its direction.
    """
    training, first = arguments.training, arguments.model.metrics[0]
    selects = (
        training.load_best_model_at_end
        or training.save_strategy == SaveStrategy.BEST
        or training.early_stopping_patience is not None
        or arguments.averaging.average_best is not None
    )
    follows_loss = training.lr_scheduler_type in SCHEDULES_OF_A_SCORE
    if selects and not follows_loss and not training.metric_is_chosen:
        return WatchedMetric(first, first not in ERROR_RATES)
    return WatchedMetric(training.metric_for_best_model, training.greater_is_better)


def default_attention(training: TokenBudgetTrainingArguments) -> str:
    """Returns the attention kernel that trains fastest: on a CPU, sdpa is slow in half precision.

    Args:
        training: Device and precision of the training.
    """
    is_slow = training.device.type == "cpu" and (training.bf16 or training.fp16)
    return "eager" if is_slow else "sdpa"


def _resolved_training_arguments(
    training: TokenBudgetTrainingArguments, search: Search, watched: WatchedMetric
) -> TokenBudgetTrainingArguments:
    """Returns a copy of the training arguments with the decisions of the plan."""
    resolved = copy(training)  # `dataclasses.replace` would check and derive all fields again
    resolved.predict_with_generate = True
    resolved.generation_config = None  # or Trainer would replace all of the model's settings
    resolved.generation_num_beams = search.num_beams
    resolved.generation_max_length = search.settings.max_length
    resolved.metric_for_best_model = watched.name
    resolved.greater_is_better = watched.greater_is_better
    return resolved
