"""Initial values: the only place that sets them, and the layer whose parts are drawn one by one."""

import torch
from torch import nn
from transformers import initialization as init

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .feed_forward import LEARNED_ACTIVATIONS
from .normalization import NORMS
from .positions import LearnedPositions, RelativePositions

NORMAL_STD = 0.02
"""Standard deviation of all weights of the initializer "normal"."""


class StackedLinear(nn.Linear):
    """Several linear maps of one input, stacked in one matrix.

    Args:
        part_sizes: Output width of each map, in the order of the rows.
    """

    def __init__(self, in_features: int, part_sizes: tuple[int, ...], bias: bool) -> None:
        super().__init__(in_features, sum(part_sizes), bias=bias)
        self.part_sizes = part_sizes


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

    These are the values of `config.initializer` "xavier". "half_xavier" halves projections and
    embeddings. "normal" draws projections, embeddings and positions with std 0.02. "t_fixup"
    multiplies embeddings, and the matrices of the layers that `set_initial_gains` names.
    """
    is_normal = config.initializer == "normal"
    std = NORMAL_STD if is_normal else config.d_model**-0.5
    if isinstance(module, nn.Linear):
        _draw_projection(module, config.initializer)
    elif isinstance(module, nn.Embedding):
        is_t_fixup = config.initializer == "t_fixup"
        gain = t_fixup_gain(config, "decoder") if is_t_fixup else _common_gain(config.initializer)
        init.normal_(module.weight, std=std * gain)
        if module.padding_idx is not None and not _was_loaded(module.weight):
            init.zeros_(module.weight[module.padding_idx])
    elif isinstance(module, LearnedPositions):
        are_sinusoid_sized = config.scale_embedding and not is_normal
        init.normal_(module.weight, std=0.5**0.5 if are_sinusoid_sized else std)
    elif isinstance(module, RelativePositions):
        init.normal_(module.weight, std=std)
    elif isinstance(module, tuple(NORMS.values())):
        for name, parameter in module.named_parameters(recurse=False):
            if name == "weight":
                init.ones_(parameter)
            elif name == "bias":
                init.zeros_(parameter)
    elif isinstance(module, LEARNED_ACTIVATIONS):
        for name, value in type(module)().state_dict().items():
            init.copy_(getattr(module, name), value)


def _draw_projection(module: nn.Linear, initializer: str) -> None:
    matrices: tuple[torch.Tensor, ...] = (module.weight,)
    if isinstance(module, StackedLinear):
        # transformers marks a loaded parameter, but a part of it does not carry the mark.
        matrices = () if _was_loaded(module.weight) else module.weight.split(module.part_sizes)
    gains = getattr(module, "initial_gains", (_common_gain(initializer),) * len(matrices))
    for matrix, gain in zip(matrices, gains, strict=False):  # loaded parts are left out
        if initializer == "normal":
            init.normal_(matrix, std=NORMAL_STD)
        else:
            init.xavier_uniform_(matrix, gain=gain)
    if module.bias is not None:
        init.zeros_(module.bias)


def _common_gain(initializer: str) -> float:
    return 0.5 if initializer == "half_xavier" else 1.0


def _was_loaded(parameter: torch.Tensor) -> bool:
    return getattr(parameter, "_is_hf_initialized", False)


def set_initial_gains(layer: nn.Module, config: VanillaTransformerConfig, stack: str) -> None:
    """Tells the projections of a layer by which factors T-Fixup multiplies their initial values.

    It scales values, outputs and feed-forward. transformers initialises modules that have
    parameters, each by itself: a projection must know its stack. It gets the attribute
    `initial_gains`, a factor for each part.
    """
    if config.initializer != "t_fixup":
        return
    gain = t_fixup_gain(config, stack)
    for name, module in layer.named_modules():
        role = name.rpartition(".")[2]
        if role in ("v_proj", "out_proj", "fc1", "gate", "fc2"):
            module.initial_gains = (gain,)
        elif role == "qkv_proj":
            module.initial_gains = (1.0, 1.0, gain)


def t_fixup_gain(config: VanillaTransformerConfig, stack: str) -> float:
    """Returns the factor of Huang et al. 2020, §3.2."""
    if stack == "encoder":
        return float(0.67 * config.encoder_layers**-0.25)
    return float((9 * config.decoder_layers) ** -0.25)
