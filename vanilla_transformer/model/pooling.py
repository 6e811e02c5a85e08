"""Pooling: turns the states of a sequence into one vector for classification.

Shapes: `hidden_states` is (batch, length, d_model). `attention_mask` is (batch, length), with 1 for
a token and 0 for padding, or has four dimensions. The result is (batch, d_model).
"""

import torch
from torch import nn

from .attention_masks import tokens_of


def find_real_tokens(
    hidden_states: torch.Tensor, attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """Returns True for each real token, of shape (batch, length).

    Without a mask, every token is real.
    """
    if isinstance(attention_mask, torch.Tensor):
        found = tokens_of(attention_mask).to(hidden_states.device)
        return found.expand(hidden_states.shape[:2])
    return torch.ones(hidden_states.shape[:2], dtype=torch.bool, device=hidden_states.device)


class MeanPooling(nn.Module):
    """Mean over the real tokens of each sequence; zeros for a sequence of padding only."""

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Computes the mean in float32 and returns it in the type of the states."""
        real = find_real_tokens(hidden_states, attention_mask)[..., None]
        total = hidden_states.float().masked_fill(~real, 0.0).sum(dim=1)
        return (total / real.sum(dim=1).clamp(min=1)).to(hidden_states.dtype)


class FirstPooling(nn.Module):
    """State of the first real token of each sequence (Devlin et al. 2019)."""

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Selects the first real token, with padding on either side."""
        first = find_real_tokens(hidden_states, attention_mask).int().argmax(dim=1)
        rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)
        return hidden_states[rows, first]


POOLINGS: dict[str, type[nn.Module]] = {"mean": MeanPooling, "first": FirstPooling}
