"""Cross-entropy over a large vocabulary in chunks: full logits are never materialised."""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F

from .labels import IGNORE_INDEX

CHUNK_ROWS = 256
"""Tokens per chunk on the CPU."""


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

    Args:
        hidden_states: Of shape (tokens, d_model).
        weight: Of shape (vocab, d_model).
        bias: Of shape (vocab,), or None.
        labels: Of shape (tokens,); -100 is ignored.
        label_smoothing: Share of the probability spread over the whole vocabulary (§5.4).

    Returns:
        A scalar in nats. It has no second derivative: a backward pass with `create_graph=True`
        raises a RuntimeError.
    """
    device, dtype = hidden_states.device.type, matmul_dtype(hidden_states)
    with torch.autocast(device, enabled=False):
        if device == "cpu":
            return _sum_chunks_on_cpu(hidden_states, weight, bias, labels, label_smoothing, dtype)
        states = hidden_states.to(dtype)
        return cross_entropy_by_torch(states, weight.to(dtype), bias, labels, label_smoothing)


def matmul_dtype(states: torch.Tensor) -> torch.dtype:
    """Returns the type in which a matrix product of these states is computed, with autocast."""
    if torch.is_autocast_enabled(states.device.type):
        return torch.get_autocast_dtype(states.device.type)
    return states.dtype


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
    given = labels != IGNORE_INDEX
    labels = labels.where(given, 0)
    sum_type = torch.promote_types(hidden_states.dtype, torch.float32)
    weight = weight.to(sum_type)
    rows = F.embedding(labels, weight) - weight.mean(0)
    difference = (hidden_states.to(sum_type) * rows).sum(-1)
    if bias is not None:
        bias = bias.to(sum_type)
        difference = difference + bias[labels] - bias.mean()
    return difference.where(given, 0).sum()


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
        return (*(made * gradient if needed else None for made, needed in saved), None, None, None)


_sum_chunks_on_cpu = cast(Callable[..., torch.Tensor], _ChunkedCrossEntropy.apply)


def _losses_and_errors(
    logits: torch.Tensor, labels: torch.Tensor, smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums the losses of some tokens, and turns their logits in place into their gradient."""
    labels = labels[:, None]  # a column, as all that follow except the logits
    ignored = labels == IGNORE_INDEX
    given = (~ignored).to(logits.dtype)
    labels = labels.masked_fill(ignored, 0)
    logits -= logits.amax(-1, keepdim=True)
    expected = (1 - smoothing) * logits.gather(1, labels)
    if smoothing:
        expected += smoothing * logits.mean(-1, keepdim=True)
    sums = logits.exp_().sum(-1, keepdim=True)
    losses = (sums.log() - expected).masked_fill(ignored, 0.0)  # not 0 · inf, if a logit is -inf
    logits *= given / sums
    if smoothing:
        logits -= given * (smoothing / logits.shape[-1])
    logits.scatter_add_(1, labels, (smoothing - 1) * given)
    return losses.sum(), logits


def cross_entropy_by_torch(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Computes `chunked_cross_entropy` by torch's `F.linear_cross_entropy`, in the weight's type.

    Args:
        hidden_states: Of shape (tokens, d_model).
        weight: Of shape (vocab, d_model), of the same type.
        bias: Of shape (vocab,), or None.
        labels: Of shape (tokens,); -100 is ignored.
        label_smoothing: As in `chunked_cross_entropy`.

    Returns:
        A scalar in nats, without a second derivative.
    """
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
