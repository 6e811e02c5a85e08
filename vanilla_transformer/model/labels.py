"""Labels: what marks the absence of one, how they become the decoder's input, which are legal."""

from typing import Literal

import torch

from .tracing import has_readable_values

IGNORE_INDEX = -100
"""The label of a place where there is nothing to predict."""

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


def shift_right(
    labels: torch.Tensor, pad_token_id: int, decoder_start_token_id: int
) -> torch.Tensor:
    """Turns the tokens to predict into the tokens that the decoder reads (Vaswani et al. §3.1).

    Args:
        labels: Of shape (batch, target_len), with -100 where there is nothing to predict. They are
            not changed.
        pad_token_id: Replaces -100.
        decoder_start_token_id: The first token of every sequence.

    Returns:
        A tensor of shape (batch, target_len).
    """
    start = labels.new_full((labels.shape[0], 1), decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORE_INDEX, pad_token_id)


def problem_type_of(labels: torch.Tensor, num_labels: int) -> ProblemType:
    """Infers the kind of classification from labels, by transformers' rules.

    Args:
        labels: As in `losses.sequence_loss`.
        num_labels: Number of outputs.

    Returns:
        "regression" for one output, "single_label_classification" for one integer per row,
        otherwise "multi_label_classification".
    """
    if num_labels == 1:
        return "regression"
    is_integer = not labels.is_floating_point() and labels.dtype != torch.bool
    one_per_row = labels.numel() == labels.shape[0]
    if is_integer and one_per_row:
        return "single_label_classification"
    return "multi_label_classification"


def check_labels(labels: torch.Tensor, logits: torch.Tensor, problem_type: str) -> None:
    """Refuses labels that do not fit. Values are checked on the CPU only.

    Args:
        labels: As in `losses.sequence_loss`, or of shape (batch, source_len) for tokens.
        logits: Of shape (..., labels).
        problem_type: As in `losses.sequence_loss`; "single_label_classification" for tokens.

    Raises:
        ValueError: If the number of labels differs from that of the logits, or if a class is
            outside those of the model.
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
    if not (single and has_readable_values(labels)):
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"`labels` has the type {labels.dtype}, but `problem_type` {problem_type!r} needs "
            "integers, one class each: convert them, or set `problem_type`."
        )
    outside = ((labels < 0) | (labels >= classes)) & (labels != IGNORE_INDEX)
    if outside.any():
        raise ValueError(
            f"`labels` contains the class {int(labels[outside][0])}, but the model has classes 0 "
            f"to {classes - 1}: set `num_labels` in the config, or use {IGNORE_INDEX} for places "
            "without a label."
        )
