"""Which slots of a batch are computed: all, or in padding-free training only the tokens.

Embeddings, projections, feed-forward, norms and the output projection map each position by itself.
In padding-free training they run on a tensor of shape (1, tokens, ...), which holds the tokens of
the batch in their order, without padding. Attention needs the padded shape (batch, length, ...): it
pads its inputs and removes the padding of its result. On a GPU it takes the sequences one behind
another (`PackedLayout`). `StepPlan` records what one call computes; the
outermost model makes it once.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F

from .inputs import IGNORE_INDEX


class TrainingShortcuts(NamedTuple):
    """What a training step may leave out without changing the loss or the gradients.

    Attributes:
        padding_free: Padding is not computed.
        chunked_loss: The loss over a large vocabulary is computed in chunks; full logits are never
            materialised.
        lazy_logits: The output's `logits` are computed when they are read.
        packed: Attention computes no padding either.
    """

    padding_free: bool = True
    chunked_loss: bool = True
    lazy_logits: bool = True
    packed: bool = False


NO_SHORTCUTS = TrainingShortcuts(padding_free=False, chunked_loss=False, lazy_logits=False)

TOKEN_STEP = 64
"""Large batches on a CPU, under autocast, compute a multiple of this number of tokens.

A batch with too little padding for this computes all its slots.
"""

_LARGE_BATCH = 1024  # tokens from which rounding up costs little

MIN_PADDING_SHARE = 1 / 8
"""Share of the slots that must be padding before a GPU leaves it out.

