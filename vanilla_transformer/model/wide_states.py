"""What T5 needs in float16: residual states in float32.

T5 was trained in bfloat16, and the outputs of its feed-forward sublayers leave the range of
float16. As in transformers' T5, their last projection stays in float32 where the rest of the model
is loaded in float16. The residual sums are then in float32 too, and norms return float16.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .configuration_vanilla_transformer import VanillaTransformerConfig


def has_wide_states(config: VanillaTransformerConfig) -> bool:
    """Returns whether a model is built as T5 is."""
    is_t5s = config.position_embedding_type == "relative" and config.norm_type == "rms_norm"
    return is_t5s and config.norm_placement == "pre"


class WideLinear(nn.Linear):
    """A linear map that computes in the type of its weight, whatever the type of its input."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Maps (..., in_features) to (..., out_features)."""
        return super().forward(input.to(self.weight.dtype))


class NarrowingRMSNorm(nn.RMSNorm):
    """A norm whose result has the type of its gains, whatever the type of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalises the last axis, in the wider of the two types."""
        weight = self.weight.to(torch.promote_types(x.dtype, self.weight.dtype))
        return F.rms_norm(x, self.normalized_shape, weight, self.eps).to(self.weight.dtype)
