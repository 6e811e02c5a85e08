"""Ablates attention heads, at inference or in training, with any attention implementation.

A head reaches the output of its module only through its own columns of `out_proj` (Vaswani et al.
2017, §3.2.2: MultiHead = Concat(head_1, ..., head_h) W^O). Setting the head's slice to zero before
`out_proj` is therefore exact for every attention implementation. It equals a head mask of zeros
(Michel et al. 2019).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from vanilla_transformer.model.attention import AttentionCore
from vanilla_transformer.model.evaluation import evaluation_mode

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
        name: {layer: m.out_proj.in_features // m.head_dim for layer, m in layers.items()}
        for name, layers in find_attention_modules(model).items()
    }


@contextmanager
def ablate_heads(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Ablates heads within a `with` block: their part of the attention's output is zero.

    Works with every attention implementation and with `generate()`. Blocks nest: an inner block
    adds to the heads of the outer one. Returned attention weights do not change. A model that
    `torch.compile` compiled before the block ignores the ablation.

    Raises:
        KeyError: If the model has no such module or layer; a call raises an IndexError if it has no
            such head.
    """
    modules = find_attention_modules(model)
    with ExitStack() as stack:
        for name, layers in heads.items():
            for layer, numbers in layers.items():
                module = modules[name][layer]
                hook = partial(_zero_heads, list(numbers), module.head_dim)
                stack.callback(module.out_proj.register_forward_pre_hook(hook).remove)
        yield


def head_scores(model: nn.Module, score: Callable[[Any], float]) -> dict[str, torch.Tensor]:
    """Measures how much a score changes when one head is ablated, for one head after another.

    Args:
        score: Takes the model and returns a number, such as a loss or the BLEU on a development
            set. It is called once for the whole model and once for each head.

    Returns:
        A tensor of shape (layers, heads) for each module: the score without the head, minus the
        score of the whole model, in the unit of `score`. A change near 0 means that the model does
        not need this one head.
    """
    counts = attention_heads(model)
    changes = {}
    with evaluation_mode(model):
        whole = float(score(model))
        for name, layers in counts.items():
            rows = []
            for layer, num_heads in layers.items():
                rows.append(torch.zeros(num_heads, dtype=torch.float64))
                for head in range(num_heads):
                    with ablate_heads(model, {name: {layer: [head]}}):
                        rows[-1][head] = float(score(model)) - whole
            changes[name] = torch.stack(rows)
    return changes


def find_attention_modules(model: nn.Module) -> dict[str, dict[int, Any]]:
    """Finds the attention modules of a model, by name, as in `attention_heads`, and by layer."""
    modules: dict[str, dict[int, Any]] = {}
    for path, module in model.named_modules():
        match = _ATTENTION_PATH.fullmatch(path)
        # By name, because the class may come from the code of a saved directory.
        bases = {base.__name__ for base in type(module).__mro__}
        if match and AttentionCore.__name__ in bases:
            stack, layer, attention = match.groups()
            modules.setdefault(f"{stack}.{attention}", {})[int(layer)] = module
    return modules


def _zero_heads(
    heads: list[int], head_dim: int, module: nn.Module, args: tuple[torch.Tensor]
) -> tuple[torch.Tensor]:
    """Sets the slices of heads in the input of `out_proj` to zero (a forward pre-hook)."""
    outputs = args[0].unflatten(-1, (-1, head_dim))  # (..., heads, head_dim)
    is_off = torch.zeros(outputs.shape[-2], 1, dtype=torch.bool, device=outputs.device)
    is_off[heads] = True
    return (outputs.masked_fill(is_off, 0).flatten(-2),)
