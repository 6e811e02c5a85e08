"""The call context: what the layers of one call of a stack share."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache

from .positions import NO_POSITIONS, PositionEncoding
from .token_layout import PADDED, TokenLayout

AttentionFunction = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


class CallContext(NamedTuple):
    """What the layers of one call share: made at the top of a stack's forward, never changed.

    It is a NamedTuple because Accelerate and FSDP look for tensors in tuples, to move and cast
    them. No part may be a dataclass, such as a config: FSDP would look into it.

    Attributes:
        attend: The attention implementation, with the interface of
            `transformers.AttentionInterface`.
        arguments: Further arguments of the implementation.
        mask: Hides keys from the queries of self-attention, in the form that the implementation
            asks for. None: nothing is hidden.
        positions: What the position scheme adds to the queries, keys and scores of self-attention.
        cache: Keys and values of earlier tokens; each call appends its own.
        layout, source_layout: Which slots the states, and the source's, hold: all, or only tokens;
            see `token_layout`.
        source_mask: As `mask`, for cross-attention.
        source_cache: The cache of which `cache` is one part; the other holds the keys and values
            of the source after the first call.
        rows_per_source: Number of neighbouring rows that decode the same source, of which there is
            one copy: they attend to it as queries of several positions would.
    """

    attend: AttentionFunction
    arguments: Mapping[str, Any]
    mask: Any = None
    positions: PositionEncoding = NO_POSITIONS
    cache: Cache | None = None
    layout: TokenLayout = PADDED
    source_mask: Any = None
    source_cache: EncoderDecoderCache | None = None
    source_layout: TokenLayout = PADDED
    rows_per_source: int = 1
