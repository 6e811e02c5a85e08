"""The cache of `generate()`: room to grow, and one copy of each source.

A model's forward uses these caches as it uses transformers' `DynamicCache`, of which they are
subclasses. A cache that a call returns may be passed on, cropped, or given other rows.

Shapes: a row is one sequence that is decoded. The rows of one source, its beams or samples, are
neighbours: rows = sources · rows_per_source. Other names are those of `attention`.
"""

from typing import Any, cast

import torch
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation.configuration_utils import GenerationMode

from .modes import is_tracing

_ROOM = 64
"""Positions to reserve beyond those in use. An operating system gives memory when it is used."""

_MODES = (
    GenerationMode.GREEDY_SEARCH,
    GenerationMode.SAMPLE,
    GenerationMode.BEAM_SEARCH,
    GenerationMode.BEAM_SAMPLE,
)
_SHARING_KEYS = ("sdpa", "eager")  # they take any number of queries for a source's keys


def decoding_cache_for(
    cache: Cache | None, generation_config: Any, mode: GenerationMode, attention: str | None
) -> Cache | None:
    """Returns the caches of this file in place of those that `generate()` has made for a call.

    Assisted decoding, which takes tokens back, and caches of other types, such as static or
    offloaded ones, stay as they are.
    """
    if not isinstance(cache, EncoderDecoderCache):
        return cache
    parts: tuple[Any, ...] = (cache.self_attention_cache, cache.cross_attention_cache)
    is_ordinary = all(type(part) is DynamicCache and not part.offloading for part in parts)
    if not is_ordinary or mode not in _MODES or generation_config.is_assistant:
        return cache
    rows_per_source = max(generation_config.num_beams, generation_config.num_return_sequences)
    shares = attention in _SHARING_KEYS
    sources = SourceCache(rows_per_source if shares else 1)
    return EncoderDecoderCache(GrowingCache(rows_per_source), sources)


def rows_per_source_of(cache: EncoderDecoderCache | None) -> int:
    """Returns the number of rows that share a source in a cache: 1 for one of another type."""
    sources = None if cache is None else cache.cross_attention_cache
    return sources.rows_per_source if isinstance(sources, SourceCache) else 1


def mask_per_source(mask: Any, rows_per_source: int, target_len: int) -> Any:
    """Makes a mask for the queries of all rows of a source: see `AttentionFunction`."""
    if mask is None or rows_per_source == 1:
        return mask
    # (rows, 1, target_len or 1, keys) -> (sources, 1, rows_per_source · target_len, keys)
    mask = mask.expand(-1, -1, target_len, -1)
    return mask.unflatten(0, (-1, rows_per_source)).transpose(1, 2).flatten(2, 3)


