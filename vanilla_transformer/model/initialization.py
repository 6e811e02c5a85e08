"""Initial values: the only place that sets them."""

import torch
from torch import nn
from transformers import initialization as init

from .attention import StackedLinear
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .feed_forward import LEARNED_ACTIVATIONS
from .normalization import UnbiasedStdNorm
from .positions import LearnedPositions, RelativePositions


@torch.no_grad()
def set_initial_values(module: nn.Module, config: VanillaTransformerConfig) -> None:
    """Sets the initial values of a module's own parameters, except those that were loaded.

    - Projections: Xavier-uniform; stacked projections one by one; biases 0.
    - Embeddings: normal with std d_model^-0.5, so that after the factor sqrt(d_model) of §3.4 they
      have the scale of the position embeddings. The padding row is 0.
    - Learned positions: normal with std sqrt(1/2), which is that of sinusoids, or d_model^-0.5 if
      the embeddings are not scaled.
    - Relative positions: normal with std d_model^-0.5, as in T5.
    - Norms: weight 1, bias 0.
    - Activations with parameters: the values that their class gives them.

    Args:
        module: A module of the model.
        config: The model's config.
    """
    std = config.d_model**-0.5
    if isinstance(module, nn.Linear):
        for matrix in _matrices_to_draw(module):
            init.xavier_uniform_(matrix)
        if module.bias is not None:
            init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, std=std)
        if module.padding_idx is not None and not _was_loaded(module.weight):
            init.zeros_(module.weight[module.padding_idx])
    elif isinstance(module, LearnedPositions):
        init.normal_(module.weight, std=0.5**0.5 if config.scale_embedding else std)
    elif isinstance(module, RelativePositions):
        init.normal_(module.weight, std=std)
    elif isinstance(module, nn.LayerNorm | UnbiasedStdNorm):
        init.ones_(module.weight)
        init.zeros_(module.bias)
    elif isinstance(module, nn.RMSNorm):
        init.ones_(module.weight)
    elif isinstance(module, LEARNED_ACTIVATIONS):
        for name, value in type(module)().state_dict().items():
            init.copy_(getattr(module, name), value)


def _matrices_to_draw(module: nn.Linear) -> tuple[torch.Tensor, ...]:
    """Returns the matrices of a projection, each drawn by itself.

    transformers marks a loaded parameter, but a part of it does not carry the mark: a loaded stack
    has no matrix to draw.
    """
    if not isinstance(module, StackedLinear):
        return (module.weight,)
    return () if _was_loaded(module.weight) else module.weight.split(module.part_sizes)


def _was_loaded(parameter: torch.Tensor) -> bool:
    return getattr(parameter, "_is_hf_initialized", False)
