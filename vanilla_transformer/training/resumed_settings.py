"""Settings of the optimizer and the schedule that a checkpoint brings along."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.names import MUON
from vanilla_transformer.training.training_record import read_record

_OPTIONS = {
    "initial_lr": "learning_rate",
    "weight_decay": "weight_decay",
    "betas": "adam_beta1` and `adam_beta2",
    "eps": "adam_epsilon",
}
_MUON_OPTIONS = {
    "algorithm": "optim",
    "initial_lr": "muon_learning_rate",
    "momentum": "muon_momentum",
}
_SCHEDULE_OPTIONS = {
    "warmup_steps": "warmup_steps",
    **dict.fromkeys(
        ("factor", "d_model", "patience", "threshold", "min_lrs", "cooldown"),
        "lr_scheduler_kwargs",
    ),
}
_Settings = list[dict[str, Any]]


def optimizer_settings(optimizer: torch.optim.Optimizer) -> _Settings:
    """Returns the settings of each parameter group; None stands for what may change."""
    return [
        {
            name: _as_number(value) if name in _options_of(group) else None
            for name, value in group.items()
        }
        for group in optimizer.param_groups
    ]


def _options_of(group: dict[str, Any]) -> dict[str, str]:
    """Returns the options of the run that stand in a parameter group, by their names there."""
    return {**_OPTIONS, **_MUON_OPTIONS} if group.get("algorithm") == MUON else _OPTIONS


def schedule_settings(schedule: Any) -> dict[str, Any]:
    """Returns the settings of a schedule that its saved state replaces."""
    return {name: value for name, value in vars(schedule).items() if name in _SCHEDULE_OPTIONS}


def check_settings(
    given: tuple[_Settings, dict[str, Any]], loaded: tuple[_Settings, dict[str, Any]], path: str
) -> None:
    """Refuses settings that loading the checkpoint has replaced by others.

    Args:
        given: Settings of the optimizer and of the schedule before loading.
        loaded: The same after loading.
        path: Directory of the checkpoint.

    Raises:
        ValueError: If the checkpoint belongs to another optimizer or has other settings.
    """
    for own, saved in zip(given[0], loaded[0], strict=True):
        if own.keys() - saved.keys() and saved.keys() - own.keys():
            raise ValueError(
                f"The state in {path!r} is that of another optimizer, which has the settings "
                f"{sorted(saved.keys() - {'params'})}: resume with the `--optim` of the training."
            )
        _refuse_changes(own, saved, _options_of(own), path)
    _refuse_changes(given[1], loaded[1], _SCHEDULE_OPTIONS, path)


def check_learning_rate(given: float, optimizer: torch.optim.Optimizer, path: str) -> None:
    """Refuses another learning rate where the optimizer does not keep the one of its beginning.

    The schedules that follow a score change the rate itself, so that only the record of the
    training tells with which rate it began.

    Args:
        given: Learning rate in the arguments.
        optimizer: The optimizer, with its schedule.
        path: Directory of the checkpoint.

    Raises:
        ValueError: If the training of the checkpoint has another learning rate.
    """
    saved = read_record(Path(path)).get("learning_rate", given)
    if "initial_lr" not in optimizer.param_groups[0]:
        _refuse_changes({"initial_lr": given}, {"initial_lr": saved}, _OPTIONS, path)


def _refuse_changes(
    own: dict[str, Any], saved: dict[str, Any], options: dict[str, str], path: str
) -> None:
    for name in own.keys() & saved.keys() & options.keys():
        if own[name] != saved[name]:
            what = "" if name == options[name] else f" ({name})"
            raise ValueError(
                f"`{options[name]}`{what} is {own[name]}, but the training in {path!r} has "
                f"{saved[name]}, which a resumed training keeps: give that value, or train the "
                "model further, in another directory, with `--model_name_or_path`."
            )


@contextmanager
def readable_state(
    path: str, files: str = "optimizer.pt or scheduler.pt", cause: str = "another `--optim`"
) -> Iterator[None]:
    """Explains that a file of a checkpoint cannot be read.

    Args:
        path: Directory of the checkpoint.
        files: Names of the files that are read.
        cause: What the file may belong to, if it is not damaged.

    Raises:
        ValueError: In place of the errors of torch.
    """
    try:
        yield
    except Exception as error:  # the unpickler raises errors of any type on damaged bytes
        raise ValueError(
            f"{files} in {path!r} cannot be loaded ({error}): it is damaged, or belongs to "
            f"{cause}. Use an earlier checkpoint, or the options of the training."
        ) from error


def _as_number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value
