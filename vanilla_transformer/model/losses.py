"""Training losses: means over all labels of an optimizer step, however it is accumulated.

The sums are divided by `num_items_in_batch`, the number of labels over all steps of gradient
accumulation (Trainer passes it), or, where it is None, by the number of labels in this batch.

Arguments that the functions share:

    logits: (batch, target_len, vocab).
    hidden_states: (batch, target_len, d_model), in chunks (tokens, d_model).
    labels: (batch, target_len), in chunks (tokens,), aligned with the logits; -100 is ignored.
    label_smoothing: Share of the probability spread over the whole vocabulary (§5.4).
    num_items_in_batch: What the sum is divided by. None: the number of labels here.
    weight, bias: Of the projection to the vocabulary, (vocab, d_model) and (vocab,).

Losses are scalars, in nats per token; 0 if there is nothing to predict.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from .inputs import IGNORE_INDEX
from .modes import is_plain_product, matmul_dtype

CHUNK_ROWS = 256
"""Tokens per chunk on the CPU, and the fewest elsewhere."""

_MOST_LOGITS, _CHUNK_LOGITS = 2**29, 2**27
"""The most logits that a GPU computes at once, and the logits of a chunk where there are more.

All logits of 16,384 tokens and 32,000 words, which is just below, take some 6 GiB with gradients.
"""


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


def leaves_out_logits(hidden_states: torch.Tensor, head: nn.Linear) -> bool:
    """Returns whether a training step returns the loss of `head(hidden_states)`, but no logits.

    It does so for many tokens and a large vocabulary. A head that does more than multiply by its
    weight (adapters, hooks, weights split over devices) is called, and returns all logits.
    """
    is_large = hidden_states.shape[:-1].numel() > CHUNK_ROWS
    return is_large and is_plain_product(head) and head.out_features > head.in_features


def is_computed_in_chunks(hidden_states: torch.Tensor, head: nn.Linear) -> bool:
    """Returns whether a loss without logits is computed in chunks, which take longer on a GPU."""
    logits = hidden_states.shape[:-1].numel() * head.out_features
    return hidden_states.device.type == "cpu" or logits > _MOST_LOGITS


def projected_token_loss(
    hidden_states: torch.Tensor,
    head: nn.Linear,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Computes `token_loss` of `head(hidden_states)` in chunks.

    Products are computed in the type of the states, or in that of autocast; losses and sums are
    computed in float32 at least. torch's `F.linear_cross_entropy` allocates two more matrices of
    the size of the weight, and is slow in half precision on a CPU.

    It has no second derivative: a backward pass with `create_graph=True` raises a RuntimeError.
    """
    labels = labels.to(hidden_states.device, torch.long)
    states, dtype = hidden_states.flatten(0, 1), matmul_dtype(hidden_states)
    parts = (states, head.weight, head.bias, labels.flatten(), label_smoothing, dtype)
    with torch.autocast(states.device.type, enabled=False):
        total = cast(torch.Tensor, _ChunkedCrossEntropy.apply(*parts))  # type: ignore[no-untyped-call]
    return mean_per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def sequence_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    problem_type: str,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Computes the loss of sequences that have a class, several yes-or-no labels, or numbers.

    It is the cross-entropy in nats per sequence or per label, or the mean squared error.

    Args:
        logits: Of shape (batch, labels).
        labels: Of "single_label_classification": classes, (batch,). Of "multi_label_classification"
            0 or 1, of "regression" numbers, (batch, labels). -100 for no label.
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
        rows = CHUNK_ROWS if weight.device.type == "cpu" else _CHUNK_LOGITS // len(weight)
        rows = max(CHUNK_ROWS, rows)
        space = hidden_states.new_empty(min(rows, len(labels)), len(weight))
        chunks = (tensor.split(rows) for tensor in (hidden_states, labels, by_states))
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
        if torch.is_grad_enabled():  # torch's `once_differentiable` would return constants
            raise RuntimeError(
                "`create_graph=True` asks for a second derivative, which the chunked loss does not "
                "have: call `model.set_padding_free(False)` first."
            )
        saved = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(part * gradient if needed else None for part, needed in saved), None, None, None)


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
