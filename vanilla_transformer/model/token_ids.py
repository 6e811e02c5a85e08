"""Checks of token ids before they reach an embedding."""

import torch

from .tracing import has_readable_values


def check_token_ids(
    name: str, ids: torch.Tensor, vocab_size: int, ignore_index: int | None = None
) -> None:
    """Refuses ids outside the vocabulary. Values are checked on the CPU only.

    On a GPU, reading them would wait for the device.

    Args:
        name: Name of the argument, for the message.
        ids: Of any shape.
        vocab_size: Ids must lie in [0, vocab_size).
        ignore_index: One more legal id.

    Raises:
        ValueError: If there are no ids, or if an id lies outside the vocabulary.
    """
    check_not_empty(name, ids)
    if not has_readable_values(ids):
        return
    outside = (ids < 0) | (ids >= vocab_size)
    if ignore_index is not None:
        outside &= ids != ignore_index
    if outside.any():
        raise ValueError(
            f"`{name}` holds the id {int(ids[outside][0])}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}: use the tokenizer that the model was trained with, or resize the "
            "embeddings."
        )


def check_not_empty(name: str, tensor: torch.Tensor) -> None:
    """Refuses a tensor without elements.

    Args:
        name: Name of the argument, for the message.
        tensor: Ids or embeddings.

    Raises:
        ValueError: If the tensor is empty.
    """
    if tensor.numel() == 0:
        shape = tuple(tensor.shape)
        raise ValueError(f"`{name}` is empty (shape {shape}): give at least one token.")
