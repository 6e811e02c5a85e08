"""The position-wise feed-forward sublayer."""

from typing import cast

import torch
from torch import nn
from transformers.activations import ACT2FN


class FeedForward(nn.Module):
    """Two linear maps with an activation between them: fc2(act(fc1(x))) (Vaswani et al. §3.3).

    Args:
        d_model: Width of input and output.
        ffn_dim: Width between the two maps.
        activation: A name in `ACT2FN`.
        bias: Whether both maps have a bias.
        dropout: Probability of dropping a unit after the activation.
    """

    def __init__(
        self, d_model: int, ffn_dim: int, activation: str, bias: bool, dropout: float
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, ffn_dim, bias=bias)
        self.activation = ACT2FN[activation]
        self.dropout = nn.Dropout(dropout)
        self.fc2 = nn.Linear(ffn_dim, d_model, bias=bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Maps each position by itself.

        Args:
            hidden_states: Of shape (..., d_model).

        Returns:
            A tensor of the same shape.
        """
        hidden_states = self.dropout(self.activation(self.fc1(hidden_states)))
        return cast(torch.Tensor, self.fc2(hidden_states))
