"""Training losses: means over all labels of an optimizer step, however it is accumulated.

The sums are divided by `num_items_in_batch`, the number of labels over all steps of gradient
accumulation (Trainer passes it), or, where it is None, by the number of labels in this batch. Where
both are 0, there is nothing to predict, and the loss is 0.

Over a large vocabulary the loss is computed in chunks, without full logits; the logits of such a
step are computed only if somebody reads them.

Arguments that the functions share:

    logits: (batch, target_len, vocab).
    hidden_states: (batch, target_len, d_model), in chunks (tokens, d_model).
    labels: (batch, target_len), in chunks (tokens,), aligned with the logits; -100 is ignored.
    label_smoothing: Share of the probability spread over the whole vocabulary (§5.4).
    num_items_in_batch: What the sum is divided by. None: the number of labels here.
    weight, bias: Of the projection to the vocabulary, (vocab, d_model) and (vocab,).

Losses are scalars, in nats per token; 0 if there is nothing to predict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput

from .inputs import IGNORE_INDEX
from .modes import is_plain_product, product_dtype

CHUNK_ROWS = 256
"""Tokens per chunk on the CPU."""


def token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Computes the cross-entropy per predicted token."""
    labels = labels.to(logits.device, torch.long)
    total = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).to(torch.promote_types(logits.dtype, torch.float32)),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return mean_per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def projected_token_loss(
    hidden_states: torch.Tensor,
    head: nn.Linear,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Computes `token_loss` of `head(hidden_states)`, in chunks where that saves memory.

    Full logits are computed for small problems, and for a head that does more than multiply by its
    weight (adapters, hooks, weights split over devices).
    """
    labels = labels.to(hidden_states.device, torch.long)
    is_large = labels.numel() > CHUNK_ROWS
    if not (is_large and is_plain_product(head) and head.out_features > head.in_features):
        return token_loss(head(hidden_states), labels, label_smoothing, num_items_in_batch)
    total = chunked_cross_entropy(
        hidden_states.flatten(0, 1), head.weight, head.bias, labels.flatten(), label_smoothing
    )
    return mean_per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def sequence_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    problem_type: str,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Computes the loss of sequences that have a class, several yes-or-no labels, or numbers.

    Args:
        logits: Of shape (batch, labels).
        labels: For "single_label_classification": classes of shape (batch,), -100 for no label.
            For "multi_label_classification": 0 or 1, or -100 where it is not known, of shape
            (batch, labels). For "regression": numbers of shape (batch, labels).
        problem_type: One of these three.
        label_smoothing: For "single_label_classification": share of the probability spread over
            all classes (Szegedy et al. 2016, §7).

    Returns:
        A scalar: cross-entropy in nats per sequence or per label, or the mean squared error.
    """
    if problem_type == "single_label_classification":
        return token_loss(logits, labels, label_smoothing, num_items_in_batch)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    values = labels.to(logits.device, logits.dtype).reshape(logits.shape)
    if problem_type == "regression":
        total = F.mse_loss(logits, values, reduction="sum")
        return mean_per_item(total, torch.tensor(values.numel()), num_items_in_batch)
    known = values != IGNORE_INDEX
    total = F.binary_cross_entropy_with_logits(
        logits, values.masked_fill(~known, 0.0), weight=known.to(logits.dtype), reduction="sum"
    )
    return mean_per_item(total, known.sum(), num_items_in_batch)


def mean_per_item(
    total: torch.Tensor, count: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
) -> torch.Tensor:
    """Divides a sum of losses by `num_items_in_batch`, or by the `count` of the items here."""
    number = count if num_items_in_batch is None else num_items_in_batch
    if isinstance(number, torch.Tensor):
        return total / number.to(total.device).clamp(min=1)
    return total / max(number, 1)


# Chunks -------------------------------------------------------------------------------------------


def chunked_cross_entropy(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Sums the cross-entropy of `hidden_states @ weight.T + bias` over tokens.

    On a CPU the chunks are computed here, because torch's function allocates two more matrices of
    the size of `weight`, and is slow in half precision; elsewhere torch's
    `F.linear_cross_entropy` computes them. Products are computed in the type of the states, or in
    that of autocast; losses and sums are computed in float32 at least.

    It has no second derivative: a backward pass with `create_graph=True` raises a RuntimeError.
    """
    device, dtype = hidden_states.device.type, product_dtype(hidden_states)
    with torch.autocast(device, enabled=False):
        if device == "cpu":
            return _sum_chunks_on_cpu(hidden_states, weight, bias, labels, label_smoothing, dtype)
        states = hidden_states.to(dtype)
        return cross_entropy_by_torch(states, weight.to(dtype), bias, labels, label_smoothing)


def _smoothing_sum(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Sums the label's logit minus the mean logit: what smoothing adds, per unit of its share.

    With z the log-sum-exp of the logits: (1 - s) (z - logit) + s (z - mean logit)
    = (z - logit) + s (logit - mean logit). Both logits are scalar products; no others are needed.
    """
    is_labelled = labels != IGNORE_INDEX
    labels = labels.where(is_labelled, 0)
    sum_type = torch.promote_types(hidden_states.dtype, torch.float32)
    weight = weight.to(sum_type)
    rows = F.embedding(labels, weight) - weight.mean(0)
    difference = (hidden_states.to(sum_type) * rows).sum(-1)
    if bias is not None:
        bias = bias.to(sum_type)
        difference = difference + bias[labels] - bias.mean()
    return difference.where(is_labelled, 0).sum()


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Sums the cross-entropy; the forward pass computes the gradients too, chunk by chunk.

    The gradient of a token's loss by its logits is softmax(logits), minus 1 at the label; with
    smoothing s, minus s / vocab everywhere and minus 1 - s at the label.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        smoothing: float,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        hidden_states, factor = hidden_states.to(dtype), weight.to(dtype)
        sum_type = torch.promote_types(dtype, torch.float32)
        total = hidden_states.new_zeros((), dtype=sum_type)
        by_states = torch.empty_like(hidden_states)
        by_weight = torch.zeros_like(weight, dtype=sum_type)
        by_bias = None if bias is None else torch.zeros_like(bias, dtype=sum_type)
        space = hidden_states.new_empty(CHUNK_ROWS, len(weight))
        chunks = (tensor.split(CHUNK_ROWS) for tensor in (hidden_states, labels, by_states))
        for states, targets, gradient in zip(*chunks, strict=True):
            logits = torch.mm(states, factor.t(), out=space[: len(states)]).to(sum_type)
            if bias is not None:
                logits += bias
            loss, errors = _losses_and_errors(logits, targets, smoothing)
            total += loss
            if by_bias is not None:
                by_bias += errors.sum(0)
            errors = errors.to(dtype)
            torch.mm(errors, factor, out=gradient)
            if dtype == sum_type:
                by_weight.addmm_(errors.t(), states)
            else:
                by_weight += errors.t() @ states
        ctx.save_for_backward(by_states, by_weight, by_bias)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_second_derivative()
        saved = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(part * gradient if needed else None for part, needed in saved), None, None, None)


_sum_chunks_on_cpu = cast(Callable[..., torch.Tensor], _ChunkedCrossEntropy.apply)


def _losses_and_errors(
    logits: torch.Tensor, labels: torch.Tensor, smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums the losses of some tokens, and turns their logits in place into their gradient."""
    labels = labels[:, None]  # a column, as all that follow except the logits
    ignored = labels == IGNORE_INDEX
    weights = (~ignored).to(logits.dtype)  # 1 for a label, 0 for none
    labels = labels.masked_fill(ignored, 0)
    logits -= logits.amax(-1, keepdim=True)
    expected = (1 - smoothing) * logits.gather(1, labels)
    if smoothing:
        expected += smoothing * logits.mean(-1, keepdim=True)
    sums = logits.exp_().sum(-1, keepdim=True)
    losses = (sums.log() - expected).masked_fill(ignored, 0.0)  # not 0 · inf, if a logit is -inf
    logits *= weights / sums
    if smoothing:
        logits -= weights * (smoothing / logits.shape[-1])
    logits.scatter_add_(1, labels, (smoothing - 1) * weights)
    return losses.sum(), logits


def cross_entropy_by_torch(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Computes `chunked_cross_entropy` by torch's own function, in the weight's type."""
    is_half = weight.dtype.itemsize < 4  # losses per token then make the sum exact
    total = F.linear_cross_entropy(
        hidden_states,
        weight,
        labels,
        linear_bias=None if bias is None else bias.to(weight.dtype),
        reduction="none" if is_half else "sum",
        ignore_index=IGNORE_INDEX,
        options=torch.nn.LinearCrossEntropyOptions(allow_retain_graph=True),
    )
    total = _first_derivative_only(total.float().sum() if total.dim() else total)
    if label_smoothing:
        total = total + label_smoothing * _smoothing_sum(hidden_states, weight, bias, labels)
    return total


class _FirstDerivativeOnly(torch.autograd.Function):
    """Refuses a second derivative, which torch's chunked loss would compute wrongly."""

    @staticmethod
    def forward(ctx: Any, total: torch.Tensor) -> torch.Tensor:
        return total.view_as(total)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        _refuse_second_derivative()
        return gradient


_first_derivative_only = cast(Callable[[torch.Tensor], torch.Tensor], _FirstDerivativeOnly.apply)


def _refuse_second_derivative() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            "`create_graph=True` asks for a second derivative, which the chunked loss does not "
            "have: call `model.set_padding_free(False)` first."
        )


# Logits that are computed when they are read ------------------------------------------------------


class LazyTensor:
    """A tensor of an output that is computed when it is read.

    Args:
        head: The module that `compute` calls, if any: its weights must not have changed by then.
    """

    def __init__(self, compute: Callable[[], torch.Tensor], head: nn.Module | None = None) -> None:
        self._compute = compute
        self._weights = [] if head is None else list(head.parameters())
        self._versions = [weight._version for weight in self._weights]

    def make(self) -> torch.Tensor:
        """Computes the tensor.

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
