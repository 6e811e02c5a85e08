"""Position ids: the position of each token in its sequence, counted from an attention mask.

Padding takes no position, so a sequence has the same positions on either side of its padding.
"""

from typing import Any

import torch
import torch.nn.functional as F
from transformers.cache_utils import Cache


def positions_from_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers the real tokens of each row from 0, wherever the padding is.

    Args:
        attention_mask: 1 for a token and 0 for padding, of shape (batch, length).

    Returns:
        Positions of shape (batch, length). Padding gets an arbitrary legal position.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def positions_from_causal_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers each token by the number of earlier tokens that it may attend to.

    Args:
        attention_mask: A boolean mask (True where attention is allowed) or an additive one (0 where
            it is allowed), of shape (batch, 1, length, length with the past).

    Returns:
        Positions of shape (batch, length). Padding gets an arbitrary non-negative position.
    """
    return (allowed_by(attention_mask)[:, 0].sum(-1) - 1).clamp(min=0)


def allowed_by(attention_mask: torch.Tensor) -> torch.Tensor:
    """Converts a boolean or additive mask to a boolean one: True where attention is allowed."""
    return attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0


def query_position_ids(
    embeds: torch.Tensor,
    attention_mask: Any,
    past_len: int | torch.Tensor = 0,
    is_causal: bool = False,
) -> torch.Tensor:
    """Numbers the current tokens of each row, counting real tokens only.

    With a static cache `generate()` passes the causal mask instead of a padding mask: there, the
    position of a token is the number of earlier tokens that it may attend to.

    Args:
        embeds: Of shape (batch, length, ...); only the shape and device count.
        attention_mask: Of two dimensions, four dimensions, another form, or None.
        past_len: Number of tokens in the cache.
        is_causal: Whether a mask of four dimensions is causal.

    Returns:
        Positions of shape (batch or 1, length).
    """
    length = embeds.shape[1]
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    if dims == 2:
        return positions_from_mask(attention_mask)[:, -length:].to(embeds.device)
    position_ids = torch.arange(length, device=embeds.device)[None] + past_len
    if dims == 4 and is_causal:
        return torch.minimum(positions_from_causal_mask(attention_mask), position_ids)
    return position_ids


def key_position_ids(
    embeds: torch.Tensor, attention_mask: Any, cache: Cache | None
) -> torch.Tensor:
    """Numbers all keys of the decoder, those in the cache included.

    A static cache has room for later keys: they get some position and are masked.

    Args:
        embeds: Of shape (batch, length, ...); only the shape and device count.
        attention_mask: As in `query_position_ids`.
        cache: Keys and values of earlier tokens.

    Returns:
        Positions of shape (batch or 1, length with the past).
    """
    length = embeds.shape[1]
    if cache is not None:
        length, _ = cache.get_mask_sizes(length, 0)
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    if dims == 4:
        return positions_from_mask(allowed_by(attention_mask)[:, 0, -1])
    if dims == 2:
        position_ids = positions_from_mask(attention_mask).to(embeds.device)
        return F.pad(position_ids, (0, length - position_ids.shape[1]))
    return torch.arange(length, device=embeds.device)[None]
