"""The position-wise feed-forward sublayer, plain and gated.

Both map (..., d_model) to the same shape, each position by itself.
"""

from typing import Any, cast

import torch
from torch import nn
from transformers.activations import ACT2FN, XIELUActivation

from .dropout import Dropout

LEARNED_ACTIVATIONS = (nn.PReLU, XIELUActivation)
"""The activations in `ACT2FN` that have trainable parameters."""


class FeedForward(nn.Module):
    """Two linear projections with an activation between them: fc2(act(fc1(x))) (§3.3).

    Args:
        ffn_dim: Width between the two projections.
        activation: A name in `ACT2FN`.
        dropout: Dropout probability after the activation.
        output_dropout: Dropout probability after the second projection.
        output_linear: The class of the second projection: see `wide_states`.
    """

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        activation: str,
        bias: bool,
        dropout: float,
        output_dropout: float = 0.0,
        output_linear: type[nn.Linear] = nn.Linear,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, ffn_dim, bias=bias)
        self.activation = ACT2FN[activation].to(torch.get_default_dtype())  # xIELU is in bfloat16
        self.dropout = Dropout(dropout)
        self.fc2 = output_linear(ffn_dim, d_model, bias=bias)
        self.output_dropout = Dropout(output_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Computes fc2(act(fc1(x))), with dropout after the activation and at the end."""
        # (..., d_model) -> (..., ffn_dim)
        hidden_states = self.dropout(self.activation(self.fc1(hidden_states)))
        return cast(torch.Tensor, self.output_dropout(self.fc2(hidden_states)))


class GatedFeedForward(FeedForward):
    """A feed-forward sublayer with a multiplicative gate: fc2(act(gate(x)) · fc1(x)).

    With "silu" it is SwiGLU, with "gelu" GEGLU, with "relu" ReGLU (Shazeer 2020, "GLU Variants
    Improve Transformer", eq. 6, where W is `gate` and V is `fc1`). With two thirds of the width of
    a plain feed-forward sublayer, the three projections have as many parameters as its two.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        d_model, ffn_dim = self.fc1.in_features, self.fc1.out_features
        self.gate = nn.Linear(d_model, ffn_dim, bias=self.fc1.bias is not None)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Computes fc2(act(gate(x)) · fc1(x)), with dropout on the product and at the end."""
        gated = self.activation(self.gate(hidden_states)) * self.fc1(hidden_states)
        return cast(torch.Tensor, self.output_dropout(self.fc2(self.dropout(gated))))


FEED_FORWARDS: dict[bool, type[FeedForward]] = {False: FeedForward, True: GatedFeedForward}
"""The class for each value of the config field `gated_ffn`."""
