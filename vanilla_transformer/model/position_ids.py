"""Position ids: the position of each token in its sequence, counted from an attention mask.

Padding takes no position, so a sequence has the same positions on either side of its padding.
"""

import torch


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
