"""Stands in for what packed sequences need of a GPU, where a CPU computes."""

import torch
import torch.nn.functional as F

from vanilla_transformer.model import attention
from vanilla_transformer.model.pretrained_model import VanillaTransformerPreTrainedModel


def pretend_to_pack(monkeypatch):
    """Lets models pack sequences, and a loop over the sequences compute their attention."""
    monkeypatch.setattr(VanillaTransformerPreTrainedModel, "packs_sequences", lambda self: True)
    monkeypatch.setattr(attention, "attend_to_sequences", attend_to_each)


def attend_to_each(
    query, key, value, query_bounds, key_bounds, longest_query, longest_key, causal, scale
):
    """Computes what the kernel does, from states of shape (1, tokens, heads, head_dim)."""
    mixed = []
    for number in range(len(query_bounds) - 1):
        bounds = (query_bounds, key_bounds, key_bounds)
        rows = [
            states[:, b[number] : b[number + 1]].transpose(1, 2)
            for states, b in zip((query, key, value), bounds, strict=True)
        ]
        assert rows[0].shape[2] <= longest_query <= query.shape[1]
        assert rows[1].shape[2] <= longest_key <= key.shape[1]
        attended = F.scaled_dot_product_attention(*rows, is_causal=causal, scale=scale)
        mixed.append(attended.transpose(1, 2))
    return torch.cat(mixed, 1), None
