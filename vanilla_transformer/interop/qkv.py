"""Converts between layouts of attention projections: separate, fused, and fused head by head.

The functions only move rows of weights and entries of biases, so a round trip is exact.
"""

from collections.abc import Mapping

import torch

_SEPARATE = ("q_proj", "k_proj", "v_proj")
_FUSED_NAME = "self_attn.qkv_proj."


def from_per_head(stacked: torch.Tensor, num_heads: int, num_parts: int = 3) -> list[torch.Tensor]:
    """Splits a fused projection whose rows lie head by head.

    Args:
        stacked: A weight of shape (parts · heads · head_dim, d_model), or a bias of shape
            (parts · heads · head_dim). The rows are [q_0, k_0, v_0, q_1, k_1, v_1, ...], where each
            entry stands for head_dim rows.
        num_heads: Number of heads.
        num_parts: 3 for queries, keys and values; 2 for the keys and values of cross-attention.

    Returns:
        The weights or biases of each part, of shape (heads · head_dim, d_model) or
        (heads · head_dim).

    Raises:
        ValueError: If the number of rows is not a multiple of `num_heads` times `num_parts`.
    """
    rows = stacked.shape[0]
    if rows % (num_heads * num_parts):
        raise ValueError(
            f"A fused projection of {rows} rows cannot hold {num_parts} parts of `num_heads` "
            f"({num_heads}) heads: give the number of heads of the trained model."
        )
    by_head = stacked.unflatten(0, (num_heads, num_parts, -1))
    return [part.flatten(0, 1) for part in by_head.unbind(1)]


def fuse_self_attention(state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Converts weights of a model with `fused_qkv=False` to a model with `fused_qkv=True`.

    Returns:
        The weights with one `self_attn.qkv_proj` in place of three projections. Its rows are all
        queries, then all keys, then all values.
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
    """Converts weights of a model with `fused_qkv=True` to a model with `fused_qkv=False`.

    Args:
        d_model: Width of the model, or with `head_dim` the number of heads times that. So many
            first rows are queries; the rest is divided evenly between keys and values.

    Returns:
        The weights with three projections in place of each `self_attn.qkv_proj`.
    """
    separate = {}
    for name, tensor in state_dict.items():
        if _FUSED_NAME not in name:
            separate[name] = tensor
            continue
        rest = (tensor.shape[0] - d_model) // 2
        parts = tensor.split((d_model, rest, rest))
        for part, rows in zip(_SEPARATE, parts, strict=True):
            separate[name.replace("qkv_proj", part)] = rows.clone()
    return separate
