"""The position-wise feed-forward sublayer, plain and gated."""

from typing import cast

import torch
from torch import nn
from transformers.activations import ACT2FN, XIELUActivation

from .dropout import Dropout

LEARNED_ACTIVATIONS = (nn.PReLU, XIELUActivation)
"""The activations in `ACT2FN` that have parameters of their own."""


def make_activation(name: str) -> nn.Module:
    """Makes an activation, whose own parameters, if it has some, have the type of all others.

    Args:
        name: A name in `ACT2FN`.

    Returns:
        A module that maps each number by itself.
    """
    activation: nn.Module = ACT2FN[name]
    return activation.to(torch.get_default_dtype())


class FeedForward(nn.Module):
    """Two linear maps with an activation between them: fc2(act(fc1(x))) (Vaswani et al. §3.3).

    Args:
        d_model: Width of input and output.
        ffn_dim: Width between the two maps.
        activation: A name in `ACT2FN`.
        bias: Whether every map has a bias.
        dropout: Probability of dropping a unit after the activation.
        output_dropout: Probability of dropping a unit after the second map.
    """

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        activation: str,
        bias: bool,
        dropout: float,
        output_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, ffn_dim, bias=bias)
        self.activation = make_activation(activation)
        self.dropout = Dropout(dropout)
        self.fc2 = nn.Linear(ffn_dim, d_model, bias=bias)
        self.output_dropout = Dropout(output_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Maps each position by itself.

        Args:
            hidden_states: Of shape (..., d_model).

        Returns:
            A tensor of the same shape.
        """
        hidden_states = self.dropout(self.activation(self.fc1(hidden_states)))
        return cast(torch.Tensor, self.output_dropout(self.fc2(hidden_states)))


class GatedFeedForward(FeedForward):
    """One of two maps, after the activation, gates the other: fc2(act(gate(x)) · fc1(x)).

    With "silu" it is SwiGLU, with "gelu" GEGLU, with "relu" ReGLU (Shazeer 2020, "GLU Variants
    Improve Transformer", eq. 6, where W is `gate` and V is `fc1`).

    Args:
        d_model: Width of input and output.
        ffn_dim: Width between the maps; there are three, so two thirds of the width of a plain
            feed-forward have as many parameters.
        activation: A name in `ACT2FN`.
        bias: Whether every map has a bias.
        dropout: Probability of dropping a unit of the gated product.
        output_dropout: Probability of dropping a unit after the last map.
    """

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        activation: str,
        bias: bool,
        dropout: float,
        output_dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, ffn_dim, activation, bias, dropout, output_dropout)
        self.gate = nn.Linear(d_model, ffn_dim, bias=bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Maps each position by itself.

        Args:
            hidden_states: Of shape (..., d_model).

        Returns:
            A tensor of the same shape.
        """
        gated = self.activation(self.gate(hidden_states)) * self.fc1(hidden_states)
        return cast(torch.Tensor, self.output_dropout(self.fc2(self.dropout(gated))))


FEED_FORWARDS: dict[bool, type[FeedForward]] = {False: FeedForward, True: GatedFeedForward}
