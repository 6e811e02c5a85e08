"""Position ids: the position of each token in its sequence.

They are counted from an attention mask, or given by the caller. Padding takes no position, so a
sequence has the same positions on either side of its padding.

A row may hold concatenated sequences, which follow each other without padding; positions begin anew
with each (`DataCollatorWithFlattening`). As in transformers' Llama, a sequence begins wherever a
given position is not the one before it plus 1, unless there is an attention mask or a past.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import find_packed_sequence_indices

from .attention_masks import allowed_by, tokens_of
from .tracing import has_readable_values, is_tracing

MaskFunction = Callable[[Any, Any, Any, Any], Any]


def positions_from_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers the real tokens of each row from 0, wherever the padding is.

    Args:
        attention_mask: 1 for a token and 0 for padding, of shape (batch, length).

    Returns:
        Positions of shape (batch, length). Padding gets an arbitrary legal position.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def positions_from_causal_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers each token by the number of earlier tokens that it may attend to.

    Args:
        attention_mask: A boolean mask (True where attention is allowed) or an additive one (0 where
            it is allowed), of shape (batch, 1, length, length with the past).

    Returns:
        Positions of shape (batch, length). Padding gets an arbitrary non-negative position.
    """
    return (allowed_by(attention_mask)[:, 0].sum(-1) - 1).clamp(min=0)


def query_position_ids(
    embeds: torch.Tensor,
    attention_mask: Any,
    past_len: int | torch.Tensor = 0,
    is_causal: bool = False,
) -> torch.Tensor:
    """Numbers the current tokens of each row, counting real tokens only.

    With a static cache `generate()` passes the causal mask instead of a padding mask: there, the
    position of a token is the number of earlier tokens that it may attend to.

    Args:
        embeds: Of shape (batch, length, ...); only the shape and device count.
        attention_mask: Of two dimensions, four dimensions, another form, or None.
        past_len: Number of tokens in the cache.
        is_causal: Whether a mask of four dimensions is causal.

    Returns:
        Positions of shape (batch or 1, length).
    """
    length = embeds.shape[1]
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    if dims == 2 or (dims == 4 and not is_causal):
        return positions_from_mask(tokens_of(attention_mask))[:, -length:].to(embeds.device)
    position_ids = torch.arange(length, device=embeds.device)[None] + past_len
    if dims == 4:
        return torch.minimum(positions_from_causal_mask(attention_mask), position_ids)
    return position_ids


def key_position_ids(
    embeds: torch.Tensor, attention_mask: Any, cache: Cache | None
) -> torch.Tensor:
    """Numbers all keys of the decoder, those in the cache included.

    A static cache has room for later keys: they get some position and are masked.

    Args:
        embeds: Of shape (batch, length, ...); only the shape and device count.
        attention_mask: As in `query_position_ids`.
        cache: Keys and values of earlier tokens.

    Returns:
        Positions of shape (batch or 1, length with the past).
    """
    length = embeds.shape[1]
    if cache is not None:
        length, _ = cache.get_mask_sizes(length, 0)
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    if dims == 4:
        return positions_from_mask(allowed_by(attention_mask)[:, 0, -1])
    if dims == 2:
        position_ids = positions_from_mask(tokens_of(attention_mask)).to(embeds.device)
        return F.pad(position_ids, (0, length - position_ids.shape[1]))
    return torch.arange(length, device=embeds.device)[None]


# Positions that the caller gives -----------------------------------------------------------------


def check_position_ids(name: str, position_ids: torch.Tensor, embeds: torch.Tensor) -> torch.Tensor:
    """Returns the positions that a caller gives, on the device of the tokens.

    Args:
        name: Name of the argument, for messages.
        position_ids: Of shape (batch or 1, length).
        embeds: Of shape (batch, length, ...); only the shape and device count.

    Returns:
        Positions of shape (batch or 1, length).

    Raises:
        ValueError: If the shape or the type is another, or if a position is below 0.
    """
    batch, length = embeds.shape[:2]
    if position_ids.dim() != 2 or tuple(position_ids.shape) not in ((batch, length), (1, length)):
        raise ValueError(
            f"`{name}` has the shape {tuple(position_ids.shape)}, but {(batch, length)} is needed: "
            "give one position for each token of this call."
        )
    if position_ids.is_floating_point() or position_ids.dtype == torch.bool:
        raise ValueError(f"`{name}` has the type {position_ids.dtype}: give whole numbers.")
    if has_readable_values(position_ids) and (position_ids < 0).any():
        raise ValueError(f"`{name}` holds {int(position_ids.min())}: positions start at 0.")
    return position_ids.to(embeds.device)


