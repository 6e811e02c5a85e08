"""Keys and values while `generate()` runs: room to grow, and one copy of each source.

Shapes: a row is one sequence that is decoded. The rows of one source, its beams or samples, stand
beside each other: rows = sources · copies. Other names are those of `attention`.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache

_ROOM = 64
"""Positions to reserve beyond the prompt. An operating system gives memory when they are used."""


class DecodingCache(Cache):
    """Takes the keys and values of an ordinary cache over, and gives them back at the end.

    Compared with a `DynamicCache`, a new token is written into reserved room, where the other joins
    all tokens anew. Beams change places by moving what differs between them. The source, which is
    the same for all its beams, is stored once and stays where it is.

    Args:
        plain: A `DynamicCache`, or a pair of them with the keys and values of the source, after the
            first call of the decoder.
        copies: Number of neighbouring rows that decode the same source; so far they hold the same.
    """

    def __init__(self, plain: Cache, copies: int) -> None:
        super().__init__(layers=[])
        self.copies = copies
        self.length = plain.get_seq_length()
        self._plain = plain
        own, source = _filled_layers(plain)
        self.sources: list[tuple[torch.Tensor, torch.Tensor]] = [
            (layer.keys[::copies].contiguous(), layer.values[::copies].contiguous())
            for layer in source
        ]
        parts = [part for layer in own for part in (layer.keys, layer.values)]
        self._make_room(parts, self.length + _ROOM)
        self.rows = len(parts[0])
        # For two rows of a source, the number of first tokens that were copied from one row.
        sources = self.rows // copies
        device = parts[0].device
        self._shared = torch.zeros(sources, copies, copies, dtype=torch.long, device=device)
        for layer in own + source:
            layer.keys = layer.values = None

    def _make_room(self, parts: Any, room: int) -> None:
        """Moves parts, of shape (rows, key_value_heads, length, head_dim), to where more fits."""
        rows, heads, _, head_dim = parts[0].shape
        self._room = room
        self._states = parts[0].new_empty(len(parts), rows, heads, room, head_dim)
        self._parts = list(self._states.unbind(0))
        for own, given in zip(self._parts, parts, strict=True):
            own[:, :, : self.length].copy_(given[:, :, : self.length])

    def begin_step(self) -> None:
        """Makes room for one more token of each row."""
        if self.length == self._room:
            self._make_room(self._parts, self._room + self._room // 2)
        self.length += 1

    def append(
        self, layer_idx: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the keys and values of the token that `begin_step` made room for.

        Args:
            layer_idx: Index of the layer.
            key: Of shape (rows, key_value_heads, head_dim).
            value: Of shape (rows, key_value_heads, head_dim).

        Returns:
            Keys and values of all tokens, of shape (rows, key_value_heads, length, head_dim).
        """
        keys, values = self._parts[2 * layer_idx : 2 * layer_idx + 2]
        keys.select(2, self.length - 1).copy_(key)
        values.select(2, self.length - 1).copy_(value)
        return keys.narrow(2, 0, self.length), values.narrow(2, 0, self.length)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the number of tokens of a row."""
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Returns the number of keys of the next call, and the first key's position."""
        return self.length + query_length, 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Gives each row the past of another row of its source, which beam search has chosen.

        Two beams differ only since they parted, and only that is moved.

        Args:
            beam_idx: For each row the row whose past it goes on from, of shape (rows,).
        """
        parents = beam_idx.view(-1, self.copies) % self.copies  # within the source
        shared = self._shared.gather(1, parents[:, :, None].expand_as(self._shared))
        starts = shared.diagonal(dim1=1, dim2=2)
        self._shared = shared.gather(2, parents[:, None, :].expand_as(shared))
        self._shared.masked_fill_(parents[:, :, None] == parents[:, None, :], self.length)
        stays = parents == torch.arange(self.copies, device=parents.device)
        starts = torch.where(stays, self.length, starts).amin(1)
        for source, start in enumerate(starts.tolist()):
            if start < self.length:
                rows = slice(source * self.copies, (source + 1) * self.copies)
                differing = self._states[:, rows, :, start : self.length]
                differing.copy_(differing.index_select(1, parents[source]))

    def to_plain(self) -> Cache:
        """Gives keys and values back to the ordinary cache that they were taken from.

        Returns:
            That cache.
        """
        own, source = _filled_layers(self._plain)
        for layer, keys, values in zip(own, self._parts[::2], self._parts[1::2], strict=True):
            layer.keys = keys[:, :, : self.length].clone()
            layer.values = values[:, :, : self.length].clone()
        for layer, states in zip(source, self.sources, strict=True):
            layer.keys, layer.values = (part.repeat_interleave(self.copies, 0) for part in states)
        return self._plain


def _filled_layers(plain: Any) -> tuple[list[Any], list[Any]]:
    """Returns the layers in use: of the target, and of the source if there is one."""
    if not isinstance(plain, EncoderDecoderCache):
        return _layers_in_use(plain), []
    return _layers_in_use(plain.self_attention_cache), _layers_in_use(plain.cross_attention_cache)


def _layers_in_use(cache: Any) -> list[Any]:
    return [layer for layer in cache.layers if layer.is_initialized]
