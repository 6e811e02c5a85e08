"""Stands in for what packed sequences need of a GPU, where a CPU computes."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from vanilla_transformer.model import attention_functions, generation, recorded_search
from vanilla_transformer.model.pretrained_model import VanillaTransformerPreTrainedModel
from vanilla_transformer.training.captured_steps import choose_sizes, pack_batch


def pretend_to_pack(monkeypatch):
    """Lets models pack sequences, and a loop over the sequences compute their attention."""
    monkeypatch.setattr(VanillaTransformerPreTrainedModel, "packs_sequences", lambda self, *_: True)
    monkeypatch.setattr(attention_functions, "attend_to_sequences", attend_to_each)


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


class StandInRecorder:
    """Records a step as the function itself: a replay runs it again."""

    def __init__(self, device):
        self.device = device

    def record(self, step):
        return SimpleNamespace(replay=step)


def pretend_to_record_searches(monkeypatch):
    """Lets a CPU search as a GPU does, with a recorder that records nothing."""
    for module in (recorded_search, generation):
        monkeypatch.setattr(module, "is_on_gpu", lambda model: True)
    monkeypatch.setattr(recorded_search, "Recorder", StandInRecorder)
    monkeypatch.setattr(recorded_search, "_of_thread", SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)


def pack_in_one_size(batch, config, max_tokens=200):
    """Packs a batch, filled up to a size of its own."""
    sources = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).sum(1)
    lengths = sources.numpy(), (batch["labels"] != -100).sum(1).numpy()
    sizes = choose_sizes([range(len(sources))], *lengths, max_tokens)
    return pack_batch(batch, config, sizes, max_tokens)