class GrowingCache(DynamicCache):
    """Keys and values of the target, which writes new tokens into reserved room.

    A `DynamicCache` copies all tokens to add a new one, and again when beams change their order.
    This cache moves only what differs between the beams of a source. Calls with gradients are the
    base class's; after those, and after changed rows, the next call reserves room again.
    """

    layers: list[Any]

    def __init__(self, rows_per_source: int = 1) -> None:
        super().__init__()
        self.rows_per_source = rows_per_source
        # (sources, rows_per_source, rows_per_source): number of first tokens that two rows share
        self._shared = torch.empty(0)
        self._states: Any = None  # (2 · layers, rows, key_value_heads, room, head_dim)
        self._parts: list[tuple[torch.Tensor, torch.Tensor]] = []  # of `_states`, for each layer
        self._in_room: list[torch.Tensor] = []  # the keys of each layer, as they were last returned
        self._writes = False

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds the keys and values of new tokens of a layer, and returns those of all tokens."""
        count = key_states.shape[2]
        if layer_idx == 0:  # decided once for all layers of a call
            self._writes = self._may_write(self.get_seq_length(), count)
        if not self._writes or not self._is_in_room(layer_idx, key_states):
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)
        layer = self.layers[layer_idx]
        start = layer.keys.shape[2]
        keys, values = self._parts[layer_idx]
        keys.narrow(2, start, count).copy_(key_states)
        values.narrow(2, start, count).copy_(value_states)
        layer.keys = self._in_room[layer_idx] = keys.narrow(2, 0, start + count)
        layer.values = values.narrow(2, 0, start + count)
        return layer.keys, layer.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Gives each row the past of another row, which beam search has chosen: (rows,).

        Two beams of a source differ only since they parted, and only that is moved: to move all
        would make a search with 5 beams on a CPU a quarter slower. On a GPU it takes less time to
        move the past of all rows in one kernel.
        """
        length, is_in_use = self.get_seq_length(), self._is_in_use()
        if is_in_use and self._states.device.type != "cpu":
            past = self._states[:, :, :, :length]
            past.copy_(past.index_select(1, beam_idx))
            return
        sources = torch.arange(len(beam_idx), device=beam_idx.device) // self.rows_per_source
        if not is_in_use or (beam_idx // self.rows_per_source != sources).any():
            super().reorder_cache(cast(torch.LongTensor, beam_idx))
            return
        parents = beam_idx.view(-1, self.rows_per_source) % self.rows_per_source
        shared = self._shared.gather(1, parents[:, :, None].expand_as(self._shared))
        starts = shared.diagonal(dim1=1, dim2=2)  # where a row begins to differ from its parent
        self._shared = shared.gather(2, parents[:, None, :].expand_as(shared))
        self._shared.masked_fill_(parents[:, :, None] == parents[:, None, :], length)
        stays = parents == torch.arange(self.rows_per_source, device=parents.device)
        starts = torch.where(stays, length, starts).amin(1)
        for source, start in enumerate(starts.tolist()):
            if start < length:
                beams = slice(source * self.rows_per_source, (source + 1) * self.rows_per_source)
                differing = self._states[:, beams, :, start:length]
                differing.copy_(differing.index_select(1, parents[source]))

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the room out of copies, because pickled views no longer share their memory."""
        return {**vars(self), "_states": None, "_parts": [], "_in_room": []}

    def _may_write(self, start: int, count: int) -> bool:
        """Returns whether a call may write to the room; reserves it if need be."""
        if start == 0 or torch.is_grad_enabled() or is_tracing():
            return False
        if not self._is_in_use() or start + count > self._states.shape[3]:
            self._make_room(start)
        return bool(self._parts)

    def _is_in_use(self) -> bool:
        """Returns whether all layers are in the room; other methods may have replaced their keys.

        Tensors of an inference mode that has ended cannot be written to.
        """
        return (
            len(self._in_room) == len(self.layers) > 0
            and all(layer.keys is k for layer, k in zip(self.layers, self._in_room, strict=True))
            and (torch.is_inference_mode_enabled() or not self._states.is_inference())
        )

    def _is_in_room(self, layer_idx: int, key_states: torch.Tensor) -> bool:
        return (
            layer_idx < len(self._in_room)
            and self.layers[layer_idx].keys is self._in_room[layer_idx]
            and key_states.shape[0] == self._states.shape[1]
            and key_states.dtype == self._states.dtype
        )

    def _make_room(self, length: int) -> None:
        """Moves the keys and values of all layers into a larger room, if all have one shape."""
        self._parts, self._in_room = [], []
        old = [tensor for layer in self.layers for tensor in (layer.keys, layer.values)]
        if any(tensor is None for tensor in old):
            return
        if len({(tensor.shape, tensor.dtype, tensor.device) for tensor in old}) > 1:
            return
        rows, heads, _, head_dim = old[0].shape
        room = length + max(_ROOM, length // 2)
        self._states = old[0].new_empty(len(old), rows, heads, room, head_dim)
        new = self._states.unbind(0)  # each (rows, key_value_heads, room, head_dim)
        for tensor, filled in zip(new, old, strict=True):
            tensor[:, :, :length].copy_(filled)
        self._parts = list(zip(new[::2], new[1::2], strict=True))
        for layer, (keys, values) in zip(self.layers, self._parts, strict=True):
            layer.keys, layer.values = keys[:, :, :length], values[:, :, :length]
            self._in_room.append(layer.keys)
        count = self.rows_per_source
        shape = (rows // count, count, count)
        self._shared = torch.zeros(shape, dtype=torch.long, device=old[0].device)


class SourceCache(DynamicCache):
    """Keys and values of the sources, one copy for all rows that decode the same source.

    Attention takes the rows of a source as the queries of one longer row.
    """

    def __init__(self, rows_per_source: int = 1) -> None:
        super().__init__()
        self.rows_per_source = rows_per_source

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Gives each row the source of another row.

        Rows share a source only in a search, whose beams stay with their source: nothing changes.
        """
        if self.rows_per_source == 1:
            super().reorder_cache(cast(torch.LongTensor, beam_idx))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats each row."""
        self.repeat_sources()
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps some rows."""
        self.repeat_sources()
        super().batch_select_indices(indices)

    def repeat_sources(self) -> None:
        """Makes a copy for each row, as the base class has."""
        super().batch_repeat_interleave(self.rows_per_source)
        self.rows_per_source = 1
