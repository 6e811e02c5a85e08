"""Attention heads switched off, at inference or in training, with any attention implementation.

A head contributes to the output of its module through its own columns of `out_proj` alone (Vaswani
et al. 2017, §3.2.2: MultiHead = Concat(head_1, ..., head_h) W^O). A hook that sets the head's slice
to zero before `out_proj` is therefore exact, whatever computed it (as in Michel et al. 2019, whose
head masks are zeros).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from vanilla_transformer.model.attention import AttentionCore
from vanilla_transformer.model.evaluation_mode import evaluation_mode

Heads = Mapping[str, Mapping[int, Iterable[int]]]
"""Heads by module and layer: `{"decoder.encoder_attn": {0: [1, 3]}}`."""

_ATTENTION = re.compile(r"(?:.*\.)?((?:en|de)coder)\.layers\.(\d+)\.(\w+_attn)")


def attention_heads(model: nn.Module) -> dict[str, dict[int, int]]:
    """Counts the heads of a model.

    Args:
        model: A model of this package, or a wrapper of one.

    Returns:
        The number of heads by module ("encoder.self_attn", "decoder.self_attn",
        "decoder.encoder_attn": those that there are) and layer.
    """
    modules = _attention_modules(model)
    return {name: {i: _num_heads(m) for i, m in layers.items()} for name, layers in modules.items()}


@contextmanager
def ablate_heads(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Switches heads off within a block: their part of the attention's output is zero.

    Works with every attention implementation, `generate()` included. Blocks nest: an inner one adds
    to what an outer one switched off. The attention weights that a call returns stay as they were.
    A model that `torch.compile` compiled earlier does not see the switch.

    Args:
        model: A model of this package, or a wrapper of one.
        heads: Heads by module and layer, such as `{"decoder.encoder_attn": {0: [1, 3]}}`; see
            `attention_heads`. Layers and heads count from 0.

    Yields:
        Nothing; when the block ends, also by an error, all its heads are on again.

    Raises:
        ValueError: If the model has no such module, layer or head.
    """
    modules = _attention_modules(model)
    chosen = [
        _choose(modules, name, layer, list(numbers))
        for name, layers in heads.items()
        for layer, numbers in layers.items()
    ]
    with ExitStack() as stack:
        for module, numbers in chosen:
            hook = _Silence(module.head_dim, numbers)
            stack.callback(module.out_proj.register_forward_pre_hook(hook).remove)
        yield


def head_scores(
    model: nn.Module,
    score: Callable[[Any], float],
    modules: Iterable[str] | None = None,
) -> dict[str, torch.Tensor]:
    """Tells how much a score changes when a head is switched off, one head at a time.

    Args:
        model: A model of this package, or a wrapper of one. It is in eval mode and without
            gradients while it is scored.
        score: Takes the model and returns a number, such as BLEU on a development set or a loss. It
            is called once for each head, and once with none switched off.
        modules: Of `attention_heads`; None: all of them.

    Returns:
        For each module, of shape (layers, heads): the score without the head, less the score with
        all heads. In what `score` measures; heads with a change near 0 are not needed alone.

    Raises:
        ValueError: If the model has no such module.
    """
    counts = attention_heads(model)
    names = list(counts if modules is None else modules)
    for name in names:
        _layers_of(counts, name)
    with evaluation_mode(model):
        whole = float(score(model))
        return {
            name: torch.tensor(
                [
                    [_score_without(model, score, name, layer, head) - whole for head in range(n)]
                    for layer, n in counts[name].items()
                ],
                dtype=torch.float64,
            )
            for name in names
        }


def _score_without(
    model: nn.Module, score: Callable[[Any], float], name: str, layer: int, head: int
) -> float:
    with ablate_heads(model, {name: {layer: [head]}}):
        return float(score(model))


class _Silence:
    """A pre-hook of `out_proj`: sets the slices of heads to zero."""

    def __init__(self, head_dim: int, heads: list[int]) -> None:
        self.head_dim = head_dim
        self.heads = heads

    def __call__(self, module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        heads = args[0].unflatten(-1, (-1, self.head_dim))
        silent = torch.zeros(heads.shape[-2], 1, dtype=torch.bool, device=heads.device)
        silent[self.heads] = True
        return (heads.masked_fill(silent, 0).flatten(-2),)


def _attention_modules(model: nn.Module) -> dict[str, dict[int, AttentionCore]]:
    found: dict[str, dict[int, AttentionCore]] = {}
    for path, module in model.named_modules():
        place = _ATTENTION.fullmatch(path)
        if place and isinstance(module, AttentionCore):
            stack, layer, attention = place.groups()
            found.setdefault(f"{stack}.{attention}", {})[int(layer)] = module
    return found


def _num_heads(module: AttentionCore) -> int:
    return module.out_proj.in_features // module.head_dim


def _layers_of(modules: Mapping[str, Any], name: str) -> Any:
    if name not in modules:
        raise ValueError(f"The model has no attention module {name!r}: choose of {list(modules)}.")
    return modules[name]


def _choose(
    modules: Mapping[str, Mapping[int, AttentionCore]], name: str, layer: int, heads: list[int]
) -> tuple[AttentionCore, list[int]]:
    layers = _layers_of(modules, name)
    if layer not in layers:
        raise ValueError(f"{name!r} has no layer {layer!r}: its layers are {list(layers)}.")
    module: AttentionCore = layers[layer]
    known = range(_num_heads(module))
    for head in heads:
        if head not in known:
            raise ValueError(
                f"{name!r} has no head {head!r} in layer {layer}: choose of 0 to {known[-1]}."
            )
    return module, heads
