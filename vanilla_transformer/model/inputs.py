"""What a forward is given: masks, token ids, labels.

What would give a wrong result is an error that names the argument. Values are checked only where
they can be read at no cost: on a GPU, reading them would wait for the device.

A mask is (batch, length), with 1 for a token and 0 for padding. Or it is (batch or 1, heads or 1,
queries or 1, keys): boolean or whole numbers (True or 1 where attention is allowed), or floats that
are added to the scores (0 where it is allowed, a very negative number elsewhere). Other forms, such
as those of flex attention, are passed on. None: there is no padding.
"""

from typing import Any, Literal

import torch

from .modes import has_readable_values, is_tracing

IGNORE_INDEX = -100
"""The label of a slot where there is nothing to predict."""

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]

# Masks -------------------------------------------------------------------------------------------


def check_mask(
    name: str,
    mask: Any,
    rows: int,
    length: int,
    past: int | torch.Tensor = 0,
    is_causal: bool = False,
) -> Any:
    """Returns a mask in a form that every implementation of attention reads in the same way.

    Args:
        name: Name of the argument, for messages.
        rows: Number of rows of the batch.
        length: Number of the current tokens of a row.
        past: Number of tokens in the cache. A tensor, as of a static cache, is not read.
        is_causal: Whether the mask is a decoder's: with one line for all of its tokens, a mask of
            four dimensions could not hide later ones.

    Returns:
        The mask. One of four dimensions and of whole numbers becomes boolean.

    Raises:
        ValueError: If the mask has another shape.
    """
    if not isinstance(mask, torch.Tensor):
        return mask
    if not is_tracing():  # there, comparing a length would fix it
        _check_shape(name, tuple(mask.shape), rows, length, past, is_causal)
    return mask if mask.dim() == 2 or mask.is_floating_point() else mask != 0


def _check_shape(
    name: str,
    shape: tuple[int, ...],
    rows: int,
    length: int,
    past: int | torch.Tensor,
    is_causal: bool,
) -> None:
    width = length + past if isinstance(past, int) else shape[-1]
    if len(shape) == 2:
        fits = shape == (rows, width)
    else:
        fits = len(shape) == 4 and (not is_causal or shape[2] == length)
    if not fits:
        raise ValueError(
            f"`{name}` has the shape {shape}: give {(rows, width)}, with 1 for each token, also in "
            "the cache, and 0 for padding; or four dimensions, (batch, heads or 1, "
            f"{length if is_causal else 'queries or 1'}, keys)."
        )


def is_allowed_by(mask: torch.Tensor) -> torch.Tensor:
    """Converts a mask of four dimensions to a boolean one: True where attention is allowed."""
    return mask == 0 if mask.is_floating_point() else mask != 0


def tokens_of(mask: torch.Tensor) -> torch.Tensor:
    """Finds the tokens behind a mask of two dimensions, or of four in both directions.

    Returns:
        True for each token, False for padding: a slot that no query may attend to. Of shape
        (batch or 1, length).
    """
    return mask != 0 if mask.dim() == 2 else is_allowed_by(mask).any(dim=1).any(dim=1)


# Token ids and labels ----------------------------------------------------------------------------


def check_token_ids(
    name: str, ids: torch.Tensor, vocab_size: int, ignore_index: int | None = None
) -> None:
    """Refuses ids outside the vocabulary, [0, vocab_size).

    Raises:
        ValueError: If there are no ids, or if an id lies outside the vocabulary.
    """
    check_not_empty(name, ids)
    if (outside := _first_outside(ids, vocab_size, ignore_index)) is not None:
        raise ValueError(
            f"`{name}` holds the id {outside}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}: use the tokenizer that the model was trained with, or resize the "
            "embeddings."
        )


def check_not_empty(name: str, tensor: torch.Tensor) -> None:
    """Refuses ids or embeddings without elements."""
    if tensor.numel() == 0:
        shape = tuple(tensor.shape)
        raise ValueError(f"`{name}` is empty (shape {shape}): give at least one token.")


def _first_outside(ids: torch.Tensor, size: int, ignore_index: int | None) -> int | None:
    """Returns the first id that is not in [0, size); None: all are, or they cannot be read."""
    if not has_readable_values(ids):
        return None
    outside = (ids < 0) | (ids >= size)
    if ignore_index is not None:
        outside &= ids != ignore_index
    return int(ids[outside][0]) if outside.any() else None


def shift_right(
    labels: torch.Tensor, pad_token_id: int, decoder_start_token_id: int
) -> torch.Tensor:
    """Turns the tokens to predict into the tokens that the decoder reads (Vaswani et al. §3.1).

    Args:
        labels: Of shape (batch, target_len), with -100 where there is nothing to predict. They are
            not changed.
        pad_token_id: Replaces -100.
        decoder_start_token_id: The first token of every sequence.
    """
    start = labels.new_full((labels.shape[0], 1), decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORE_INDEX, pad_token_id)


def problem_type_of(labels: torch.Tensor, num_labels: int) -> ProblemType:
    """Infers the kind of classification from labels, as transformers does.

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
    """Refuses labels that do not fit.

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
    if not single:
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"`labels` has the type {labels.dtype}, but `problem_type` {problem_type!r} needs "
            "integers, one class each: convert them, or set `problem_type`."
        )
    if (outside := _first_outside(labels, classes, IGNORE_INDEX)) is not None:
        raise ValueError(
            f"`labels` contains the class {outside}, but the model has classes 0 "
            f"to {classes - 1}: set `num_labels` in the config, or use {IGNORE_INDEX} where "
            "there is no label."
        )
