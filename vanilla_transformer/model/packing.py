"""Training without padding: real tokens stand side by side, and attention alone sees the batch.

A batch of sentences is mostly rectangular for the sake of attention. Everything else (embeddings,
projections, feed-forward, norms, the output projection) maps each position by itself, so it can run
on the real tokens alone: a packed tensor of shape (1, tokens, ...), in the order of the batch.
"""

from typing import Optional

import torch

from .losses import IGNORE_INDEX


class Packing:
    """Packs nothing: the form in which every place of a batch is computed.

    Args:
        source: The packing of the source, where this is the target's.
    """

    def __init__(self, source: Optional["Packing"] = None) -> None:
        self.source = source or self

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Takes the real tokens out of a tensor of shape (batch or 1, length, ...)."""
        return states

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Puts packed tokens back into their places of the batch, with zeros elsewhere."""
        return states

    def outline(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a tensor without content that has the shape of the unpacked states."""
        return states


class TokenPacking(Packing):
    """Packs the real tokens of a batch.

    Args:
        is_real: True for each place to compute, of shape (batch, length).
        indices: The same places as indices into the flattened batch, of shape (tokens,).
        source: The packing of the source, where this is the target's.
    """

    def __init__(
        self, is_real: torch.Tensor, indices: torch.Tensor, source: Packing | None = None
    ) -> None:
        super().__init__(source)
        self.shape = is_real.shape
        self.indices = indices

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Takes the real tokens out of a tensor.

        Args:
            states: Of shape (batch or 1, length, ...).

        Returns:
            A tensor of shape (1, tokens, ...).
        """
        states = states.expand(*self.shape, *states.shape[2:]).flatten(0, 1)
        return states.index_select(0, self.indices.to(states.device))[None]

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Puts packed tokens back into their places.

        Args:
            states: Of shape (1, tokens, ...).

        Returns:
            A tensor of shape (batch, length, ...), with zeros where no token was packed.
        """
        batch = states.new_zeros(self.shape.numel(), *states.shape[2:])
        batch.index_add_(0, self.indices.to(states.device), states[0])
        return batch.view(*self.shape, *states.shape[2:])

    def outline(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of shape (batch, length, ...) that takes no memory."""
        return states.new_empty(()).expand(*self.shape, *states.shape[2:])


UNPACKED = Packing()


def packing_of(is_real: torch.Tensor | None, source: Packing | None = None) -> Packing:
    """Makes the packing of the given places, or one that packs nothing where nothing is saved.

    On a GPU this waits for the device once, for the number of tokens.

    Args:
        is_real: True for each place to compute, of shape (batch, length); None: all.
        source: The packing of the source, where this is the target's.

    Returns:
        The packing.
    """
    if is_real is not None:
        indices = is_real.flatten().nonzero().squeeze(1)
        if 0 < len(indices) < is_real.numel():
            return TokenPacking(is_real, indices, source)
    return UNPACKED if source is None else Packing(source)


def source_places(
    attention_mask: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Tells which places of a source are to be computed: those that are no padding.

    A row that is masked whole is computed whole: some implementations of attention average over it.

    Args:
        attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).
        shape: (batch, source_len).

    Returns:
        True for each such place, of shape (batch, source_len); None where a mask of this kind does
        not tell.
    """
    if not _is_plain(attention_mask, shape):
        return None
    real = attention_mask.bool()  # type: ignore[union-attr]  # _is_plain has seen that it is there
    return real | ~real.any(-1, keepdim=True)


def target_places(
    labels: torch.Tensor | None, attention_mask: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Tells which places of a target are to be computed: those that the loss depends on.

    A place without a label is seen by the later ones of its row, so that only places after the last
    label are left out, and places that the mask hides. A row in which a hidden place has a label is
    computed whole: it may attend to nothing, over which some implementations of attention average.

    Args:
        labels: Of shape (batch, target_len), -100 where there is nothing to predict. None: the mask
            alone tells.
        attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len).
        shape: (batch, target_len).

    Returns:
        True for each such place, of shape (batch, target_len); None where it is not known.
    """
    if attention_mask is not None and not _is_plain(attention_mask, shape):
        return None
    real = None if attention_mask is None else attention_mask.bool()
    if labels is None:
        return real
    if not _is_plain(labels, shape):
        return None
    labelled = labels != IGNORE_INDEX
    needed = labelled.flip(-1).cumsum(-1).flip(-1) > 0
    if real is None:
        return needed
    real = real.to(labels.device)
    return (needed & real) | (labelled & ~real).any(-1, keepdim=True)


def _is_plain(tensor: torch.Tensor | None, shape: tuple[int, ...]) -> bool:
    """Whether it is a common tensor (none of a trace, or split over devices) of this shape."""
    return type(tensor) is torch.Tensor and not tensor.is_meta and tuple(tensor.shape) == shape
