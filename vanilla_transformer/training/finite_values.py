"""Stops a training that diverges, before its weights are lost."""

from typing import Any

import torch
from torch import nn

_TOLERATED = 100  # steps in a row that the scaler of fp16 may skip while it looks for its scale


class DivergenceError(ValueError):
    """The loss, the gradient or the weights of a training are not finite."""


class FiniteValues:
    """Checks the numbers of a training.

    With the loss scaler of fp16, which skips the steps whose gradients overflow, only many such
    steps in a row count.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def check(self, what: str, value: Any, step: int, has_scaler: bool) -> None:
        """Refuses a number, or a tensor of one, that is not finite; `step` steps are complete."""
        if value is None or bool(torch.isfinite(torch.as_tensor(value)).all()):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if not has_scaler or self._in_a_row > _TOLERATED:
            raise DivergenceError(f"The {what} at step {step + 1} is {float(value)}. {_REMEDY}")


def check_weights(model: nn.Module, step: int) -> None:
    """Refuses to save weights that are not finite; the DivergenceError names the first."""
    for name, parameter in model.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if not bool(torch.isfinite(local).all()):
            raise DivergenceError(f"The weights {name} after step {step} are not finite. {_REMEDY}")


_REMEDY = (
    "The training diverges and stops; its checkpoints are kept. Train on from one of them with "
    "`--model_name_or_path`, or start anew, with a smaller `--learning_rate` or a longer warm-up."
)
