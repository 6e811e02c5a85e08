"""Training losses: means over all labels of an optimizer step, however it is accumulated.

The sums are divided by `num_items_in_batch`, the number of labels over all steps of gradient
accumulation (Trainer passes it), or, where it is None, by the number of labels in this batch. A
number below 1 is an error, except 0 where there is nothing to predict.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .chunked_loss import CHUNK_ROWS, chunked_cross_entropy
from .labels import IGNORE_INDEX
from .tracing import has_readable_values


def token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Computes the cross-entropy per predicted token.

    Args:
        logits: Of shape (batch, target_len, vocab).
        labels: Of shape (batch, target_len), aligned with the logits; -100 is ignored.
        label_smoothing: Share of the probability spread over the whole vocabulary (§5.4).
        num_items_in_batch: What the sum is divided by. None: the number of labels here.

    Returns:
        A scalar in nats per token; 0 if there is nothing to predict.
    """
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

    Args:
        hidden_states: Of shape (batch, target_len, d_model).
        head: The projection to the vocabulary.
        labels: Of shape (batch, target_len), aligned with the states; -100 is ignored.
        label_smoothing: As in `token_loss`.
        num_items_in_batch: As in `token_loss`.

    Returns:
        A scalar in nats per token; 0 if there is nothing to predict.
    """
    labels = labels.to(hidden_states.device, torch.long)
    is_large = labels.numel() > CHUNK_ROWS and head.out_features > head.in_features
    can_be_chunked = hidden_states.device.type == "cpu" or hasattr(F, "linear_cross_entropy")
    if not (is_large and can_be_chunked and _is_plain_product(head)):
        return token_loss(head(hidden_states), labels, label_smoothing, num_items_in_batch)
    total = chunked_cross_entropy(
        hidden_states.flatten(0, 1), head.weight, head.bias, labels.flatten(), label_smoothing
    )
    return mean_per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def _is_plain_product(head: nn.Module) -> bool:
    """Returns whether a call of the head is exactly the product with its weight, plus its bias."""
    hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks)
    wrapped = any(hooks) or bool(head._backward_pre_hooks) or "forward" in vars(head)
    plain_weight = type(head.weight) in (torch.Tensor, nn.Parameter)
    return type(head) is nn.Linear and not wrapped and plain_weight


def next_token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
    shift_labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes the cross-entropy of a language model. Labels are shifted here and nowhere else.

    Args:
        logits: Of shape (batch, target_len, vocab).
        labels: The tokens themselves, of shape (batch, target_len); -100 is ignored.
        label_smoothing: As in `token_loss`.
        num_items_in_batch: As in `token_loss`; the first label of a row does not count.
        shift_labels: Labels that are already aligned with the logits; they replace `labels`.

    Returns:
        A scalar in nats per token; 0 if there is nothing to predict.
    """
    if shift_labels is not None:
        return token_loss(logits, shift_labels, label_smoothing, num_items_in_batch)
    return token_loss(logits[:, :-1], labels[:, 1:], label_smoothing, num_items_in_batch)


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
        num_items_in_batch: As in `token_loss`.

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
    """Divides a sum of losses; without labels it is 0, and so is the mean.

    Args:
        total: The sum.
        count: Number of the items here.
        num_items_in_batch: What the sum is divided by. None: `count`.

    Returns:
        The mean.

    Raises:
        ValueError: If the number is negative, or is 0 although there are items.
    """
    if num_items_in_batch is None:
        return total / count.clamp(min=1)
    _check_number_of_items(num_items_in_batch, count)
    if isinstance(num_items_in_batch, torch.Tensor):
        return total / num_items_in_batch.to(total.device).clamp(min=1)
    return total / max(num_items_in_batch, 1)


def _check_number_of_items(number: torch.Tensor | int, count: torch.Tensor) -> None:
    """Refuses a number that cannot be right, where its value can be read without waiting."""
    readable = not isinstance(number, torch.Tensor) or has_readable_values(number)
    if not readable or torch.compiler.is_compiling() or int(number) > 0:
        return
    if int(number) < 0 or (has_readable_values(count) and int(count) > 0):
        raise ValueError(
            f"`num_items_in_batch` is {int(number)}, but there are labels to predict: give their "
            "number in all steps of gradient accumulation, or None."
        )
