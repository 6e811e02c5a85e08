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
from vanilla_transformer.training.option_checks import check_length_penalty
from vanilla_transformer.training.schedules import SCHEDULES_OF_A_SCORE
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

_DEFAULT_MAX_LENGTH = 256


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
class Search:
    """How text is generated, in validation and by a plain `generate()` of the saved model.

    Attributes:
        settings: Generation config that is saved with the model.
        num_beams: Beams of the run's evaluations; None: those of `settings`.
        max_length: Maximum number of generated tokens of the run's evaluations; None: that of
            `settings`.
    """

    settings: GenerationConfig
    num_beams: int | None
    max_length: int | None


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
    search = plan_search(arguments.training, config, settings, is_new=start is None)
    watched = watched_metric(arguments)
    positions = position_limit(config)
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


def position_limit(config: VanillaTransformerConfig) -> int | None:
    """Returns the number of learned positions, in tokens; None: positions of any length."""
    learned = config.position_embedding_type == "learned"
    return config.max_position_embeddings if learned else None


def _smaller_limit(limit: int | None, positions: int | None) -> int | None:
    return min((number for number in (limit, positions) if number is not None), default=None)


def plan_search(
    training: TokenBudgetTrainingArguments,
    config: VanillaTransformerConfig,
    settings: GenerationConfig,
    is_new: bool,
) -> Search:
    """Decides how text is generated.

    The settings of a saved model, or of the file in `training.generation_config`, are kept unless
    `training` has others.

    Args:
        training: Training arguments.
        config: Config of the model.
        settings: Generation config that the model has before the run changes it.
        is_new: Whether the model is new.

    Returns:
        The settings, which are saved with the model, and what the Trainer needs.

    Raises:
        ValueError: If the settings ask for no beam, for several outputs per source, or for no
            token after the start token, if a length penalty is given without a beam search, or if
            the settings contradict each other.
    """
    settings = deepcopy(settings)
    beams, max_length = training.generation_num_beams, training.generation_max_length
    if (given := training.generation_config) is not None:
        settings.update(**_load_settings(given).to_diff_dict())
    elif is_new:
        beams = beams or 1
    _check_settings(settings, beams)
    if settings.max_length is None and settings.max_new_tokens is None:
        max_length = max_length or _DEFAULT_MAX_LENGTH
    if max_length is not None:
        max_length = _smaller_limit(max_length, position_limit(config))
        settings.update(max_length=max_length, max_new_tokens=None)
    _check_length(settings, config)
    if beams is not None:
        was_beam_search = (settings.num_beams or 1) > 1
        keeps_stop = beams > 1 and was_beam_search
        stop = settings.early_stopping if keeps_stop else beams > 1
        settings.update(num_beams=beams, early_stopping=stop)
        if beams == 1:
            settings.update(length_penalty=None)
    if (penalty := training.generation_length_penalty) is not None:
        check_length_penalty(penalty, settings.num_beams, "generation_")
        settings.update(length_penalty=penalty)
    _check_can_be_saved(settings)
    return Search(settings, beams, max_length)


def _load_settings(given: Any) -> GenerationConfig:
    """Loads the settings that `generation_config` names."""
    try:
        return Seq2SeqTrainer.load_generation_config(given)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"`generation_config` {str(given)!r} cannot be loaded ({_one_line(error)}): "
            "give a directory or file of saved settings."
        ) from error


def _check_settings(settings: GenerationConfig, beams: int | None) -> None:
    """Refuses settings of a file or a saved model with which the outputs cannot be scored."""
    where = "Correct the file in `generation_config`, or that of the saved model."
    if (settings.num_return_sequences or 1) != 1:
        raise ValueError(
            f"The generation config has `num_return_sequences` {settings.num_return_sequences}, "
            f"but an evaluation scores one output per source. {where}"
        )
    if beams is None and settings.num_beams is not None and settings.num_beams < 1:
        raise ValueError(
            f"The generation config has `num_beams` {settings.num_beams}: it must be at least 1. "
            f"{where}"
        )


def _check_can_be_saved(settings: GenerationConfig) -> None:
    """Refuses settings with which saving the model would fail, after the training."""
    try:
        deepcopy(settings).validate(strict=True)
    except ValueError as error:
        raise ValueError(
            f"The settings of `generate()` contradict each other ({_one_line(error)}): correct the "
            "file in `generation_config`, or that of the saved model."
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _check_length(settings: GenerationConfig, config: VanillaTransformerConfig) -> None:
    """Refuses lengths that leave no room after the start token."""
    if settings.max_length is None or settings.max_length >= 2:
        return
    name, value = "max_length", settings.max_length
    if (positions := position_limit(config)) is not None and positions < 2:
        name, value = "max_position_embeddings", positions
    raise ValueError(
        f"`{name}` is {value}, which leaves no room for a token after the start token: give at "
        "least 2."
    )


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
    resolved.generation_max_length = search.max_length
    resolved.metric_for_best_model = watched.name
    resolved.greater_is_better = watched.greater_is_better
    return resolved
