"""Checks of the training arguments that transformers would find late, or not at all."""

import json
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.trainer_utils import SchedulerType

from vanilla_transformer.training.metrics import METRICS

_AT_LEAST_ONE = (
    "gradient_accumulation_steps",
    "eval_accumulation_steps",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "early_stopping_patience",
)
_NOT_NEGATIVE = (
    "learning_rate",
    "muon_learning_rate",
    "weight_decay",
    "adam_epsilon",
    "max_grad_norm",
    "warmup_steps",
    "rdrop_alpha",
    "guided_alignment_weight",
    "dataloader_num_workers",
    "logging_steps",
    "eval_steps",
    "save_steps",
)
_BELOW_ONE = ("adam_beta1", "adam_beta2", "muon_momentum", "label_smoothing_factor")
_MAY_BE_INFINITE = ("max_grad_norm",)
_FEW_STEPS = 10


def check_length_penalty(penalty: float, num_beams: int | None, prefix: str = "") -> None:
    """Refuses a length penalty that changes nothing, or everything.

    Args:
        penalty: Exponent of the length by which a beam search divides scores.
        num_beams: Beam width of the search; None: 1.
        prefix: What the names of both options begin with.

    Raises:
        ValueError: If it is not finite, or there is one beam.
    """
    name = f"`{prefix}length_penalty`"
    if not math.isfinite(penalty):
        raise ValueError(f"{name} is {penalty}: give a finite number.")
    if (num_beams or 1) == 1:
        raise ValueError(
            f"{name} {penalty} has no effect without a beam search: give `{prefix}num_beams` of at "
            "least 2, or leave the penalty out."
        )


def check_numbers(args: TrainingArguments) -> None:
    """Refuses numbers that no training can work with.

    Args:
        args: Arguments of the training; missing ones are not checked.

    Raises:
        ValueError: If a number is out of range or not a number.
    """
    for name in (field.name for field in fields(args)):
        value = getattr(args, name)
        is_bad = isinstance(value, float) and not math.isfinite(value)
        if is_bad and (math.isnan(value) or name not in _MAY_BE_INFINITE):
            raise ValueError(f"`{name}` is {value}: give a finite number.")
    ranges: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
        (_AT_LEAST_ONE, lambda value: value >= 1, "at least 1"),
        (_NOT_NEGATIVE, lambda value: value >= 0, "0 or greater"),
        (_BELOW_ONE, lambda value: 0 <= value < 1, "from 0 to below 1"),
        (("num_train_epochs",), lambda value: value > 0, "above 0"),
        (("max_steps",), lambda value: value >= 1 or value == -1, "at least 1, or -1 for epochs"),
    )
    for names, is_fit, range_text in ranges:
        for name in names:
            value = getattr(args, name, None)
            if isinstance(value, int | float) and not is_fit(value):
                raise ValueError(f"`{name}` is {value}: it must be {range_text}.")


def check_json_options(args: TrainingArguments) -> None:
    """Refuses options that begin like a JSON object and are none.

    Args:
        args: Arguments of the training, before transformers reads the objects.

    Raises:
        ValueError: If an option is not valid JSON.
    """
    for name in args._VALID_DICT_FIELDS:
        text = getattr(args, name)
        needs_object = name == "lr_scheduler_kwargs"
        if isinstance(text, str) and (needs_object or text.startswith("{")):
            try:
                is_object = isinstance(json.loads(text), dict)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"`{name}` {text!r} is not valid JSON ({error}).") from error
            if not is_object:
                raise ValueError(f"`{name}` {text!r} is no JSON object: give e.g. '{{\"a\": 1}}'.")
        elif isinstance(text, str) and text and not Path(text).is_file():
            raise ValueError(f"`{name}` {text!r} is neither a JSON object nor a file: give one.")


