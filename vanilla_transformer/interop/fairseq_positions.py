"""Where fairseq, and the classes that descend from it, begin to count positions."""

from typing import Any


def offset_of(config: Any) -> int:
    """Returns the position of the first token: the padding id + 1.

    Args:
        config: A config with `pad_token_id`.

    Returns:
        A value for `position_offset`.
    """
    return int(config.pad_token_id) + 1
