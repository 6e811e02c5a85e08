"""Training steps as CUDA graphs: the device runs a whole step at one call of the processor.

A step of a Transformer starts over a thousand kernels. A processor starts them more slowly than a
GPU computes them, unless the batch is large. A CUDA graph records them once, and then starts them
all at once; its shapes are fixed. So batches are packed: their tokens without padding, filled up to
one of a few sizes.

A packed batch holds the arguments of the model's forward for packed sequences.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn
from transformers.utils import logging

from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler
from vanilla_transformer.model.graphs import Recorder, runs_recordable_code
from vanilla_transformer.model.inputs import (
    IGNORE_INDEX,
    hide_leading_padding,
    padding_and_start,
    shift_right,
)
from vanilla_transformer.model.token_layout import source_token_mask, target_token_mask

logger = logging.get_logger(__name__)

MOST_SIZES = 24
"""Sizes of batches for which graphs are kept, each with memory of its own; chosen, not measured."""
_ALIGNED = 8  # numbers of tokens are multiples of it, for products of matrices
_LENGTH_STEP = 128  # of the longest sequence; the kernels compute as many tokens at once
_TOKENS_OF_A_BLOCK = 0.5 / 64  # cost of a sequence for each position of the longest one, in tokens
_LITTLE_FILLED = 1.05  # ratio of tokens with filling to tokens; chosen, not measured
_SAMPLED, _EPOCHS = 2000, 8  # batches from which sizes are chosen, and the most epochs of them
_PACKED = {"input_ids", "attention_mask", "decoder_input_ids", "labels"}

Batch = dict[str, Any]
Ints = NDArray[np.int64]


# Sizes --------------------------------------------------------------------------------------------


def sizes_for(sampler: TokenBudgetBatchSampler) -> Ints:
    """Chooses the sizes to which the batches of a sampler are filled up, by its first epochs."""

    def draw_batches() -> Iterator[list[int]]:
        for epoch in range(_EPOCHS):
            sampler.set_epoch(epoch)
            yield from sampler

    batches = [*islice(draw_batches(), _SAMPLED)]
    sampler.set_epoch(0)
    return choose_sizes(batches, sampler.source_lengths, sampler.target_lengths, sampler.max_tokens)


def choose_sizes(
    batches: Iterable[Sequence[int]], source_lengths: Ints, target_lengths: Ints, max_tokens: int
) -> Ints:
    """Chooses the sizes to which packed batches are filled up.

    The sizes of the batches are joined, two at a time, where that costs least: until there are
    `MOST_SIZES`, and further while little is filled up, because the first step of each size is not
    replayed.

    Args:
        batches: Indices of the examples of each batch.
        source_lengths, target_lengths: Number of tokens of each example.
        max_tokens: Largest size of a batch, in tokens of source and target.

    Returns:
        Of each size the number of source tokens, target tokens and sequences, and the longest
        source and target: (sizes, 5), the cheapest first.
    """
    rows = [np.asarray(batch) for batch in batches]
    needs = np.array([_need(source_lengths[r], target_lengths[r], max_tokens) for r in rows])
    tokens = sum(int(side[r].sum()) for side in (source_lengths, target_lengths) for r in rows)
    grid = 1 + max_tokens // 32  # batches within it begin as one size: about a hundred in all
    _, size_of_batch, counts = np.unique(
        needs // [grid, grid, grid, 1, 1], axis=0, return_inverse=True, return_counts=True
    )
    sizes = np.zeros((len(counts), needs.shape[1]), np.int64)
    np.maximum.at(sizes, size_of_batch, needs)
    sizes[:, :3] = -(-sizes[:, :3] // _ALIGNED) * _ALIGNED
    largest = sizes.max(0)
    largest[:3] += largest[:3] // 4  # batches of other epochs are of other pairs
    while len(sizes) > 1:
        joined = np.maximum(sizes[:, None], sizes[None])
        own = _cost(sizes) * counts
        added = _cost(joined) * (counts[:, None] + counts) - own[:, None] - own
        np.fill_diagonal(added, np.inf)
        first, second = np.unravel_index(added.argmin(), added.shape)
        filled = (sizes[:, :2].sum(1) * counts).sum()
        if len(sizes) < MOST_SIZES and filled > _LITTLE_FILLED * tokens:
            break
        sizes[first] = joined[first, second]
        counts[first] += counts[second]
        sizes, counts = np.delete(sizes, second, 0), np.delete(counts, second)
    sizes = np.concatenate([sizes, largest[None]])
    return sizes[np.argsort(_cost(sizes), kind="stable")]


def _need(source_lengths: Any, target_lengths: Any, max_tokens: int) -> list[int]:
    """Returns the smallest size for the lengths of a batch, in the order of `choose_sizes`.

    It has room for filling: a token of each side for each of its sequences.
    """
    filling = 1 + max_tokens // 100  # more than the longest filling has sequences
    longest = (-(-int(side.max()) // _LENGTH_STEP) for side in (source_lengths, target_lengths))
    return [
        int(source_lengths.sum()) + filling,
        int(target_lengths.sum()) + filling,
        len(source_lengths) + filling,
        *(parts * _LENGTH_STEP for parts in longest),
    ]


def _cost(sizes: Ints) -> NDArray[np.float64]:
    """Returns the cost of steps of sizes, (..., 5), in tokens."""
    source, target, sequences, *longest = np.moveaxis(sizes, -1, 0)
    cost: NDArray[np.float64] = source + target + _TOKENS_OF_A_BLOCK * sequences * sum(longest)
    return cost


# Packed batches -----------------------------------------------------------------------------------


def collate_packed(
    collate: Callable[..., Mapping[str, torch.Tensor]],
    config: Any,
    sizes: Ints,
    max_tokens: int,
    features: Sequence[Any],
) -> Batch:
    """Makes a packed batch, as `pack_batch` does, of the batch that another collator makes."""
    return pack_batch(collate(features), config, sizes, max_tokens)


def pack_batch(
    batch: Mapping[str, torch.Tensor], config: Any, sizes: Ints, max_tokens: int
) -> Batch:
    """Packs a padded batch on the CPU into the first size that has room for it.

    A batch for which there is no size, or that holds more than tokens, stays as it is.

    Args:
        config: Of the model that it is for.
        sizes: As from `choose_sizes`.
        max_tokens: Largest size of a batch, in tokens of source and target.
    """
    if not batch.keys() <= _PACKED:
        return dict(batch)
    ids, labels = batch["input_ids"], batch["labels"]
    pad, start = padding_and_start(config)
    decoder_ids = batch.get("decoder_input_ids")
    if decoder_ids is None:
        decoder_ids = shift_right(labels, pad, start)
    mask = hide_leading_padding(labels, decoder_ids, start)
    is_source = source_token_mask(batch.get("attention_mask", torch.ones_like(ids)), ids.shape)
    is_target = target_token_mask(labels, mask, labels.shape)
    if is_source is None or is_target is None:  # a mask tells more than padding
        return dict(batch)
    lengths = is_source.sum(1), is_target.sum(1)
    has_room = (sizes >= _need(*lengths, max_tokens)).all(1)
    if not has_room.any():
        return dict(batch)
    *tokens, sequences, longest_source, longest_target = sizes[has_room.argmax()].tolist()
    # Tokens that a kernel leaves out have no value, so that filling belongs to sequences too. Each
    # sequence of filling in the target has one in the source.
    missing = [size - int(side.sum()) for size, side in zip(tokens, lengths, strict=True)]
    longest = longest_source, longest_target
    number = max(-(-count // most) for count, most in zip(missing, longest, strict=True))
    source, target = (
        _Side(*side, sequences, number)
        for side in zip((is_source, is_target), missing, strict=True)
    )
    return {
        "input_ids": source.pack(ids, pad),
        "attention_mask": source.pack(torch.ones_like(ids), 0),
        "decoder_input_ids": target.pack(decoder_ids, pad),
        "labels": target.pack(labels, IGNORE_INDEX),
        "cu_seq_lens_k": source.bounds,
        "cu_seq_lens_q": target.bounds,
        "max_length_k": min(longest_source, tokens[0]),
        "max_length_q": min(longest_target, tokens[1]),
    }


class _Side:
    """The tokens of one side of a padded batch, filled up to a size.

    Args:
        is_token: True for each token, of shape (batch, length).
        missing: Number of tokens of filling.
        sequences: Number of sequences of the size; the last ones are empty.
        number: Number of sequences of filling.
    """

    def __init__(self, is_token: torch.Tensor, missing: int, sequences: int, number: int) -> None:
        self.indices, self.missing = is_token.flatten().nonzero().squeeze(1), missing
        filling = torch.full((number,), missing // number)
        filling[: missing % number] += 1
        lengths = torch.cat([is_token.sum(1), filling])
        lengths = F.pad(lengths, (0, sequences - len(lengths)))
        self.bounds = F.pad(lengths.cumsum(0), (1, 0)).int()

    def pack(self, values: torch.Tensor, fill: int) -> torch.Tensor:
        """(batch, length) -> (1, tokens)."""
        return F.pad(values.flatten()[self.indices], (0, self.missing), value=fill)[None]


# Steps --------------------------------------------------------------------------------------------


@dataclass
class _Recorded:
    """A recorded step: its inputs are written, it is replayed, and its loss is read."""

    inputs: Batch
    num_items: torch.Tensor
    loss: torch.Tensor
    reached: list[bool]  # whether the loss reaches each parameter: only these have a gradient
    graph: torch.cuda.CUDAGraph


class CapturedSteps:
    """Computes losses of packed batches, and adds their gradients to the parameters' gradients.

    The first step of a size runs as any other does; from the second one on, its graph is replayed.
    Graphs keep the addresses of weights and gradients, and all numbers of the model: weights may
    change their values alone.

    Args:
        model: Computes a loss as the model's forward does, on a GPU.
        dtype: Type of autocast, for which each step converts the weights of linear layers once.
            None: nothing is converted.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.model, self._state = model, _state_of(model)
        self._parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self._replica = None if dtype is None else _LowPrecisionReplica(model, dtype)
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._copies: list[torch.Tensor] | None = None  # of gradients, while they are summed
        self._recorder = Recorder(self._parameters[0].device)
        # By size, the last used last. None: seen once; False: it lacks memory.
        self._recorded: OrderedDict[Any, _Recorded | Literal[False] | None] = OrderedDict()

    def is_current_for(self, model: nn.Module) -> bool:
        """Returns whether graphs of this model hold: the same weights, addresses and numbers."""
        return self.model is model and self._state == _state_of(model)

    def __call__(self, batch: Batch, num_items: torch.Tensor) -> torch.Tensor:
        """Returns the loss of a packed batch on the device, and adds its gradient.

        Args:
            num_items: Number of labels by which the loss is divided, of shape ().
        """
        size = tuple(getattr(value, "shape", value) for value in batch.values())
        recorded = self._recorded.get(size)
        if size in self._recorded and recorded is None:
            recorded = self._record(batch, num_items)
        self._recorded[size] = recorded
        self._recorded.move_to_end(size)
        if len(self._recorded) > MOST_SIZES:
            self._recorded.popitem(last=False)
        earlier = self._copy_gradients()
        if not recorded:
            loss, gradients = self._compute_in_memory(batch, num_items)
            self._write(gradients)
            reached = [gradient is not None for gradient in gradients]
        else:
            for name, value in batch.items():
                if isinstance(value, torch.Tensor):
                    recorded.inputs[name].copy_(value, non_blocking=True)
            recorded.num_items.copy_(num_items)
            recorded.graph.replay()
            loss, reached = recorded.loss.clone(), recorded.reached
        self._set_gradients(reached, earlier)
        return loss

    def _copy_gradients(self) -> list[torch.Tensor | None]:
        """Returns a copy of each gradient so far: the step writes its own in their place."""
        gradients = [parameter.grad for parameter in self._parameters]
        old = [gradient for gradient in gradients if gradient is not None]
        if old and self._copies is None:
            self._copies = [torch.empty_like(parameter) for parameter in self._parameters]
        pairs = zip(self._copies or gradients, gradients, strict=True)
        copies = [None if gradient is None else copy for copy, gradient in pairs]
        if old:
            torch._foreach_copy_([copy for copy in copies if copy is not None], old)
        return copies

    def _set_gradients(
        self, reached: Sequence[bool], earlier: Sequence[torch.Tensor | None]
    ) -> None:
        """Gives the weights that the loss reaches their gradients, with the earlier ones added."""
        sums, added = [], []
        rows = zip(self._parameters, self._gradients, reached, earlier, strict=True)
        for parameter, gradient, is_reached, before in rows:
            if is_reached:
                parameter.grad = gradient
                if before is not None:
                    sums.append(gradient)
                    added.append(before)
        if sums:
            torch._foreach_add_(sums, added)

    def _compute(
        self, batch: Batch, num_items: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        """Returns the loss of a step, and its gradient by each weight, None where it has none."""
        inputs = {name: value for name, value in batch.items() if name != "attention_mask"}
        inputs |= {"use_cache": False, "num_items_in_batch": num_items}
        if self._replica is not None:
            return self._replica.compute(inputs, self._parameters)
        loss = self.model(**inputs).loss
        return loss.detach(), torch.autograd.grad(loss, self._parameters, allow_unused=True)

    def _compute_in_memory(
        self, batch: Batch, num_items: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        """Computes a step; if it lacks memory, the graphs are dropped, with all that they hold."""
        with suppress(torch.OutOfMemoryError):
            return self._compute(batch, num_items)
        for size in [size for size, recorded in self._recorded.items() if recorded]:
            del self._recorded[size]
        self._recorder = Recorder(self._recorder.device)
        torch.cuda.empty_cache()
        return self._compute(batch, num_items)

    def _write(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Writes gradients to their addresses: few kernels, in place of one for each parameter."""
        pairs = zip(self._gradients, gradients, strict=True)
        kept, new = zip(*[(at, value) for at, value in pairs if value is not None], strict=True)
        torch._foreach_copy_(kept, new)

    def _record(self, batch: Batch, num_items: torch.Tensor) -> "_Recorded | Literal[False] | None":
        """Records a step; nothing is computed.

        Returns:
            The step. None: it cannot be recorded now; False: it will never be.
        """
        inputs = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        items, loss = num_items.clone(), torch.zeros((), device=num_items.device)
        reached: list[bool] = []

        def step() -> None:
            new_loss, gradients = self._compute(inputs, items)
            loss.copy_(new_loss)
            self._write(gradients)
            reached[:] = [gradient is not None for gradient in gradients]

        torch.cuda.empty_cache()  # a recording cannot use memory that is free, but not given back
        try:
            graph = self._recorder.record(step)
        except torch.OutOfMemoryError:
            logger.warning_once(
                "Some training steps lack memory to be recorded, and run more slowly: a smaller "
                "`max_tokens`, with more `gradient_accumulation_steps`, helps."
            )
            return False
        return None if graph is None else _Recorded(inputs, items, loss, reached, graph)


def can_be_recorded(model: nn.Module) -> bool:
    """Returns whether a graph repeats all that a step of a model does, as hooks are not called."""
    hooks = ((p._backward_hooks, p._post_accumulate_grad_hooks) for p in model.parameters())
    return runs_recordable_code(model) and not any(map(any, hooks))


def _state_of(model: nn.Module) -> list[Any]:
    """Returns the state of a model that graphs keep: addresses of its tensors, and its numbers."""
    config: Any = model.config
    state = [config.label_smoothing, config.logit_scale]
    state += [(weight.data_ptr(), weight.requires_grad) for weight in model.parameters()]
    for module in model.modules():
        for value in (*vars(module).values(), *module._buffers.values()):
            if type(value) in (bool, int, float):
                state.append(value)
            elif isinstance(value, torch.Tensor):
                state.append(value.data_ptr())
    return state


class _LowPrecisionReplica(nn.Module):
    """A model under autocast that converts the weights of all linear layers at once.

    Autocast itself converts each weight where it is used, with a kernel for each. The autocast that
    Accelerate puts around the model's forward is left out.

    Args:
        dtype: Type of autocast, and of the copies; the weights keep theirs.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self._dtype = model, dtype
        self._weights = {
            f"{name}.{key}": weight
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear)
            for key, weight in module.named_parameters(recurse=False)
            if weight.is_floating_point()
        }
        self._copies = {
            name: weight.detach().to(dtype).requires_grad_(weight.requires_grad)
            for name, weight in self._weights.items()
        }

    def compute(
        self, inputs: dict[str, Any], parameters: Sequence[nn.Parameter]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        """Converts the weights; returns the loss, and its gradient by each parameter, or None."""
        with torch.no_grad():
            torch._foreach_copy_([*self._copies.values()], [*self._weights.values()])
        with torch.autocast(parameters[0].device.type, self._dtype):
            # A weight that is tied to an embedding is converted for the linear layer alone.
            called = torch.func.functional_call
            loss = called(self, self._copies, kwargs=inputs, tie_weights=False).loss
        trained = [name for name, copy in self._copies.items() if copy.requires_grad]
        used = [*parameters, *(self._copies[name] for name in trained)]
        computed = torch.autograd.grad(loss, used, allow_unused=True)
        gradients = dict(zip(parameters, computed, strict=False))
        for name, gradient in zip(trained, computed[len(parameters) :], strict=True):
            if gradient is not None:
                own = gradients[self._weights[name]]
                gradients[self._weights[name]] = gradient if own is None else own + gradient
        return loss.detach(), tuple(gradients[parameter] for parameter in parameters)

    def forward(self, **inputs: Any) -> Any:
        return type(self.model).forward(self.model, **inputs)
