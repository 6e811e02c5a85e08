"""Initial values: the only place that sets them."""

import torch
from torch import nn
from transformers import initialization as init

from .attention import StackedLinear
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .feed_forward import LEARNED_ACTIVATIONS
from .normalization import UnbiasedStdNorm
from .positions import LearnedPositions, RelativePositions

NORMAL_STD = 0.02
"""Standard deviation of all weights of the initializer "normal"."""

_COMMON_GAINS = {"half_xavier": 0.5}  # of all projections and embeddings, by initializer

_QUERIES_AND_KEYS, _VALUES, _MIXED, _INNER, _OUTER = range(5)
_ROLES = {
    "q_proj": (_QUERIES_AND_KEYS,),
    "k_proj": (_QUERIES_AND_KEYS,),
    "v_proj": (_VALUES,),
    "qkv_proj": (_QUERIES_AND_KEYS, _QUERIES_AND_KEYS, _VALUES),
    "out_proj": (_MIXED,),
    "fc1": (_INNER,),
    "gate": (_INNER,),
    "fc2": (_OUTER,),
}
"""What a projection of a layer, or each part of a stacked one, is for."""


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
    embeddings. "normal" draws projections, embeddings and positions with std 0.02. The others
    multiply the matrices of the layers by the gains of `set_gains`, and "t_fixup" also the
    embeddings.
    """
    is_normal = config.initializer == "normal"
    std = NORMAL_STD if is_normal else config.d_model**-0.5
    if isinstance(module, nn.Linear):
        _draw_projection(module, config.initializer)
    elif isinstance(module, nn.Embedding):
        common = _COMMON_GAINS.get(config.initializer, 1.0)
        gain = _t_fixup_gain("decoder", config) if config.initializer == "t_fixup" else common
        init.normal_(module.weight, std=std * gain)
        if module.padding_idx is not None and not _was_loaded(module.weight):
            init.zeros_(module.weight[module.padding_idx])
    elif isinstance(module, LearnedPositions):
        are_sinusoid_sized = config.scale_embedding and not is_normal
        init.normal_(module.weight, std=0.5**0.5 if are_sinusoid_sized else std)
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


def _draw_projection(module: nn.Linear, initializer: str) -> None:
    matrices = _matrices_to_draw(module)
    common = _COMMON_GAINS.get(initializer, 1.0)
    gains = getattr(module, "initial_gains", (common,) * len(matrices))
    for matrix, gain in zip(matrices, gains, strict=False):
        if initializer == "normal":
            init.normal_(matrix, std=NORMAL_STD)
        else:
            init.xavier_uniform_(matrix, gain=gain)
    if module.bias is not None:
        init.zeros_(module.bias)


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


# Gains of a layer's matrices ---------------------------------------------------------------------


def set_gains(layer: nn.Module, config: VanillaTransformerConfig, stack: str, number: int) -> None:
    """Tells the projections of a layer by which factors their initial values are multiplied.

    transformers initialises modules that have parameters, each by itself: a projection must know
    its place.

    Args:
        layer: The layer; its projections get the attribute `initial_gains`, a factor for each part.
        number: Number of the layer in its stack, from 1.
    """
    sublayers = 3 if hasattr(layer, "encoder_attn") else 2
    gains = _gains_by_role(config, stack, number, sublayers)
    for name, module in layer.named_modules() if gains else ():
        roles = _ROLES.get(name.rpartition(".")[2], ())
        if roles and isinstance(module, nn.Linear):
            module.initial_gains = tuple(gains.get(role, 1.0) for role in roles)  # type: ignore[assignment]  # of a Module, torch expects a tensor


def _gains_by_role(
    config: VanillaTransformerConfig, stack: str, number: int, sublayers: int
) -> dict[int, float]:
    """Returns the factors that are not 1."""
    if config.initializer == "residual_scaled":
        count = sublayers * getattr(config, f"{stack}_layers")
        return dict.fromkeys((_MIXED, _OUTER), count**-0.5)
    if config.initializer == "depth_scaled":
        return dict.fromkeys((_QUERIES_AND_KEYS, _VALUES, _MIXED, _INNER, _OUTER), number**-0.5)
    if config.initializer == "t_fixup":
        return dict.fromkeys((_VALUES, _MIXED, _INNER, _OUTER), _t_fixup_gain(stack, config))
    if config.initializer == "deepnorm":
        return dict.fromkeys((_VALUES, _MIXED, _INNER, _OUTER), _deepnorm_gain(stack, config))
    return {}


def _t_fixup_gain(stack: str, config: VanillaTransformerConfig) -> float:
    """Returns the factor of Huang et al. 2020, §3.2."""
    if stack == "encoder":
        return float(0.67 * config.encoder_layers**-0.25)
    return float((9 * config.decoder_layers) ** -0.25)


def _deepnorm_gain(stack: str, config: VanillaTransformerConfig) -> float:
    """Returns DeepNorm's beta (Wang et al. 2022, figure 2), by the alpha that the config holds.

    Beta is a constant divided by alpha. In the encoder of an encoder-decoder, where alpha is
    0.81 · (N⁴M)^(1/16) and beta is 0.87 · (N⁴M)^(-1/16), the constant is 0.81 · 0.87. In all other
    stacks it is 4^(-1/4).
    """
    is_beside_decoder = stack == "encoder" and config.is_encoder_decoder
    return (0.81 * 0.87 if is_beside_decoder else 0.25**0.25) * config.residual_scale_of(stack)
