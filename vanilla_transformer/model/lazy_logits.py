"""Output of a training step whose logits are computed only if somebody reads them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput


class LazyTensor:
    """A tensor of an output that is computed when it is read.

    Args:
        compute: Computes it.
        head: The module that `compute` calls, if any: its weights must not have changed by then.
    """

    def __init__(self, compute: Callable[[], torch.Tensor], head: nn.Module | None = None) -> None:
        self._compute = compute
        self._weights = [] if head is None else list(head.parameters())
        self._versions = [weight._version for weight in self._weights]

    def make(self) -> torch.Tensor:
        """Computes the tensor.

        Returns:
            The tensor.

        Raises:
            RuntimeError: If the weights have been trained since, which would change the result.
        """
        if [weight._version for weight in self._weights] != self._versions:
            raise RuntimeError(
                "`logits` of a training step were read after the optimizer's step, which changed "
                "the weights: read them before it, or call `model.set_padding_free(False)`."
            )
        return self._compute()

    def __getattr__(self, name: str) -> Any:
        """Passes on what a tensor can do.

        `dtype` is an exception: Accelerate converts whatever has one, which would compute the
        tensor at every step.
        """
        if name == "dtype" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.make(), name)


@dataclass
class TrainingOutput(Seq2SeqLMOutput):
    """Output whose lazy tensors are computed when read: by name, by index or as a tuple."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if isinstance(value, LazyTensor):
            value = value.make()
            setattr(self, name, value)
        return value

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)  # type: ignore[no-untyped-call]  # it has no types
        return getattr(self, key) if isinstance(value, LazyTensor) else value
