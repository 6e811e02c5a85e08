"""Ablates attention heads, at inference or in training, with any attention implementation.

A head reaches the output of its module only through its own columns of `out_proj` (Vaswani et al.
2017, §3.2.2: MultiHead = Concat(head_1, ..., head_h) W^O). Setting the head's slice to zero before
`out_proj` is therefore exact for every attention implementation. It equals a head mask of zeros
(Michel et al. 2019).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from vanilla_transformer.model.attention import AttentionCore
from vanilla_transformer.model.modes import evaluation_mode

Heads = Mapping[str, Mapping[int, Iterable[int]]]
"""Heads by module and layer: `{"decoder.encoder_attn": {0: [1, 3]}}`."""

_ATTENTION_PATH = re.compile(r"(?:.*\.)?((?:en|de)coder)\.layers\.(\d+)\.(\w+_attn)")


def attention_heads(model: nn.Module) -> dict[str, dict[int, int]]:
    """Counts the attention heads of a model of this package, or of one in a wrapper.

    Returns:
        The number of heads by module and layer. The modules are "encoder.self_attn",
        "decoder.self_attn" and "decoder.encoder_attn", as far as the model has them.
    """
    return {
        name: {layer: _count_heads(module) for layer, module in layers.items()}
        for name, layers in find_attention_modules(model).items()
    }


@contextmanager
def ablate_heads(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Ablates heads within a `with` block: their part of the attention's output is zero.

    Works with every attention implementation and with `generate()`. Blocks nest: an inner block
    adds to the heads of the outer one. Returned attention weights do not change. A model that
    `torch.compile` compiled before the block ignores the ablation.

    Args:
        heads: Heads by module and layer, such as `{"decoder.encoder_attn": {0: [1, 3]}}`; see
            `attention_heads`. Layers and heads count from 0.

    Yields:
        Nothing. At the end of the block, also after an error, all its heads work again.

    Raises:
        ValueError: If the model has no such module, layer or head.
    """
    modules = find_attention_modules(model)
    chosen = [
        (_find_module(modules, name, layer, numbers), numbers)
        for name, layers in heads.items()
        for layer, numbers in ((layer, list(numbers)) for layer, numbers in layers.items())
    ]
    with ExitStack() as stack:
        for module, numbers in chosen:
            hook = _ZeroHeads(module.head_dim, numbers)
            stack.callback(module.out_proj.register_forward_pre_hook(hook).remove)
        yield


def head_scores(
    model: nn.Module,
    score: Callable[[Any], float],
    modules: Iterable[str] | None = None,
) -> dict[str, torch.Tensor]:
    """Measures how much a score changes when one head is ablated, for one head after another.

    Args:
        model: A model of this package, or a wrapper around one. It is scored in eval mode and
            without gradients.
        score: Takes the model and returns a number, such as a loss or the BLEU on a development
            set. It is called once for the whole model and once for each head.
        modules: Names as in `attention_heads`. None: all modules.

    Returns:
        A tensor of shape (layers, heads) for each module: the score without the head, minus the
        score of the whole model, in the unit of `score`. A change near 0 means that the model does
        not need this one head.

    Raises:
        ValueError: If the model has no such module.
    """
    counts = attention_heads(model)
    names = list(counts if modules is None else modules)
    for name in names:
        _check_module_name(counts, name)
    changes = {}
    with evaluation_mode(model):
        whole = float(score(model))
        for name in names:
            rows = []
            for layer, num_heads in counts[name].items():
                rows.append(torch.zeros(num_heads, dtype=torch.float64))
                for head in range(num_heads):
                    with ablate_heads(model, {name: {layer: [head]}}):
                        rows[-1][head] = float(score(model)) - whole
            changes[name] = torch.stack(rows)
    return changes


class _ZeroHeads:
    """A pre-hook of `out_proj` that sets the slices of heads to zero."""

    def __init__(self, head_dim: int, heads: list[int]) -> None:
        self.head_dim = head_dim
        self.heads = heads

    def __call__(self, module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        heads = args[0].unflatten(-1, (-1, self.head_dim))  # (..., heads, head_dim)
        ablated = torch.zeros(heads.shape[-2], 1, dtype=torch.bool, device=heads.device)
        ablated[self.heads] = True
        return (heads.masked_fill(ablated, 0).flatten(-2),)


def find_attention_modules(model: nn.Module) -> dict[str, dict[int, Any]]:
    """Finds the attention modules of a model, by name, as in `attention_heads`, and by layer."""
    found: dict[str, dict[int, Any]] = {}
    for path, module in model.named_modules():
        match = _ATTENTION_PATH.fullmatch(path)
        # By name, because the class may come from the code of a saved directory.
        bases = {base.__name__ for base in type(module).__mro__}
        if match and AttentionCore.__name__ in bases:
            stack, layer, attention = match.groups()
            found.setdefault(f"{stack}.{attention}", {})[int(layer)] = module
    return found


def _count_heads(module: Any) -> int:
    heads: int = module.out_proj.in_features // module.head_dim
    return heads


def _check_module_name(known: Collection[str], name: str) -> None:
    if name not in known:
        raise ValueError(
            f"The model has no attention module {name!r}: choose one of {list(known)}."
        )


def _find_module(
    modules: Mapping[str, Mapping[int, Any]], name: str, layer: int, heads: list[int]
) -> Any:
    """Finds a module and checks that it has the layer and the heads."""
    _check_module_name(modules, name)
    if layer not in modules[name]:
        layers = list(modules[name])
        raise ValueError(f"{name!r} has no layer {layer!r}: choose one of {layers}.")
    module = modules[name][layer]
    last = _count_heads(module) - 1
    for head in heads:
        if head not in range(last + 1):
            raise ValueError(f"{name!r} has no head {head!r} in layer {layer}: choose 0 to {last}.")
    return module
