"""Evaluates a model: without dropout and gradients, with banned tokens, or by heads that align."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .configuration_vanilla_transformer import aligning_layer


@dataclass
class _Evaluations:
    """How many blocks evaluate a model now, and the modes to which its modules return."""

    count: int
    modes: list[tuple[torch.nn.Module, bool]]


_running: WeakKeyDictionary[torch.nn.Module, _Evaluations] = WeakKeyDictionary()
_running_lock = threading.Lock()


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Runs a block with a model in eval mode and without gradients.

    Then each of its modules returns to the mode it was in; if several threads evaluate the model,
    with the last of them.
    """
    with _running_lock:
        running = _running.get(model)
        if running is None:
            modes = [(module, module.training) for module in model.modules()]
            _running[model] = running = _Evaluations(0, modes)
        running.count += 1
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        with _running_lock:
            running.count -= 1
            if not running.count:
                del _running[model]
                for module, training in running.modes:
                    module.training = training


@contextmanager
def banned_ids(model: Any, ids: Sequence[int]) -> Iterator[None]:
    """Runs a block in which a model never chooses some ids, such as rows that have no token."""
    banned = torch.tensor(ids, device=model.device)  # once: a recorded step cannot bring it there

    def ban(module: Any, inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits.index_fill(-1, banned.to(logits.device), -torch.inf)

    ban.is_recordable = True  # type: ignore[attr-defined]  # see `graphs`
    hook = model.get_output_embeddings().register_forward_hook(ban) if ids else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def aligning_weights(config: Any, cross_attentions: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the mean weights of the heads that align: (batch, target_len, source_len).

    `config.alignment_heads` names them. Without this field they are those of `aligning_layer`.
    """
    chosen: Any = getattr(config, "alignment_heads", None)
    if chosen is None:
        return cross_attentions[aligning_layer(len(cross_attentions))].float().mean(1)
    weights = [cross_attentions[layer][:, head].float() for layer, head in chosen]
    return torch.stack(weights).mean(0)
