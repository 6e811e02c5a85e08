"""What a forward is given: masks, token ids, labels, and the cache under either name.

What would give a wrong result is an error that names the argument. Values are checked only where
they can be read at no cost: on a GPU, reading them would wait for the device.

A mask is (batch, length), with 1 for a token and 0 for padding. Or it is (batch or 1, heads or 1,
queries or 1, keys): boolean or whole numbers (True or 1 where attention is allowed), or floats that
are added to the scores (0 where it is allowed, a very negative number elsewhere). Other forms, such
as those of flex attention, are passed on. None: there is no padding.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
import torch.nn.functional as F

from .modes import has_readable_values, is_tracing

P = ParamSpec("P")
R = TypeVar("R")

IGNORE_INDEX = -100
"""The label of a slot where there is nothing to predict."""

# Masks -------------------------------------------------------------------------------------------


def check_mask(
    name: str,
    mask: Any,
    rows: int,
    length: int,
    past: int | torch.Tensor = 0,
    is_causal: bool = False,
) -> Any:
    """Returns a mask in a form that every implementation of attention reads in the same way.

    A mask of four dimensions that holds whole numbers becomes boolean. Other shapes are refused.

    Args:
        length: Number of the current tokens of a row.
        past: Number of tokens in the cache. A tensor, as of a static cache, is not read.
        is_causal: Whether the mask is a decoder's: with one row for all queries, a mask of four
            dimensions could not hide later tokens.
    """
    if not isinstance(mask, torch.Tensor):
        return mask
    if not is_tracing():  # a comparison would fix the length in the traced program
        shape = tuple(mask.shape)
        width = length + past if isinstance(past, int) else shape[-1]
        if len(shape) == 2:
            fits = shape == (rows, width)
        else:
            fits = len(shape) == 4 and (not is_causal or shape[2] == length)
        if not fits:
            raise ValueError(
                f"`{name}` has the shape {shape}: give {(rows, width)}, with 1 for each token, "
                "also in the cache, and 0 for padding; or four dimensions, (batch, heads or 1, "
                f"{length if is_causal else 'queries or 1'}, keys)."
            )
    return mask if mask.dim() == 2 or mask.is_floating_point() else mask != 0


def is_allowed_by(mask: torch.Tensor) -> torch.Tensor:
    """Converts a mask of four dimensions to a boolean one: True where attention is allowed."""
    return mask == 0 if mask.is_floating_point() else mask != 0


def tokens_of(mask: torch.Tensor) -> torch.Tensor:
    """Finds the tokens of a mask of two or four dimensions, (batch or 1, length).

    Padding is a slot that no query may attend to.
    """
    return mask != 0 if mask.dim() == 2 else is_allowed_by(mask).any(dim=1).any(dim=1)


# Token ids and labels ----------------------------------------------------------------------------


def check_token_ids(
    name: str, ids: torch.Tensor, vocab_size: int, ignore_index: int | None = None
) -> None:
    """Refuses an empty tensor, and on the CPU ids outside the vocabulary, [0, vocab_size)."""
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
    """Refuses ids or embeddings without elements."""
    if tensor.numel() == 0:
        raise ValueError(f"`{name}` is empty ({tuple(tensor.shape)}): give at least one token.")


def padding_and_start(config: Any) -> tuple[int, int]:
    """Returns the padding token and the start token, which the decoder's input is made with."""
    pad, start = config.pad_token_id, config.decoder_start_token_id
    if pad is None or start is None:
        raise ValueError(
            "`pad_token_id` and `decoder_start_token_id` are needed to make the decoder's "
            f"input from labels, got {pad} and {start}: set them in the config."
        )
    return pad, start


def end_tokens_of(settings: Any) -> list[int]:
    """Returns the tokens that end an output, by a model's config or by settings."""
    ends: list[int] | int | None = settings.eos_token_id
    return [ends] if isinstance(ends, int) else ends or []


