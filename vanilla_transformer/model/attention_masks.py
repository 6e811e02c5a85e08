"""What an attention mask that a caller passes means, and which masks are refused.

A mask has two dimensions, (batch, length), with 1 for a token and 0 for padding. Or it has four,
(batch or 1, heads or 1, queries or 1, keys), and is boolean (True where attention is allowed) or
additive (0 where it is allowed, a very negative number elsewhere).
"""

from typing import Any

import torch

from .tracing import is_tracing


def check_mask(name: str, mask: Any) -> Any:
    """Returns a mask in a form that every implementation of attention reads in the same way.

    Args:
        name: Name of the argument, for messages.
        mask: A mask of the caller, or None. What is not a tensor is returned as it is.

    Returns:
        The mask. One of four dimensions and of whole numbers becomes boolean.

    Raises:
        ValueError: If the mask has another number of dimensions, or if its values do not tell
            whether it is to be added to the scores.
    """
    if not isinstance(mask, torch.Tensor):
        return mask
    if mask.dim() not in (2, 4):
        hint = "add one for the heads: `mask[:, None]`" if mask.dim() == 3 else "reshape it"
        raise ValueError(
            f"`{name}` has the shape {tuple(mask.shape)}, but two dimensions (batch, length) or "
            f"four (batch, 1, queries, keys) are needed: {hint}."
        )
    if mask.dtype == torch.bool:
        return mask
    if mask.is_floating_point():
        _check_numbers(name, mask)
        return mask
    return mask if mask.dim() == 2 else _boolean_of(name, mask)


def check_causal_mask(name: str, mask: Any, embeds: torch.Tensor) -> Any:
    """Returns a mask of a decoder, as `check_mask` does.

    Args:
        name: Name of the argument, for messages.
        mask: A mask of the caller, or None.
        embeds: Of shape (batch, length, ...); only the shape counts.

    Returns:
        The mask.

    Raises:
        ValueError: As `check_mask`, or if a mask of four dimensions has one line for all queries:
            it could not hide later tokens.
    """
    mask = check_mask(name, mask)
    if isinstance(mask, torch.Tensor) and mask.dim() == 4 and mask.shape[2] != embeds.shape[1]:
        raise ValueError(
            f"`{name}` has the shape {tuple(mask.shape)}, but a decoder needs a line for each of "
            f"its {embeds.shape[1]} tokens, to hide later ones: give two dimensions, (batch, "
            "length), or a causal mask."
        )
    return mask


def allowed_by(mask: torch.Tensor) -> torch.Tensor:
    """Converts a boolean or additive mask to a boolean one: True where attention is allowed."""
    return mask if mask.dtype == torch.bool else mask == 0


def tokens_of(mask: torch.Tensor) -> torch.Tensor:
    """Finds the tokens behind a mask of two dimensions, or of four in both directions.

    Args:
        mask: As `check_mask` returns it.

    Returns:
        True for each token, False for padding: a place that no query may attend to. Of shape
        (batch or 1, length).
    """
    return mask != 0 if mask.dim() == 2 else allowed_by(mask).any(dim=1).any(dim=1)


def _has_values(mask: torch.Tensor) -> bool:
    """Returns whether the values may be read; on a GPU this waits for the device."""
    return type(mask) is torch.Tensor and not mask.is_meta and not is_tracing()


def _check_numbers(name: str, mask: torch.Tensor) -> None:
    """Refuses a mask of floats that holds the numbers of the other kind."""
    if mask.numel() == 0 or not _has_values(mask):
        return
    if mask.dim() == 2 and mask.min() < 0:
        raise ValueError(
            f"`{name}` has two dimensions and holds {mask.min().item():g}, but 1 is a token and 0 "
            "is padding: convert an additive mask with `mask == 0`."
        )
    if mask.dim() == 4 and mask.max() == 1 and ((mask == 0) | (mask == 1)).all():
        raise ValueError(
            f"`{name}` has four dimensions, the type {mask.dtype}, and holds only 0 and 1, but "
            "floats are added to the scores: pass `mask.bool()`."
        )


def _boolean_of(name: str, mask: torch.Tensor) -> torch.Tensor:
    if mask.numel() and _has_values(mask) and (mask.min() < 0 or mask.max() > 1):
        raise ValueError(
            f"`{name}` has four dimensions, the type {mask.dtype}, and holds values other than 0 "
            "and 1: pass a boolean mask, or an additive one of floats."
        )
    return mask != 0
