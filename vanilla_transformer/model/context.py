"""The call context: what the layers of one call of a stack share."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from transformers.cache_utils import EncoderDecoderCache

from .attention_functions import AttentionFunction
from .positions import NO_POSITIONS, PositionEncoding
from .token_layout import PADDED, TokenLayout


class CallContext(NamedTuple):
    """What the layers of one call share: made at the top of a stack's forward, never changed.

    It is a NamedTuple because Accelerate and FSDP look for tensors in tuples, to move and cast
    them. No part may be a dataclass, such as a config: FSDP would look into it.

    Attributes:
        attention, source_attention: What self- and cross-attention call, with the layouts of their
            states.
        arguments: Further arguments of the attention implementation.
        mask: Hides keys from the queries of self-attention, in the form that the implementation
            asks for. None: nothing is hidden.
        positions: What the position scheme adds to the queries, keys and scores of self-attention.
        cache: Keys and values of earlier target tokens, to which each call appends its own, and
            those of the source, which the first call computes.
        layout, source_layout: Which slots the states, and the source's, hold: all, or only tokens;
            see `token_layout`.
        source_mask: As `mask`, for cross-attention.
    """

    attention: AttentionFunction
    arguments: Mapping[str, Any]
    mask: Any = None
    positions: PositionEncoding = NO_POSITIONS
    cache: EncoderDecoderCache | None = None
    layout: TokenLayout = PADDED
    source_attention: AttentionFunction = cast(AttentionFunction, None)  # an encoder has none
    source_mask: Any = None
    source_layout: TokenLayout = PADDED
