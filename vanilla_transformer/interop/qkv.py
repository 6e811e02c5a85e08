"""Exact conversions between the layouts of attention projections: separate, fused, per head.

All of them move rows of a weight, or entries of a bias, and compute nothing: there and back again
is the identity, bit for bit.
"""

from collections.abc import Mapping, Sequence

import torch

_SEPARATE = ("q_proj", "k_proj", "v_proj")
_FUSED = "self_attn.qkv_proj."


def from_per_head(stacked: torch.Tensor, num_heads: int, num_parts: int = 3) -> list[torch.Tensor]:
    """Takes apart a fused projection whose rows lie head by head.

    Args:
        stacked: A weight of shape (parts · heads · head_dim, d_model) or a bias of its first axis;
            the rows are [q_0, k_0, v_0, q_1, k_1, v_1, ...], each of head_dim rows.
        num_heads: Number of heads.
        num_parts: 3 for queries, keys and values; 2 for the keys and values of a cross-attention.

    Returns:
        The projections of each part, each of shape (heads · head_dim, d_model) or its first axis.

    Raises:
        ValueError: If the rows cannot be divided so.
    """
    rows = stacked.shape[0]
    if rows % (num_heads * num_parts):
        raise ValueError(
            f"A fused projection of {rows} rows cannot hold {num_parts} parts of `num_heads` "
            f"({num_heads}) heads: give the number of heads that it was trained with."
        )
    by_head = stacked.unflatten(0, (num_heads, num_parts, -1))
    return [part.flatten(0, 1) for part in by_head.unbind(1)]


def to_per_head(parts: Sequence[torch.Tensor], num_heads: int) -> torch.Tensor:
    """Fuses projections so that their rows lie head by head: undoes `from_per_head`.

    Args:
        parts: Weights, or biases, of equal shape (heads · head_dim, ...).
        num_heads: Number of heads.

    Returns:
        A tensor of shape (parts · heads · head_dim, ...).
    """
    by_head = [part.unflatten(0, (num_heads, -1)) for part in parts]
    return torch.stack(by_head, dim=1).flatten(0, 2)


def fuse_self_attention(state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Turns weights of a model with `fused_qkv=False` into those of one with `fused_qkv=True`.

    Args:
        state_dict: Names and weights of a model.

    Returns:
        The same, with one `self_attn.qkv_proj` for every three projections: the rows of all
        queries, then of all keys, then of all values.
    """
    fused = {}
    for name, tensor in state_dict.items():
        if "self_attn.q_proj." in name:
            rows = [state_dict[name.replace("q_proj", part)] for part in _SEPARATE]
            fused[name.replace("q_proj", "qkv_proj")] = torch.cat(rows)
        elif not any(f"self_attn.{part}." in name for part in _SEPARATE):
            fused[name] = tensor
    return fused


def split_self_attention(
    state_dict: Mapping[str, torch.Tensor], d_model: int
) -> dict[str, torch.Tensor]:
    """Turns weights of a model with `fused_qkv=True` into those of one with `fused_qkv=False`.

    Args:
        state_dict: Names and weights of a model.
        d_model: Width of the model: so many rows are queries, and keys and values have half of the
            rest each.

    Returns:
        The same, with three projections for every `self_attn.qkv_proj`.

    Raises:
        ValueError: If a fused projection has not enough rows.
    """
    separate = {}
    for name, tensor in state_dict.items():
        if _FUSED not in name:
            separate[name] = tensor
            continue
        rest = tensor.shape[0] - d_model
        if rest < 2 or rest % 2:
            raise ValueError(
                f"`{name}` has {tensor.shape[0]} rows, which are not queries, keys and values of "
                f"`d_model` ({d_model}): give the width of the model."
            )
        parts = tensor.split((d_model, rest // 2, rest // 2))
        for part, rows in zip(_SEPARATE, parts, strict=True):
            separate[name.replace("qkv_proj", part)] = rows.clone()
    return separate
