"""Which slots of a batch are computed: all, or in padding-free training only the tokens.

A slot is a place of a batch, (batch, length), with a token or padding. Embeddings, projections,
feed-forward, norms and the output projection map each slot by itself. In padding-free training they
run on a tensor of shape (1, tokens, ...), which holds the tokens of the batch in their order,
without padding. Implementations of attention need the padded shape, (batch, length, ...):
`AttentionFunction` pads what it gives them, and removes the padding of their result. On a GPU,
attention takes the concatenated sequences (`PackedLayout`).

A batch may also come packed: its ids are (1, tokens), and bounds tell where each sequence begins.

`StepPlan` records what one call computes; the outermost model makes it once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F

from .inputs import IGNORE_INDEX

TOKEN_STEP = 64
"""Large batches on a CPU, under autocast, compute a multiple of this number of tokens."""

_LARGE_BATCH = 1024  # tokens from which rounding up costs little

MIN_PADDING_SHARE = 1 / 8
"""Share of the slots that must be padding before a GPU leaves it out.

To remove and restore padding, each attention starts ten more kernels. In batches of texts of about
one length, that takes longer than the padding.
"""


class TokenLayout:
    """The layout of states that hold every slot of a batch: each method returns its input."""

    is_packed = False
    """Whether attention takes the concatenated sequences, on a GPU."""

    def to_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of what a call is given, of shape (batch or 1, length, ...)."""
        return states

    def to_batch(self, states: torch.Tensor) -> torch.Tensor:
        """Restores the shape of what a call was given, with zeros at padding."""
        return states

    def to_positions(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the positions of the tokens from those of all slots, (batch or 1, length)."""
        return states

    def pad_heads(self, states: torch.Tensor) -> torch.Tensor:
        """Restores the padded shape for attention, with any values: attention masks them out."""
        return states

    def unpad_heads(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of what attention returns, (batch, length, heads, head_dim)."""
        return states

    def padded_like(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of attention's shape, of which only shape, type and device are read."""
        return states

    def padding_mask(self, attention_mask: Any) -> Any:
        """Returns the mask that attention needs, given that of the call."""
        return attention_mask


PADDED = TokenLayout()


class PaddingFreeLayout(TokenLayout):
    """The layout of states that hold the tokens of a batch only.

    Args:
        is_token: True for each slot to compute, of shape (batch, length).
        indices: The same slots as indices into the flattened batch, of shape (tokens,).
    """

    def __init__(self, is_token: torch.Tensor, indices: torch.Tensor) -> None:
        self.shape = is_token.shape
        self.indices = indices
        # The token that stands in each slot for attention; padding repeats the token before it.
        self.token_of_slot = (is_token.flatten().cumsum(0) - 1).clamp(min=0)

    def to_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """(batch or 1, length, ...) -> (1, tokens, ...)."""
        indices = self.indices.to(states.device)
        if states.shape[0] == 1:  # the same row for the whole batch
            return states.index_select(1, indices % self.shape[1])
        tokens: torch.Tensor = _SelectTokens.apply(states.flatten(0, 1), indices)  # type: ignore[no-untyped-call]
        return tokens[None]

    to_positions = unpad_heads = to_tokens

    def to_batch(self, states: torch.Tensor) -> torch.Tensor:
        """(1, tokens, ...) -> (batch, length, ...)."""
        batch = states.new_zeros(self.shape.numel(), *states.shape[2:])
        batch.index_copy_(0, self.indices.to(states.device), states[0])
        return batch.view(*self.shape, *states.shape[2:])

    def pad_heads(self, states: torch.Tensor) -> torch.Tensor:
        """(1, heads, tokens, head_dim) -> (batch, heads, length, head_dim), with any padding.

        Padding holds copies of tokens: zeros would take a third more time. Its gradient is ignored:
        attention gives masked keys the weight 0, and the outputs of padded queries are not used.
        """
        device = states.device
        indices, token_of_slot = self.indices.to(device), self.token_of_slot.to(device)
        tokens = states.transpose(1, 2).flatten(2).flatten(0, 1)  # (tokens, heads · head_dim)
        batch: torch.Tensor = _RepeatTokens.apply(tokens, indices, token_of_slot)  # type: ignore[no-untyped-call]
        return batch.view(*self.shape, -1, states.shape[-1]).transpose(1, 2)

    def padded_like(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the padded shape that takes no memory."""
        return states.new_empty(()).expand(*self.shape, *states.shape[2:])


class SequencesLayout(PaddingFreeLayout):
    """The layout of a packed batch whose attention needs the padded shape.

    Args:
        bounds: Where each sequence begins, and where the last one ends: of shape (sequences + 1,).
        longest: No sequence has more tokens.
    """

    def __init__(self, bounds: torch.Tensor, longest: int) -> None:
        self.is_token = torch.arange(longest, device=bounds.device) < bounds.diff()[:, None]
        super().__init__(self.is_token, self.is_token.flatten().nonzero().squeeze(1))

    def to_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Returns its input: what comes packed is computed and returned packed."""
        return states

    to_batch = to_tokens

    def padding_mask(self, attention_mask: Any) -> Any:
        """Returns 1 for each token, 0 for padding, of shape (sequences, longest)."""
        return self.is_token.long()


class PackedLayout(TokenLayout):
    """The layout of concatenated sequences, which attention takes as they are.

    Args:
        bounds, longest: As for `SequencesLayout`. `longest` is at most the number of all tokens.
        positions: The position of each token in its sequence, of shape (1, tokens).
        inputs: The layout of the batch that the tokens come from. `PADDED`: the batch is packed.
    """

    is_packed = True

    def __init__(
        self,
        bounds: torch.Tensor,
        longest: int,
        positions: torch.Tensor,
        inputs: TokenLayout = PADDED,
    ) -> None:
        self.bounds, self.longest, self.positions, self.inputs = bounds, longest, positions, inputs

    @classmethod
    def of_padded(cls, is_token: torch.Tensor, inputs: TokenLayout) -> Self:
        """Makes the layout of the tokens of a padded batch, of shape (batch, length)."""
        ends = is_token.sum(1).cumsum(0)
        positions = inputs.to_positions(is_token.cumsum(1) - 1)  # (1, tokens)
        longest = min(is_token.shape[1], positions.shape[1])
        return cls(F.pad(ends, (1, 0)).int(), longest, positions, inputs)

    @classmethod
    def of_packed(cls, bounds: torch.Tensor, longest: int, tokens: int) -> Self:
        """Makes the layout of a packed batch of a number of tokens."""
        places = torch.arange(tokens, dtype=bounds.dtype, device=bounds.device)
        sequences = torch.searchsorted(bounds[1:], places, right=True, out_int32=True)
        positions = places - bounds.index_select(0, sequences)
        return cls(bounds, min(longest, tokens), positions[None])

    def to_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Returns tokens, (1, tokens, ...)."""
        return self.inputs.to_tokens(states)

    def to_batch(self, states: torch.Tensor) -> torch.Tensor:
        """Restores the shape of what the call was given."""
        return self.inputs.to_batch(states)

    def to_positions(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the positions of the tokens."""
        return self.positions

    def padding_mask(self, attention_mask: Any) -> Any:
        """Returns None: the bounds tell what a token may attend to."""
        return None


class _SelectTokens(torch.autograd.Function):
    """`index_select` of distinct rows, whose gradient is copied rather than added."""

    @staticmethod
    def forward(ctx: Any, slots: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(indices)
        ctx.num_slots = len(slots)
        return slots.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (indices,) = ctx.saved_tensors
        slots = gradient.new_zeros(ctx.num_slots, *gradient.shape[1:])
        return slots.index_copy_(0, indices, gradient), None


class _RepeatTokens(torch.autograd.Function):
    """Gives each slot of a batch a token; only the slots of real tokens pass a gradient back."""

    @staticmethod
    def forward(
        ctx: Any, tokens: torch.Tensor, indices: torch.Tensor, token_of_slot: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(indices)
        return tokens.index_select(0, token_of_slot)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (indices,) = ctx.saved_tensors
        return gradient.index_select(0, indices), None, None


@dataclass(frozen=True)
class StepPlan:
    """Which slots of each side one call computes, and whether it may leave the logits out."""

    source: TokenLayout
    target: TokenLayout
    may_leave_out_logits: bool


_BOUNDS = ("cu_seq_lens_q", "max_length_q", "cu_seq_lens_k", "max_length_k")


def is_packed(arguments: Mapping[str, Any]) -> bool:
    """Returns whether the arguments of a forward tell the bounds of packed sequences."""
    return arguments.get(_BOUNDS[0]) is not None


def pop_bounds(arguments: dict[str, Any]) -> list[tuple[torch.Tensor, int]]:
    """Takes the bounds of packed sequences out of the arguments of a forward.

    Returns:
        Bounds and longest length of the target ("q") and of the source ("k"). Empty: the batch is
        not packed.

    Raises:
        ValueError: If only some of the four are given, or not as many sources as targets.
    """
    given = [arguments.pop(name, None) for name in _BOUNDS]
    missing = [value is None for value in given]
    if all(missing):
        return []
    if any(missing):
        raise ValueError(f"A packed batch needs all of {', '.join(_BOUNDS)}.")
    if len(given[0]) != len(given[2]):
        raise ValueError("`cu_seq_lens_q` and `cu_seq_lens_k` must have equally many sequences.")
    return [(given[0], int(given[1])), (given[2], int(given[3]))]


def packed_layout(
    bounds: torch.Tensor, longest: int, shape: tuple[int, ...], packs_sequences: bool
) -> TokenLayout:
    """Makes the layout of a side that comes packed, of shape (1, tokens)."""
    if packs_sequences:
        return PackedLayout.of_packed(bounds, longest, shape[1])
    return SequencesLayout(bounds, longest)


def batch_shape(*inputs: Any) -> tuple[int, ...]:
    """Returns (batch, length) of the first that is given: ids, embeddings, encoder outputs."""
    for given in inputs:
        if given is not None:
            states = given if isinstance(given, torch.Tensor) else given[0]
            return tuple(states.shape[:2])
    return ()


def layout_of(is_token: torch.Tensor | None, packed: bool = False) -> TokenLayout:
    """Makes the layout of the given slots, of shape (batch, length), or `PADDED` for all slots.

    Where attention takes packed sequences, only the given slots are computed. Otherwise large
    batches on a CPU, under autocast, also compute some other slots: see `TOKEN_STEP`. On a GPU,
    little padding is computed too: see `MIN_PADDING_SHARE`. There this waits for the device once,
    for the number of tokens.
    """
    if is_token is None:
        return PADDED
    on_cpu = is_token.device.type == "cpu"
    if on_cpu and torch.is_autocast_enabled("cpu"):
        is_token = _round_up(is_token)
    indices = is_token.flatten().nonzero().squeeze(1)
    if packed and len(indices):
        return PackedLayout.of_padded(is_token, PaddingFreeLayout(is_token, indices))
    padding = is_token.numel() - len(indices)
    is_worth_it = padding >= (1 if on_cpu else MIN_PADDING_SHARE * is_token.numel())
    return PaddingFreeLayout(is_token, indices) if is_worth_it and len(indices) else PADDED


def _round_up(is_token: torch.Tensor) -> torch.Tensor:
    """Adds padding to a large number of tokens, so that it becomes a multiple of `TOKEN_STEP`.

    In half precision on a CPU, oneDNN compiles a kernel for each size of a matrix product. Batches
    of nearly equal size then share their kernels.
    """
    count = int(is_token.sum())
    missing = -count % TOKEN_STEP
    if count < _LARGE_BATCH or missing == 0:
        return is_token
    rounded = is_token.flatten().clone()
    rounded[(~rounded).nonzero().squeeze(1)[:missing]] = True
    return rounded.view(is_token.shape)


def source_token_mask(
    attention_mask: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Finds the slots of a source that must be computed, of shape (batch, source_len).

    These are all except padding. A row that is masked completely is computed completely: some
    implementations of attention average over it. None: all must be computed, because there is no
    mask, or one of another kind than of shape (batch, source_len).
    """
    if attention_mask is None or not _is_plain_tensor(attention_mask, shape):
        return None
    real = attention_mask.bool()
    return real | ~real.any(-1, keepdim=True)


def target_token_mask(
    labels: torch.Tensor | None, attention_mask: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Finds the slots of a target that must be computed, as `source_token_mask` does.

    These are the slots that the loss depends on. Later slots of a row attend to a slot without a
    label, so only the slots after the last label, and those that the mask hides, are left out. A
    row in which a hidden slot has a label is computed completely: the slot may attend to nothing.
    Without labels only the mask counts.
    """
    if attention_mask is not None and not _is_plain_tensor(attention_mask, shape):
        return None
    real = None if attention_mask is None else attention_mask.bool()
    if labels is None:
        return real
    if not _is_plain_tensor(labels, shape):
        return None
    labelled = labels != IGNORE_INDEX
    needed = labelled.flip(-1).cumsum(-1).flip(-1) > 0
    if real is None:
        return needed
    real = real.to(labels.device)
    return (needed & real) | (labelled & ~real).any(-1, keepdim=True)


def _is_plain_tensor(tensor: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Returns whether this is an ordinary tensor of this shape: not meta, fake or distributed."""
    return type(tensor) is torch.Tensor and not tensor.is_meta and tuple(tensor.shape) == shape