def causal_position_ids(
    position_ids: torch.Tensor | None,
    embeds: torch.Tensor,
    attention_mask: Any,
    cache: Cache | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers the queries and the keys of a decoder, as the caller says or by counting.

    A cache holds no positions: its tokens are taken to come right before those that a caller
    numbers.

    Args:
        position_ids: Positions that the caller gives, of shape (batch or 1, length), or None.
        embeds: Of shape (batch, length, ...); only the shape and device count.
        attention_mask: As in `query_position_ids`.
        cache: Keys and values of earlier tokens.

    Returns:
        Positions of the queries, of shape (batch or 1, length), and of the keys, of shape (batch or
        1, length with the past).
    """
    if position_ids is not None and not _has_past(cache):
        return position_ids, position_ids
    past_len = 0 if cache is None else cache.get_seq_length()
    queries = query_position_ids(embeds, attention_mask, past_len, is_causal=True)
    keys = key_position_ids(embeds, attention_mask, cache)
    if position_ids is None:
        return queries, keys
    return position_ids, keys + (position_ids[:, -1:] - queries[:, -1:])


def _has_past(cache: Cache | None) -> bool:
    is_empty = isinstance(cache, DynamicCache) and cache.get_seq_length() == 0
    return cache is not None and not is_empty


# Concatenated sequences ---------------------------------------------------------------------------


def number_sequences(
    position_ids: torch.Tensor | None, attention_mask: Any = None, cache: Cache | None = None
) -> torch.Tensor | None:
    """Numbers concatenated sequences.

    Args:
        position_ids: Positions that the caller gives, of shape (batch or 1, length), or None.
        attention_mask: The mask of the caller. With one, a row is one sequence.
        cache: Keys and values of earlier tokens. With some, a row is one sequence.

    Returns:
        The number of its sequence for each token, from 0, of shape (batch or 1, length). None if
        every row is one sequence.
    """
    if position_ids is None or attention_mask is not None or _has_past(cache):
        return None
    found: torch.Tensor | None = find_packed_sequence_indices(position_ids)
    return found


def check_one_sequence(position_ids: torch.Tensor | None, attention_mask: Any) -> None:
    """Refuses concatenated sequences where each row has one result.

    Args:
        position_ids: As in `number_sequences`.
        attention_mask: As in `number_sequences`.

    Raises:
        ValueError: If a row holds several sequences.
    """
    sequences = number_sequences(position_ids, attention_mask)
    if sequences is None or type(sequences) is not torch.Tensor or is_tracing():
        return
    if int(sequences[:, -1].max()):
        raise ValueError(
            f"`position_ids` describe a row of {int(sequences[:, -1].max()) + 1} sequences, "
            "but each row has one result: give one sequence a row, or an attention mask."
        )


def attend_within(sequences: torch.Tensor | None, batch: int) -> MaskFunction | None:
    """Makes the part of a mask that keeps the sequences of a row apart.

    Args:
        sequences: The number of its sequence for each token, of shape (batch or 1, length), or
            None.
        batch: Number of rows.

    Returns:
        A mask function of transformers. None if every row is one sequence: nothing is hidden.
    """
    if sequences is None:
        return None
    numbers = sequences.expand(batch, -1)

    def is_same(row: Any, head: Any, query: Any, key: Any) -> Any:
        return numbers[row, query] == numbers[row, key]

    return is_same


def positions_of_lengths(boundaries: torch.Tensor, length: int) -> torch.Tensor:
    """Numbers the tokens of one row from the boundaries of its sequences.

    Args:
        boundaries: 0 and the end of each sequence in tokens, of shape (sequences + 1).
        length: Number of tokens.

    Returns:
        Positions of shape (1, length).
    """
    places = torch.arange(length, device=boundaries.device)
    sequence = torch.searchsorted(boundaries, places, right=True) - 1
    return (places - boundaries.long()[sequence])[None]


def positions_of_sequences(sequences: torch.Tensor) -> torch.Tensor:
    """Numbers the tokens of rows from the number of its sequence for each token.

    Args:
        sequences: Of shape (batch, length), equal within a sequence.

    Returns:
        Positions of shape (batch, length).
    """
    places = torch.arange(sequences.shape[1], device=sequences.device).expand_as(sequences)
    changes = F.pad(sequences[:, 1:] != sequences[:, :-1], (1, 0), value=True)
    return places - places.where(changes, 0).cummax(-1).values