def shift_right(
    labels: torch.Tensor,
    pad_token_id: int,
    decoder_start_token_id: int,
    bounds: torch.Tensor | None = None,
) -> torch.Tensor:
    """Turns the tokens to predict into the tokens that the decoder reads (Vaswani et al. §3.1).

    Args:
        labels: Of shape (batch, target_len), with -100 where there is nothing to predict. They are
            not changed.
        pad_token_id: Replaces -100.
        decoder_start_token_id: The first token of every sequence, after padding on the left.
        bounds: Of packed labels, (1, tokens): where each sequence begins, and where the last one
            ends, of shape (sequences + 1,).
    """
    if bounds is not None and not is_tracing():
        counts = F.pad((labels[0] != IGNORE_INDEX).cumsum(0), (1, 1))  # before each slot, and all
        begins, ends = bounds[:-1].long(), bounds[1:].long()
        if ((counts[begins] == counts[begins + 1]) & (counts[begins] < counts[ends])).any():
            raise ValueError("Packed `labels` begin with -100: give `decoder_input_ids` too.")
    shifted = torch.cat([torch.full_like(labels[:, :1], IGNORE_INDEX), labels[:, :-1]], dim=1)
    shifted = shifted.masked_fill(shifted == IGNORE_INDEX, pad_token_id)
    if bounds is None:
        return shifted.scatter(1, _first_label(labels), decoder_start_token_id)
    begins = torch.zeros(labels.shape[1] + 1, dtype=torch.bool, device=labels.device)
    begins[bounds[:-1].long()] = True  # beyond the labels, if the last sequence is empty
    return shifted.masked_fill(begins[:-1], decoder_start_token_id)


def hide_leading_padding(
    labels: torch.Tensor, decoder_input_ids: torch.Tensor, decoder_start_token_id: int | None
) -> torch.Tensor | None:
    """Makes the decoder's mask for labels that are padded on the left; None: none are.

    What stands before the start token of the first label is padding. Padding after the labels needs
    no mask: the causal mask hides it.
    """
    if labels.numel() == 0 or not (labels[:, 0] == IGNORE_INDEX).any():
        return None
    first = _first_label(labels)
    begins = decoder_input_ids.gather(1, first) == decoder_start_token_id  # (batch, 1)
    places = torch.arange(labels.shape[1], device=labels.device)
    hidden = (places < first) & begins  # (batch, target_len)
    return hidden.logical_not().long() if hidden.any() else None


def _first_label(labels: torch.Tensor) -> torch.Tensor:
    """Returns the place of the first label of each row, (batch, 1); 0 for a row without labels."""
    return (labels != IGNORE_INDEX).int().argmax(dim=1, keepdim=True)


def problem_type_of(labels: torch.Tensor, num_labels: int) -> str:
    """Infers the kind of classification from labels, as transformers does."""
    if num_labels == 1:
        return "regression"
    is_integer = not labels.is_floating_point() and labels.dtype != torch.bool
    if is_integer and labels.numel() == labels.shape[0]:
        return "single_label_classification"
    return "multi_label_classification"


# Cache -------------------------------------------------------------------------------------------


def accepts_both_cache_names(forward: Callable[P, R]) -> Callable[P, R]:
    """Decorates a forward with `past_key_values`, which then also takes the cache as `cache`.

    transformers calls it `cache` since 5.24; PEFT looks for `past_key_values` in the signature. If
    both are given, `cache` counts unless it is empty: a prefix of PEFT comes as
    `past_key_values` beside the empty cache of `generate()`.
    """

    @wraps(forward)
    def with_either_name(*args: P.args, **kwargs: P.kwargs) -> R:
        cache: Any = kwargs.pop("cache", None)
        is_older_given = kwargs.get("past_key_values") is not None
        if cache is not None and (not is_older_given or cache.get_seq_length()):
            kwargs["past_key_values"] = cache
        return forward(*args, **kwargs)

    # `generate()` inspects the signature at each token: here it is made once.
    cast(Any, with_either_name).__signature__ = inspect.signature(forward)
    return with_either_name