To remove and restore padding, each attention starts ten more kernels. In batches of texts of about
one length, that takes longer than the padding.
"""


class TokenLayout:
    """The layout of states that hold every slot of a batch: each method returns its input.

    Attributes:
        positions: The position of each token in its sequence, of shape (1, tokens), where attention
            takes the sequences one behind another. None: it takes the padded shape.
    """

    positions: torch.Tensor | None = None

    def remove_padding(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of a tensor of shape (batch or 1, length, ...)."""
        return states

    def pad(self, states: torch.Tensor) -> torch.Tensor:
        """Restores the padded shape, with zeros at padding."""
        return states

    def pad_for_attention(self, states: torch.Tensor) -> torch.Tensor:
        """Restores the padded shape, with any values at padding, which attention masks out."""
        return states

    def unpad_attention(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of what attention returns."""
        return states

    def attention_arguments(self, keys: "TokenLayout") -> dict[str, Any]:
        """Returns what attention must know of the sequences of queries and keys."""
        return {}

    def padded_like(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the shape of attention, type and device; its values do not count."""
        return states


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
        # For each slot the index of its token; padding repeats the token before it.
        self.sources = (is_token.flatten().cumsum(0) - 1).clamp(min=0)

    def remove_padding(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of a tensor of shape (batch or 1, length, ...): (1, tokens, ...)."""
        indices = self.indices.to(states.device)
        if states.shape[0] == 1:  # the same row for the whole batch
            return states.index_select(1, indices % self.shape[1])
        tokens: torch.Tensor = _SelectTokens.apply(states.flatten(0, 1), indices)  # type: ignore[no-untyped-call]
        return tokens[None]

    def pad(self, states: torch.Tensor) -> torch.Tensor:
        """Restores (batch, length, ...) from (1, tokens, ...), with zeros elsewhere."""
        batch = states.new_zeros(self.shape.numel(), *states.shape[2:])
        batch.index_copy_(0, self.indices.to(states.device), states[0])
        return batch.view(*self.shape, *states.shape[2:])

    def pad_for_attention(self, states: torch.Tensor) -> torch.Tensor:
        """Restores the padded shape without clearing it first: `pad` at two thirds of its cost.

        Padding holds copies of tokens. Its gradient is ignored: attention gives masked keys the
        weight 0, and the outputs of padded queries are not used.
        """
        device = states.device
        indices, sources = self.indices.to(device), self.sources.to(device)
        tokens = states.flatten(0, 1)  # a view: the gradient of `states[0]` would be a copy
        batch: torch.Tensor = _RepeatTokens.apply(tokens, indices, sources)  # type: ignore[no-untyped-call]
        return batch.view(*self.shape, *states.shape[2:])

    def unpad_attention(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of what attention returns."""
        return self.remove_padding(states)

    def padded_like(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the padded shape that takes no memory."""
        return states.new_empty(()).expand(*self.shape, *states.shape[2:])


class PackedLayout(TokenLayout):
    """The layout of states, and of attention, that hold one sequence behind another.

    Args:
        bounds: Where each sequence begins, and where the last one ends: of shape (sequences + 1,).
        positions: The position of each token in its sequence, of shape (1, tokens).
        longest: No sequence has more tokens. It is at most the number of all tokens.
        slots: The layout of the batch that the tokens come from. `PADDED`: the batch is packed.
    """

    positions: torch.Tensor

    def __init__(
        self,
        bounds: torch.Tensor,
        positions: torch.Tensor,
        longest: int,
        slots: TokenLayout = PADDED,
    ) -> None:
        self.bounds, self.positions, self.longest, self.slots = bounds, positions, longest, slots

    @classmethod
    def of_padded(cls, is_token: torch.Tensor, slots: TokenLayout) -> Self:
        """Makes the layout of the tokens of a padded batch, of shape (batch, length)."""
        ends = is_token.sum(1).cumsum(0)
        numbers = is_token.cumsum(1)[..., None] - 1
        positions = slots.remove_padding(numbers)[..., 0]  # (batch, length) -> (1, tokens)
        longest = min(is_token.shape[1], positions.shape[1])
        return cls(F.pad(ends, (1, 0)).int(), positions, longest, slots)

    def remove_padding(self, states: torch.Tensor) -> torch.Tensor:
        """Selects the tokens of a tensor of shape (batch or 1, length, ...): (1, tokens, ...)."""
        return self.slots.remove_padding(states)

    def pad(self, states: torch.Tensor) -> torch.Tensor:
        """Restores (batch, length, ...) from (1, tokens, ...), with zeros elsewhere."""
        return self.slots.pad(states)

    def attention_arguments(self, keys: TokenLayout) -> dict[str, Any]:
        """Returns the sequences of queries and keys, under the names of transformers."""
        assert isinstance(keys, PackedLayout)
        return {
            "cu_seq_lens_q": self.bounds,
            "cu_seq_lens_k": keys.bounds,
            "max_length_q": self.longest,
            "max_length_k": keys.longest,
        }


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
        ctx: Any, tokens: torch.Tensor, indices: torch.Tensor, sources: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(indices)
        return tokens.index_select(0, sources)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (indices,) = ctx.saved_tensors
        return gradient.index_select(0, indices), None, None


@dataclass(frozen=True)
class StepPlan:
    """What one call computes; made by the outermost model and handed down.

    The layouts tell which slots of a side are computed; see `TrainingShortcuts` for the rest.
    """

    source: TokenLayout = PADDED
    target: TokenLayout = PADDED
    chunked_loss: bool = False
    lazy_logits: bool = False


def plan_step(
    shortcuts: TrainingShortcuts,
    labels: torch.Tensor | None,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    decoder_input_ids: torch.Tensor | None,
    decoder_attention_mask: torch.Tensor | None,
    encoder_outputs: Any,
    past_key_values: Any,
    inputs_embeds: torch.Tensor | None,
    decoder_inputs_embeds: torch.Tensor | None,
    use_cache: bool,
) -> StepPlan:
    """Decides what a call of an encoder-decoder computes. Only its outermost model asks.

    Args:
        labels: Of shape (batch, target_len), -100 where there is nothing to predict. The other
            arguments are those of the forward. A cache holds every slot, so padding is computed.
    """
    source = target = None
    if shortcuts.padding_free and not use_cache and past_key_values is None:
        states = None if encoder_outputs is None else encoder_outputs[0]
        source_shape = batch_shape(states, input_ids, inputs_embeds)
        target_shape = batch_shape(decoder_input_ids, decoder_inputs_embeds)
        source = source_slots(attention_mask, source_shape)
        target = target_slots(labels, decoder_attention_mask, target_shape)
    # The target's mask may hide tokens that are computed: attention must read it.
    packed = shortcuts.packed and decoder_attention_mask is None
    layouts = layout_of(source, packed), layout_of(target, packed)
    if packed and PADDED in layouts:
        layouts = layout_of(source), layout_of(target)
    return StepPlan(*layouts, shortcuts.chunked_loss, shortcuts.lazy_logits)


def batch_shape(*inputs: torch.Tensor | None) -> tuple[int, ...]:
    """Returns (batch, length) of the first tensor of ids, embeddings or states that is not None."""
    return next((tuple(tensor.shape[:2]) for tensor in inputs if tensor is not None), ())


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


def source_slots(
    attention_mask: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Finds the slots of a source that must be computed: all except padding.

    A row that is masked completely is computed completely: some implementations of attention
    average over it.

    Args:
        attention_mask: 1 for a token, 0 for padding, of shape (batch, source_len).

    Returns:
        True for each such slot, in the shape of the mask. None if the mask is not of this kind:
        then all slots must be computed.
    """
    if attention_mask is None or not _is_plain_tensor(attention_mask, shape):
        return None
    real = attention_mask.bool()
    return real | ~real.any(-1, keepdim=True)


def target_slots(
    labels: torch.Tensor | None, attention_mask: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Finds the slots of a target that must be computed: those that the loss depends on.

    Later slots of a row attend to a slot without a label, so only the slots after the last
    label, and those that the mask hides, are left out. A row in which a hidden slot has a label is
    computed completely: the slot may attend to nothing, and some implementations of attention
    average over such a row.

    Args:
        labels: Of shape (batch, target_len), -100 where there is nothing to predict. None: only the
            mask counts.
        attention_mask: 1 for a token, 0 for padding, of shape (batch, target_len).

    Returns:
        As from `source_slots`.
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
