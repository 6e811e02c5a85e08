"""Training steps as CUDA graphs: the device runs a whole step at one call of the processor.

A step of a Transformer starts over a thousand kernels. A processor starts them more slowly than a
GPU computes them, unless the batch is large. A CUDA graph records them once, and then starts them
all at once; its shapes are fixed. So batches are packed: their tokens without padding, filled up to
one of a few sizes.

A packed batch has these tensors; `tokens` differs between source and target:

    input_ids, attention_mask, source_positions: (1, tokens).
    decoder_input_ids, labels, target_positions: (1, tokens).
    source_bounds, target_bounds: Where each sequence begins, (sequences + 1,).
    source_longest, target_longest: No sequence has more tokens; an int.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vanilla_transformer.model.inputs import IGNORE_INDEX, hide_leading_padding, shift_right
from vanilla_transformer.model.modes import record
from vanilla_transformer.model.token_layout import (
    PackedLayout,
    StepPlan,
    source_slots,
    target_slots,
)

_PARTS = 32  # of `max_tokens`: the number of tokens of a side is a multiple of one
_FILL = 64  # about the number of tokens of a sequence of filling
_LENGTH_STEP = 128  # of the longest sequence; the kernels compute as many tokens at once
_PACKED = {"input_ids", "attention_mask", "decoder_input_ids", "labels"}

Batch = dict[str, Any]


def collate_packed(
    collate: Callable[..., Mapping[str, torch.Tensor]],
    config: Any,
    max_tokens: int,
    features: Sequence[Any],
) -> Batch:
    """Makes a packed batch, as `pack_batch` does, of what another collator makes of features."""
    return pack_batch(collate(features), config, max_tokens)


def pack_batch(batch: Mapping[str, torch.Tensor], config: Any, max_tokens: int) -> Batch:
    """Packs a padded batch on the CPU; one that holds more than tokens stays as it is.

    Args:
        config: Of the model that it is for.
        max_tokens: Largest size of a batch, in tokens of source and target.
    """
    if not batch.keys() <= _PACKED:
        return dict(batch)
    step = max(1, max_tokens // _PARTS // _FILL) * _FILL
    ids, labels = batch["input_ids"], batch["labels"]
    pad, start = config.pad_token_id, config.decoder_start_token_id
    decoder_ids = batch.get("decoder_input_ids")
    if decoder_ids is None:
        decoder_ids = shift_right(labels, pad, start)
    mask = hide_leading_padding(labels, decoder_ids, start)
    is_source = source_slots(batch.get("attention_mask", torch.ones_like(ids)), ids.shape)
    is_target = target_slots(labels, mask, labels.shape)
    if is_source is None or is_target is None:  # a mask tells more than padding
        return dict(batch)
    source, target = _Side(is_source, step), _Side(is_target, step)
    return {
        "input_ids": source.pack(ids, pad),
        "attention_mask": source.pack(torch.ones_like(ids), 0),
        "decoder_input_ids": target.pack(decoder_ids, pad),
        "labels": target.pack(labels, IGNORE_INDEX),
        **source.described_as("source"),
        **target.described_as("target"),
    }


class _Side:
    """The tokens of one side of a padded batch, and the sequences that fill its number up.

    What a kernel leaves out has no value, so that filling belongs to sequences too. Each sequence
    of filling in the target has one in the source.

    Args:
        is_token: True for each token, of shape (batch, length).
        step: The number of tokens becomes a multiple of this multiple of 64.
    """

    def __init__(self, is_token: torch.Tensor, step: int) -> None:
        self.indices = is_token.flatten().nonzero().squeeze(1)
        count = len(self.indices)
        parts = step // _FILL
        self.tokens = ((count + parts) // step + 1) * step
        number, rest = divmod(self.tokens - count, parts)
        filling = torch.full((parts,), number) + (torch.arange(parts) < rest)
        self.lengths = torch.cat([is_token.sum(1), filling])

    def pack(self, values: torch.Tensor, fill: int) -> torch.Tensor:
        """(batch, length) -> (1, tokens)."""
        packed = values.flatten()[self.indices]
        return F.pad(packed, (0, self.tokens - len(packed)), value=fill)[None]

    def described_as(self, name: str) -> Batch:
        """Returns bounds, positions and the longest length, under their names in a batch."""
        bounds = F.pad(self.lengths.cumsum(0), (1, 0))
        begins = bounds[:-1].repeat_interleave(self.lengths)
        # A power of two of sequences, of which the last ones are empty.
        missing = (1 << (len(self.lengths) - 1).bit_length()) - len(self.lengths)
        longest = -(-int(self.lengths.max()) // _LENGTH_STEP) * _LENGTH_STEP
        return {
            f"{name}_bounds": F.pad(bounds, (0, missing), value=self.tokens).int(),
            f"{name}_positions": (torch.arange(self.tokens) - begins)[None],
            f"{name}_longest": min(longest, self.tokens),
        }


def plan_of(batch: Mapping[str, Any]) -> StepPlan:
    """Makes the plan of a packed batch."""
    source, target = (
        PackedLayout(batch[f"{s}_bounds"], batch[f"{s}_positions"], batch[f"{s}_longest"])
        for s in ("source", "target")
    )
    return StepPlan(source, target, lazy_logits=True)


@dataclass
class _Recorded:
    """A recorded step: its inputs are written, it is replayed, and its loss is read."""

    inputs: Batch
    num_items: torch.Tensor
    loss: torch.Tensor
    graph: torch.cuda.CUDAGraph


class CapturedSteps:
    """Computes losses of packed batches, and adds their gradients to those of the parameters.

    The first step of a shape runs as any other does; from the second one on, its graph is replayed.
    Graphs keep the addresses of weights and gradients: weights may change their values alone.

    Args:
        model: Computes a loss as the model's forward does.
        dtype: The type in which all is computed, with a copy of the weights that each step writes
            once; the model's autocast is left out. None: the weights themselves are used.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.model, self._places = model, _places_of(model)
        self._parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self._converted = None if dtype is None else _ConvertedModel(model, dtype)
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._recorded: dict[Any, _Recorded | None] = {}
        self._last: _Recorded | None = None

    def fits(self, model: nn.Module) -> bool:
        """Returns whether it trains this model: the same weights at the same places."""
        return self.model is model and self._places == _places_of(model)

    def __call__(self, batch: Batch, num_items: torch.Tensor) -> torch.Tensor:
        """Returns the loss of a packed batch on the device, and adds its gradient.

        Args:
            num_items: Number of labels by which the loss is divided, of shape ().
        """
        adds = self._take_gradients()
        shapes = adds, *(getattr(value, "shape", value) for value in batch.values())
        if shapes not in self._recorded:
            self._recorded[shapes] = None
            return self._compute(batch, num_items, adds)
        recorded = self._recorded[shapes]
        if recorded is None:
            recorded = self._last = self._recorded[shapes] = self._record(batch, num_items, adds)
        for name, value in batch.items():
            if isinstance(value, torch.Tensor):
                recorded.inputs[name].copy_(value, non_blocking=True)
        recorded.num_items.copy_(num_items)
        recorded.graph.replay()
        return recorded.loss.clone()

    def _take_gradients(self) -> bool:
        """Moves the gradients to their addresses; returns whether there are any yet."""
        adds = any(parameter.grad is not None for parameter in self._parameters)
        for parameter, kept in zip(self._parameters, self._gradients, strict=True):
            if adds and parameter.grad is not kept:  # a step that was not packed has made it
                kept.zero_() if parameter.grad is None else kept.copy_(parameter.grad)
            parameter.grad = kept
        return adds

    def _compute(self, batch: Batch, num_items: torch.Tensor, adds: bool) -> torch.Tensor:
        """Computes a step; its gradient is added to the others, or written in their place."""
        inputs = {name: batch[name] for name in ("input_ids", "decoder_input_ids", "labels")}
        inputs |= {"use_cache": False, "num_items_in_batch": num_items, "plan": plan_of(batch)}
        output = self._converted.compute(inputs) if self._converted else self.model(**inputs)
        used = self._converted.trained if self._converted else self._parameters
        made = torch.autograd.grad(output.loss, used, materialize_grads=True)
        # Few kernels, in place of one for each parameter.
        (torch._foreach_add_ if adds else torch._foreach_copy_)(self._gradients, made)
        loss: torch.Tensor = output.loss.detach()
        return loss

    def _record(self, batch: Batch, num_items: torch.Tensor, adds: bool) -> _Recorded:
        """Records a step; nothing is computed."""
        inputs = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        items, loss = num_items.clone(), torch.zeros((), device=num_items.device)

        def step() -> None:
            loss.copy_(self._compute(inputs, items, adds))

        graph = record(step, None if self._last is None else self._last.graph)
        return _Recorded(inputs, items, loss, graph)


def _places_of(model: nn.Module) -> list[tuple[int, bool]]:
    """Returns where each weight lies, and whether it is trained."""
    return [(weight.data_ptr(), weight.requires_grad) for weight in model.parameters()]


class _ConvertedModel(nn.Module):
    """A model that computes with a copy of its weights, in another type.

    What Accelerate puts around the model's forward, which is autocast, is left out.

    Args:
        dtype: Type of the copy; the weights keep theirs.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        named = self.named_parameters()
        self._weights = {name: weight for name, weight in named if weight.is_floating_point()}
        self._copies = {
            name: weight.detach().to(dtype).requires_grad_(weight.requires_grad)
            for name, weight in self._weights.items()
        }
        self.trained = [copy for copy in self._copies.values() if copy.requires_grad]

    def compute(self, inputs: dict[str, Any]) -> Any:
        """Converts the weights, and returns the model's output."""
        with torch.no_grad():
            torch._foreach_copy_([*self._copies.values()], [*self._weights.values()])
        return torch.func.functional_call(self, self._copies, kwargs=inputs)

    def forward(self, **inputs: Any) -> Any:
        return type(self.model).forward(self.model, **inputs)
