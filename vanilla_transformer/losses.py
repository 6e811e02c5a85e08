"""What training minimises: means over all labels of an optimiser step, however it is divided."""

from typing import Literal

import torch
import torch.nn.functional as F

IGNORE_INDEX = -100
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


def token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Cross-entropy per token to predict.

    Args:
        logits: Of shape (batch, target_len, vocab).
        labels: Of shape (batch, target_len), already aligned with the logits; -100 is ignored.
        label_smoothing: Share of the probability spread over the whole vocabulary (§5.4).
        num_items_in_batch: What the sum is divided by: the number of tokens to predict over all
            steps of gradient accumulation. None: the number of them in `labels`.

    Returns:
        A scalar in nats per token; 0 where there is nothing to predict.
    """
    labels = labels.to(logits.device)
    total = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return _per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def next_token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
    shift_labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Cross-entropy per token that has one before it; here, and only here, labels are shifted.

    Args:
        logits: Of shape (batch, target_len, vocab).
        labels: The tokens themselves, of shape (batch, target_len); -100 is ignored.
        label_smoothing: As `token_loss`.
        num_items_in_batch: As `token_loss`; the first label of a row does not count.
        shift_labels: Labels that are aligned with the logits already, to be used instead.

    Returns:
        A scalar in nats per token; 0 where there is nothing to predict.
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
    """Loss of sequences that have a class, several yes-or-no labels, or numbers.

    Args:
        logits: Of shape (batch, labels).
        labels: For "single_label_classification" a class each, of shape (batch,), -100 where there
            is none; for "multi_label_classification" 0 or 1 (or -100: not known) and for
            "regression" numbers, of shape (batch, labels).
        problem_type: One of these three.
        label_smoothing: Of "single_label_classification": share of the probability spread over all
            classes (Szegedy et al. 2016, §7).
        num_items_in_batch: What the sum is divided by: the number of labels over all steps of
            gradient accumulation. None: the number of them in `labels`.

    Returns:
        A scalar: cross-entropy per sequence or per label in nats, or the mean squared error.
    """
    if problem_type == "single_label_classification":
        return token_loss(logits, labels, label_smoothing, num_items_in_batch)
    values = labels.to(logits.device, torch.float32).reshape(logits.shape)
    logits = logits.float()
    if problem_type == "regression":
        total = F.mse_loss(logits, values, reduction="sum")
        return _per_item(total, torch.tensor(values.numel()), num_items_in_batch)
    known = values != IGNORE_INDEX
    total = F.binary_cross_entropy_with_logits(
        logits, values.masked_fill(~known, 0.0), weight=known.float(), reduction="sum"
    )
    return _per_item(total, known.sum(), num_items_in_batch)


def _per_item(
    total: torch.Tensor, count: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
) -> torch.Tensor:
    if num_items_in_batch is None:
        num_items_in_batch = count.clamp(min=1)
    if isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch


def problem_type_of(labels: torch.Tensor, num_labels: int) -> ProblemType:
    """Tells from labels what they are labels of, as transformers does.

    Args:
        labels: As `sequence_loss`.
        num_labels: Number of outputs.

    Returns:
        "regression" for one output, "single_label_classification" for one whole number a row,
        otherwise "multi_label_classification".
    """
    if num_labels == 1:
        return "regression"
    is_whole = not labels.is_floating_point() and labels.dtype != torch.bool
    one_each = labels.numel() == labels.shape[0]
    if is_whole and one_each:
        return "single_label_classification"
    return "multi_label_classification"


def check_labels(labels: torch.Tensor, logits: torch.Tensor, problem_type: str) -> None:
    """Refuses labels that do not fit, where looking costs no device synchronisation.

    Args:
        labels: As `sequence_loss`, or of shape (batch, source_len) for tokens.
        logits: Of shape (..., labels).
        problem_type: As `sequence_loss`; for tokens "single_label_classification".

    Raises:
        ValueError: If their number differs from that of the logits, or if a class on the CPU is
            none of those that the model has.
    """
    classes = logits.shape[-1]
    single = problem_type == "single_label_classification"
    expected = logits.shape[:-1] if single else logits.shape
    if labels.numel() != expected.numel():
        raise ValueError(
            f"`labels` has the shape {tuple(labels.shape)}, but {tuple(expected)} is needed with "
            f"`problem_type` {problem_type!r} and `num_labels` {classes}: change the labels, or "
            "set these two fields of the config."
        )
    if not single or labels.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"`labels` holds {labels.dtype}, but `problem_type` {problem_type!r} needs whole "
            "numbers, one class each: convert them, or set `problem_type`."
        )
    outside = ((labels < 0) | (labels >= classes)) & (labels != IGNORE_INDEX)
    if outside.any():
        raise ValueError(
            f"`labels` holds the class {int(labels[outside][0])}, but the model has classes 0 to "
            f"{classes - 1}: set `num_labels` in the config, or use {IGNORE_INDEX} for no label."
        )
