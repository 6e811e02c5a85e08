"""Attention within concatenated sequences, by torch's memory-efficient kernel.

torch's public function for this, `varlen_attn`, calls flash attention, whose tiles are four times
as large. Sentences are short: on an H100 its gradient takes 3.5 times as long. So the kernel is
called under its private name, here alone. As operations of their own, both directions can be
compiled, which torch 2.13 cannot do with the kernel's gradient.

States are (1, tokens, heads, head_dim) on a GPU. Bounds tell where each sequence begins, and where
the last one ends, in int32: (sequences + 1,). No sequence is longer than `longest_query` or
`longest_key`, which are at most the numbers of all tokens.
"""

from typing import Any

import torch

_ALIGNED = 32  # the kernel pads its sums over the keys to a multiple of this number of queries


@torch.library.custom_op("vanilla_transformer::attend", mutates_args=())
def attend_to_sequences(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_bounds: torch.Tensor,
    key_bounds: torch.Tensor,
    longest_query: int,
    longest_key: int,
    is_causal: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attends to the keys of each query's own sequence.

    Returns:
        Mixed values, shaped as the query, and the log of each softmax's sum, for the gradient.
    """
    mixed, sums, *_ = torch.ops.aten._efficient_attention_forward(
        query, key, value, None, query_bounds, key_bounds, longest_query, longest_key,
        0.0, int(is_causal), True, scale=scaling,
    )  # fmt: skip
    return mixed, sums


@attend_to_sequences.register_fake
def _(query: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    _, _, query_bounds, _, longest_query, *_ = rest
    padded = -(-longest_query // _ALIGNED) * _ALIGNED
    sequences = query_bounds.shape[0] - 1  # `len` would fix it in a compiled layer
    sums = query.new_empty(sequences, query.shape[2], padded, dtype=torch.float32)
    return query.new_empty(query.shape), sums


@torch.library.custom_op("vanilla_transformer::attend_backward", mutates_args=())
def _attend_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mixed: torch.Tensor,
    sums: torch.Tensor,
    query_bounds: torch.Tensor,
    key_bounds: torch.Tensor,
    longest_query: int,
    longest_key: int,
    is_causal: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    unused = torch.empty((), dtype=torch.long, device="cpu")  # state of dropout
    gradients = torch.ops.aten._efficient_attention_backward(
        gradient, query, key, value, None, mixed, query_bounds, key_bounds, longest_query,
        longest_key, sums, 0.0, unused, unused, int(is_causal), False, scale=scaling,
    )  # fmt: skip
    return gradients[0], gradients[1], gradients[2]


@_attend_backward.register_fake
def _(gradient: torch.Tensor, *inputs: Any) -> tuple[torch.Tensor, ...]:
    return tuple(states.new_empty(states.shape) for states in inputs[:3])  # query, key, value


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, query_bounds, key_bounds, *ctx.numbers = inputs
    ctx.save_for_backward(query, key, value, *output, query_bounds, key_bounds)


def _backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    return *_attend_backward(gradient, *ctx.saved_tensors, *ctx.numbers), *[None] * 6


attend_to_sequences.register_autograd(_backward, setup_context=_set_up)
