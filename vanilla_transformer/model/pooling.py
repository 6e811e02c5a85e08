"""One vector for a sequence: the mean over its real tokens, or its first real token."""

from typing import Any

import torch
from torch import nn


def _real(hidden_states: torch.Tensor, attention_mask: Any) -> torch.Tensor:
    """True for each real token, of shape (batch, length); without a mask of tokens all are real."""
    if isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2:
        return attention_mask.to(hidden_states.device) != 0
    return torch.ones(hidden_states.shape[:2], dtype=torch.bool, device=hidden_states.device)


class MeanPooling(nn.Module):
    """The mean over the real tokens of each sequence; zeros for a sequence without any."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None) -> torch.Tensor:
        """Takes the mean.

        Args:
            hidden_states: Of shape (batch, length, d_model).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, length). None: no
                padding.

        Returns:
            A tensor of shape (batch, d_model).
        """
        real = _real(hidden_states, attention_mask)[..., None]
        total = hidden_states.float().masked_fill(~real, 0.0).sum(dim=1)
        return (total / real.sum(dim=1).clamp(min=1)).to(hidden_states.dtype)


class FirstPooling(nn.Module):
    """The first real token of each sequence, on either side of padding (Devlin et al. 2019)."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None) -> torch.Tensor:
        """Takes the first token.

        Args:
            hidden_states: Of shape (batch, length, d_model).
            attention_mask: 1 for a token, 0 for padding, of shape (batch, length). None: no
                padding.

        Returns:
            A tensor of shape (batch, d_model).
        """
        first = _real(hidden_states, attention_mask).int().argmax(dim=1)
        rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)
        return hidden_states[rows, first]


POOLINGS: dict[str, type[nn.Module]] = {"mean": MeanPooling, "first": FirstPooling}
