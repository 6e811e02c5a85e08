"""Longest outputs, and those that are cut off there."""

from transformers import GenerationConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)


def longest_output(settings: GenerationConfig, default: int) -> int:
    """Returns the longest output in tokens, the end included.

    Args:
        settings: The settings. `max_length` counts the start token too.
        default: Longest output if the settings name none.

    Raises:
        ValueError: If the settings leave no token.
    """
    new_tokens = settings.max_new_tokens
    if new_tokens is None and settings.max_length is not None:
        new_tokens = settings.max_length - 1
    if new_tokens is None:
        return default
    if new_tokens < 1:
        raise ValueError(f"The longest output is {new_tokens} tokens: give at least 1.")
    return int(new_tokens)


def warn_of_cut_outputs(count: int, longest: int) -> None:
    """Warns of outputs that the model had not ended, if there are any.

    Args:
        count: Number of these outputs.
        longest: Longest output in tokens.
    """
    if count:
        logger.warning(
            f"Outputs that are cut off at the longest length of {longest} tokens: {count:,}. "
            "Give a larger `max_new_tokens` (--max-new-tokens)."
        )
