"""Stops a training that diverges, before its weights are lost."""

import math
from typing import Any

import torch
from torch import nn

_TOLERATED = 100
"""Steps in a row that the scaler of fp16 may skip while it looks for its scale.

It halves the scale at each, and begins at 2**16: it needs far fewer unless the loss is not finite.
"""


class DivergenceError(ValueError):
    """The loss, the gradient or the weights of a training are not finite."""


class DivergenceCheck:
    """Checks the numbers of a training.

    On a GPU, a step is checked when the next one has been queued, so that nothing waits; a model
    that has diverged in between is not saved (`check_weights`). With the loss scaler of fp16, which
    skips the steps whose gradients overflow, only many such steps in a row count.
    """

    def __init__(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._in_a_row = 0
        self._last: tuple[torch.Tensor, int, torch.cuda.Event] | None = None

    def add_loss(self, loss: torch.Tensor) -> None:
        """Keeps the loss of a batch until its step is checked."""
        self._losses.append(loss.detach())

    def check(self, norm: Any, step: int, has_scaler: bool) -> None:
        """Refuses a loss since the last check, or a norm of the gradient, that is not finite."""
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        values = [*self._losses, torch.as_tensor(0.0 if norm is None else norm)]
        self._losses = []
        numbers = torch.stack([value.to(values[0].device, torch.float32) for value in values])
        if numbers.device.type != "cuda":
            self._check_numbers(numbers, step, has_scaler)
            return
        last = self._last
        copied, event = numbers.to("cpu", non_blocking=True), torch.cuda.Event()
        event.record()
        self._last = copied, step, event
        if last is not None:
            numbers, step, event = last
            event.synchronize()
            self._check_numbers(numbers, step, has_scaler)

    def _check_numbers(self, numbers: torch.Tensor, step: int, has_scaler: bool) -> None:
        *losses, norm = numbers.tolist()
        bad = [loss for loss in losses if not math.isfinite(loss)]
        if not bad and math.isfinite(norm):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if not has_scaler or self._in_a_row > _TOLERATED:
            name, value = ("loss", bad[0]) if bad else ("norm of the gradient", norm)
            raise DivergenceError(f"The {name} at step {step + 1} is {value}. {_REMEDY}")


def check_weights(model: nn.Module, step: int) -> None:
    """Refuses to save weights that are not finite; the DivergenceError names the first."""
    checks = {}
    for name, parameter in model.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        checks[name] = torch.isfinite(local).all()
    devices = [value.device for value in checks.values()]
    are_finite = torch.stack([value.to(devices[0]) for value in checks.values()]).tolist()
    for name, is_finite in zip(checks, are_finite, strict=True):
        if not is_finite:
            raise DivergenceError(f"The weights {name} after step {step} are not finite. {_REMEDY}")


_REMEDY = (
    "The training diverges and stops; its checkpoints are kept. Train on from one of them with "
    "`--model-name-or-path`, or start anew, with a smaller `--learning-rate` or a longer warm-up."
)
