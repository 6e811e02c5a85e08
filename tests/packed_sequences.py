"""Stands in for what packed sequences need of a GPU, where a CPU computes."""

import torch
import torch.nn.functional as F

from vanilla_transformer.model import attention
from vanilla_transformer.model.pretrained_model import VanillaTransformerPreTrainedModel


def pretend_to_pack(monkeypatch):
    """Lets models pack sequences, and a loop over the sequences compute their attention."""
    monkeypatch.setattr(VanillaTransformerPreTrainedModel, "packs_sequences", lambda self: True)
    monkeypatch.setattr(attention, "varlen_attn", attend_to_each)


def attend_to_each(
    query, key, value, query_bounds, key_bounds, *longest, scale, window_size, enable_gqa=False
):
    mixed = []
    for number in range(len(query_bounds) - 1):
        bounds = (query_bounds, key_bounds, key_bounds)
        rows = [
            states[b[number] : b[number + 1]].transpose(0, 1)
            for states, b in zip((query, key, value), bounds, strict=True)
        ]
        assert rows[0].shape[1] <= longest[0]
        assert rows[1].shape[1] <= longest[1]
        causal = window_size == (-1, 0)
        options = {"is_causal": causal, "scale": scale, "enable_gqa": enable_gqa}
        mixed.append(F.scaled_dot_product_attention(*rows, **options).transpose(0, 1))
    return torch.cat(mixed)