def check_accelerator_options(args: TrainingArguments) -> None:
    """Refuses options of Accelerate that do not exist.

    Args:
        args: Arguments of the training, before transformers reads them.

    Raises:
        ValueError: If `accelerator_config` holds an unknown name.
    """
    given: Any = args.accelerator_config
    if isinstance(given, str) and given.startswith("{"):
        given = json.loads(given)
    if not isinstance(given, dict):
        return
    known = [field.name for field in fields(AcceleratorConfig)]
    if unknown := sorted(given.keys() - set(known)):
        raise ValueError(
            f"`accelerator_config` {unknown} are unknown: choose from {', '.join(known)}."
        )


def check_names(args: TrainingArguments) -> None:
    """Refuses options of the optimizer that are none, and unknown programs to report to.

    Args:
        args: Arguments of the training, before transformers reads them.

    Raises:
        ValueError: If an option cannot be understood.
    """
    for part in (args.optim_args or "").replace(" ", "").split(","):
        if args.optim_args and part.count("=") != 1:
            raise ValueError(
                f"`optim_args` {args.optim_args!r} cannot be read: give options as name=value, "
                "with commas between them."
            )
    given = args.report_to
    for name in [given] if isinstance(given, str) else given or []:
        if name not in (*INTEGRATION_TO_CALLBACK, "all", "none"):
            raise ValueError(
                f"`report_to` {name!r} is unknown: choose from all, none, "
                f"{', '.join(sorted(INTEGRATION_TO_CALLBACK))}."
            )


def schedule_options(args: TrainingArguments, num_training_steps: int) -> dict[str, Any]:
    """Returns the options of the schedule, with the one that transformers has no default for.

    Args:
        args: Arguments of the training.
        num_training_steps: Number of steps of the training.

    Returns:
        `lr_scheduler_kwargs`; for "warmup_stable_decay" with `num_decay_steps`, by default the last
        tenth of the training.
    """
    options: dict[str, Any] = dict(args.lr_scheduler_kwargs or {})  # type: ignore[arg-type]
    if args.lr_scheduler_type == SchedulerType.WARMUP_STABLE_DECAY:
        after_warmup = num_training_steps - args.get_warmup_steps(num_training_steps)
        default = min(math.ceil(num_training_steps / 10), max(after_warmup, 1))
        options = {"num_decay_steps": default, **options}
    return options


def check_schedule(args: TrainingArguments) -> None:
    """Makes the schedule for a parameter that is not trained, and refuses what fails.

    Args:
        args: Arguments of the training, with a schedule of transformers.

    Raises:
        ValueError: If `lr_scheduler_kwargs` do not fit the schedule.
    """
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=args.learning_rate)
    try:
        options = schedule_options(args, _FEW_STEPS)
        schedule = get_scheduler(args.lr_scheduler_type, optimizer, 1, _FEW_STEPS, options)
        for _ in range(_FEW_STEPS if isinstance(schedule, LambdaLR) else 0):
            optimizer.step()
            schedule.step()
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(
            f"`lr_scheduler_kwargs` {args.lr_scheduler_kwargs} do not fit the schedule "
            f"{SchedulerType(args.lr_scheduler_type).value!r} ({error}): give the arguments that "
            "transformers documents for it."
        ) from error


def check_direction(metric: str, greater_is_better: bool | None) -> None:
    """Refuses a direction that contradicts a score whose direction is known.

    Args:
        metric: Name of the score, with or without "eval_".
        greater_is_better: The direction that was asked for; None: none.

    Raises:
        ValueError: If the best model would be the worst.
    """
    name = metric.rpartition("_")[2]
    if greater_is_better is None or (name != "loss" and name not in METRICS):
        return
    lower_is_better = name == "loss" or METRICS[name].lower_is_better
    if greater_is_better == lower_is_better:
        kind = "an error rate" if lower_is_better and name != "loss" else "a score"
        kind = "a loss" if name == "loss" else kind
        raise ValueError(
            f"`greater_is_better` is {greater_is_better}, but {metric!r} is {kind}, and "
            f"{'lower' if lower_is_better else 'higher'} is better: leave `greater_is_better` out."
        )
