"""What a forward accepts: keyword arguments, masks, position ids, token ids, labels.

What cannot be right, and what nothing would use, is an error that names the argument. Values are
checked only where they can be read at no cost: on a GPU, reading them would wait for the device.

Arguments that functions share:

    name: Name of an argument of the forward, for messages.
    embeds: Embeddings of the current tokens, (batch, length, ...); only shape and device count.
    mask, attention_mask: (batch, length), with 1 for a token and 0 for padding. Or (batch or 1,
        heads or 1, queries or 1, keys), boolean (True where attention is allowed) or additive (0
        where it is allowed, a very negative number elsewhere). Other forms are passed on. None:
        there is no padding.
    position_ids: (batch or 1, length), or None if the caller gives none.
    cache: Keys and values of earlier tokens, or None. "length with the past" counts them too.
    is_causal: Whether the stack is a decoder.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.masking_utils import find_packed_sequence_indices
from transformers.utils import logging

from .modes import has_readable_values, is_tracing

logger = logging.get_logger(__name__)

IGNORE_INDEX = -100
"""The label of a slot where there is nothing to predict."""

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]
MaskFunction = Callable[[Any, Any, Any, Any], Any]

# Keyword arguments -------------------------------------------------------------------------------

ARGUMENTS = (
    *("input_ids", "attention_mask", "position_ids", "inputs_embeds", "decoder_input_ids"),
    *("decoder_attention_mask", "decoder_inputs_embeds", "encoder_outputs", "past_key_values"),
    *("use_cache", "labels", "logits_to_keep", "num_items_in_batch", "output_attentions"),
    *("output_hidden_states", "return_dict"),
)
"""Names that a misspelt one is compared with."""

BOUNDARIES = ("cu_seq_lens_q", "seq_idx")
"""Where the sequences of a row begin, as `DataCollatorWithFlattening` says it."""

OF_ONE_STACK = frozenset(("position_ids", *BOUNDARIES))
"""What a model with an encoder and a decoder does not take: it would be that of one side only."""

OF_WHOLE_MODELS = frozenset(("labels", "logits_to_keep"))
"""Names that `generate()` passes to the encoder too, which has no use for them."""

USED = frozenset(
    (
        *("output_attentions", "output_hidden_states", "output_cross_attentions", "return_dict"),
        *(*BOUNDARIES, "cu_seq_lens_k", "max_length_q", "max_length_k"),
        *("is_causal", "use_cache", "num_items_in_batch", "debug_io", "debug_io_dir"),
        "prune_layers",
    )
)
"""Names that decorators, attention or a head use, or that come beside others that are used."""

UNUSED = frozenset(("token_type_ids", "cache_position", "output_router_logits"))
"""Names that tokenizers and tools for other models pass; leaving them out deserves a warning."""

OF_GENERATION = frozenset(("tokenizer", "assistant_tokenizer", "assistant_model", "streamer"))
"""Names that `generate()` hands to the model in the search methods that do not use them."""

OF_CONTINUOUS_BATCHING = frozenset(
    (
        *("cache", "read_index", "write_index", "block_table"),
        *("logits_indices", "logits_processor_args"),
    )
)


def select_arguments(
    kwargs: Mapping[str, Any],
    implementation: Callable[..., Any],
    is_causal: bool,
) -> dict[str, Any]:
    """Selects the further arguments of a stack's forward that are used below.

    Args:
        implementation: The attention implementation, which may have arguments of its own.

    Returns:
        The arguments to hand down, in a dictionary of their own, with `is_causal` only where it is
        False: implementations of attention read it in different ways.

    Raises:
        ValueError: If nothing would use an argument, or if `is_causal` is True for an encoder. An
            argument that is None does not count.
    """
    if not kwargs.keys() <= USED:
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        ignored = OF_GENERATION if is_causal else OF_GENERATION | OF_WHOLE_MODELS
        unknown = kwargs.keys() - USED - ignored
        if isinstance(kwargs.get("cache"), PagedAttentionCache):
            unknown -= OF_CONTINUOUS_BATCHING
        for name in sorted(unknown & UNUSED):
            logger.warning_once(f"`{name}` has no effect on this model.")
        refuse_arguments(kwargs, _not_accepted(unknown - UNUSED, implementation))
        left_out = ignored | UNUSED
        kwargs = {name: value for name, value in kwargs.items() if name not in left_out}
    if kwargs.get("is_causal") and not is_causal:
        raise ValueError(
            "`is_causal` True would hide later tokens from an encoder, which reads in both "
            "directions: leave it out, or use a language model."
        )
    return {name: x for name, x in kwargs.items() if name != "is_causal" or not x}


def refuse_arguments(kwargs: Mapping[str, Any], names: set[str] | frozenset[str]) -> None:
    """Refuses arguments of these names, which nothing would use, unless they are None."""
    given = sorted(name for name in names & kwargs.keys() if kwargs[name] is not None)
    if given:
        listed = ", ".join(f"`{name}`" for name in given)
        close = difflib.get_close_matches(given[0], ARGUMENTS, n=1, cutoff=0.6)
        hint = f" Did you mean `{close[0]}`?" if close and close[0] not in given else ""
        raise ValueError(
            f"This model has no argument {listed}, and nothing would use it: leave it out.{hint}"
        )


def _not_accepted(names: set[str], implementation: Callable[..., Any]) -> set[str]:
    """Returns the names that an attention implementation has no parameter for."""
    module = implementation.__module__
    if not module.startswith(("transformers.", __package__ or __name__)) or "flash" in module:
        return set()  # it may read any name from its own `**kwargs`
    own = {*inspect.signature(implementation).parameters, "kernel_options"}
    given_by_layers = {"module", "query", "key", "value", "attention_mask", "dropout", "scaling"}
    given_by_layers |= {"position_bias", "kwargs"} | OF_CONTINUOUS_BATCHING
    return names - (own - given_by_layers)


# Masks -------------------------------------------------------------------------------------------


def check_mask(
    name: str,
    mask: Any,
    length: int | None = None,
    past: int | torch.Tensor = 0,
    is_causal: bool = False,
    rows: int | None = None,
) -> Any:
    """Returns a mask in a form that every implementation of attention reads in the same way.

    Args:
        length: Number of the current tokens of a row. None: it is checked elsewhere.
        past: Number of tokens in the cache. A tensor, as of a static cache, is not read.
        is_causal: Whether the mask is a decoder's: with one line for all of its tokens, a mask of
            four dimensions could not hide later ones.
        rows: Number of rows of the batch. None: it is checked elsewhere.

    Returns:
        The mask. One of four dimensions and of whole numbers becomes boolean.

    Raises:
        ValueError: If the mask has another shape, or if its values do not tell whether it is to be
            added to the scores.
    """
    if not isinstance(mask, torch.Tensor):
        return mask
    shape = tuple(mask.shape)
    if mask.dim() not in (2, 4):
        hint = "add one for the heads: `mask[:, None]`" if mask.dim() == 3 else "reshape it"
        raise ValueError(
            f"`{name}` has the shape {shape}, but two dimensions (batch, length) or "
            f"four (batch, 1, queries, keys) are needed: {hint}."
        )
    is_readable = type(mask) is torch.Tensor and not mask.is_meta and not is_tracing()
    if is_readable and mask.numel() and mask.dtype != torch.bool:
        for is_wrong, explanation in _WRONG_VALUES:
            if is_wrong(mask):
                found = explanation.format(dtype=mask.dtype, smallest=mask.min().item())
                raise ValueError(f"`{name}` has {found}")
    is_known = isinstance(past, int) and not is_tracing()
    expected = length + past if length is not None and is_known else None
    if mask.dim() == 2 and expected not in (None, shape[1]):
        earlier = f" after {past} in the cache" if past else ""
        raise ValueError(
            f"`{name}` has the shape {shape}, but a row has {length} tokens{earlier}: give 1 for "
            f"each token and 0 for padding, of the shape {(shape[0], expected)}."
        )
    if mask.dim() == 2 and not is_tracing() and rows not in (None, shape[0]):
        raise ValueError(
            f"`{name}` has the shape {shape}, but the batch has {rows} rows: give one line for "
            f"each row, of the shape {(rows, shape[1])}."
        )
    if mask.dim() == 4 and is_causal and length not in (None, shape[2]):
        raise ValueError(
            f"`{name}` has the shape {shape}, but a decoder needs a line for each of "
            f"its {length} tokens, to hide later ones: give two dimensions, (batch, "
            "length), or a causal mask."
        )
    is_plain = mask.dim() == 2 or mask.is_floating_point() or mask.dtype == torch.bool
    return mask if is_plain else mask != 0


_WRONG_VALUES: tuple[tuple[Callable[[torch.Tensor], Any], str], ...] = (
    (
        lambda mask: mask.dim() == 2 and mask.is_floating_point() and mask.min() < 0,
        "two dimensions and holds {smallest:g}, but 1 is a token and 0 is padding: convert an "
        "additive mask with `mask == 0`.",
    ),
    (
        lambda mask: (
            mask.dim() == 4
            and mask.is_floating_point()
            and mask.max() == 1
            and ((mask == 0) | (mask == 1)).all()
        ),
        "four dimensions, the type {dtype}, and holds only 0 and 1, but floats are added to "
        "the scores: pass `mask.bool()`.",
    ),
    (
        lambda mask: (
            mask.dim() == 4 and not mask.is_floating_point() and (mask.min() < 0 or mask.max() > 1)
        ),
        "four dimensions, the type {dtype}, and holds values other than 0 and 1: pass a "
        "boolean mask, or an additive one of floats.",
    ),
)
"""Values that could mean two things: when, and what to say."""


def allowed_by(mask: torch.Tensor) -> torch.Tensor:
    """Converts a boolean or additive mask to a boolean one: True where attention is allowed."""
    return mask if mask.dtype == torch.bool else mask == 0


def tokens_of(mask: torch.Tensor) -> torch.Tensor:
    """Finds the tokens behind a mask of two dimensions, or of four in both directions.

    Returns:
        True for each token, False for padding: a slot that no query may attend to. Of shape
        (batch or 1, length).
    """
    return mask != 0 if mask.dim() == 2 else allowed_by(mask).any(dim=1).any(dim=1)


# Position ids: the position of each token in its sequence ----------------------------------------
#
# They are counted from a mask, or given by the caller. Padding takes no position, so a sequence has
# the same positions on either side of its padding.
#
# A row may hold concatenated sequences, which follow each other without padding; positions begin
# anew with each (`DataCollatorWithFlattening`). As in transformers' Llama, a sequence begins
# wherever a given position is not the one before it plus 1, unless there is a mask or a past.


def positions_from_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers the tokens of each row from 0, wherever the padding is: (batch, length).

    Padding gets an arbitrary legal position.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def positions_from_causal_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Numbers each token by the number of earlier tokens that it may attend to.

    Args:
        attention_mask: Of shape (batch, 1, length, length with the past).

    Returns:
        Positions of shape (batch, length). Padding gets an arbitrary non-negative position.
    """
    return (allowed_by(attention_mask)[:, 0].sum(-1) - 1).clamp(min=0)


def number_tokens(
    position_ids: torch.Tensor | None,
    embeds: torch.Tensor,
    attention_mask: Any,
    cache: Cache | None,
    is_causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers the queries and the keys of self-attention, as the caller says or by counting.

    A cache holds no positions: its tokens are taken to come right before those that a caller
    numbers.

    Returns:
        Positions of the queries, of shape (batch or 1, length), and of the keys, of shape (batch or
        1, length with the past).
    """
    if position_ids is not None and not _has_past(cache):
        return position_ids, position_ids
    length = key_len = embeds.shape[1]
    past_len: int | torch.Tensor = 0
    if cache is not None:
        past_len, (key_len, _) = cache.get_seq_length(), cache.get_mask_sizes(length, 0)
    dims = attention_mask.dim() if isinstance(attention_mask, torch.Tensor) else 0
    keys = torch.arange(key_len, device=embeds.device)[None]
    queries = keys[:, :length] + past_len
    if dims == 4 and is_causal:  # `generate()` passes this one with a static cache
        queries = torch.minimum(positions_from_causal_mask(attention_mask), queries)
        keys = positions_from_mask(allowed_by(attention_mask)[:, 0, -1])
    elif dims:
        keys = positions_from_mask(tokens_of(attention_mask)).to(embeds.device)
        queries = keys[:, -length:]
        if cache is not None:  # a static one has room for later keys: they are masked
            keys = F.pad(keys, (0, key_len - keys.shape[1]))
    if position_ids is None:
        return queries, keys
    return position_ids, keys + (position_ids[:, -1:] - queries[:, -1:])


def _has_past(cache: Cache | None) -> bool:
    is_empty = isinstance(cache, DynamicCache) and cache.get_seq_length() == 0
    return cache is not None and not is_empty


def given_position_ids(
    name: str,
    position_ids: torch.Tensor | None,
    attention_mask: Any,
    embeds: torch.Tensor,
    arguments: Mapping[str, Any],
) -> torch.Tensor | None:
    """Returns the positions that a caller gives in one form or another.

    Args:
        attention_mask: With one, a row is one sequence.
        arguments: May hold the boundaries of sequences instead: `cu_seq_lens_q` holds 0 and the
            end of each sequence of the only row, `seq_idx` the number of its sequence for each
            token, of shape (batch, length).

    Returns:
        Positions of shape (batch or 1, length), on the device of the tokens. None: they are to be
        counted.

    Raises:
        ValueError: If the positions have another shape or type, or start below 0.
    """
    batch, length = embeds.shape[:2]
    ends, numbers = (arguments.get(name) for name in BOUNDARIES)
    if position_ids is None and attention_mask is None and ends is not None:
        slots = torch.arange(length, device=ends.device)
        sequence = torch.searchsorted(ends, slots, right=True) - 1
        position_ids = (slots - ends.long()[sequence])[None]
    elif position_ids is None and attention_mask is None and numbers is not None:
        slots = torch.arange(numbers.shape[1], device=numbers.device).expand_as(numbers)
        changes = F.pad(numbers[:, 1:] != numbers[:, :-1], (1, 0), value=True)
        position_ids = slots - slots.where(changes, 0).cummax(-1).values
    if position_ids is None:
        return None
    if tuple(position_ids.shape) not in ((batch, length), (1, length)):
        raise ValueError(
            f"`{name}` has the shape {tuple(position_ids.shape)}, but {(batch, length)} is needed: "
            "give one position for each token of this call."
        )
    if position_ids.is_floating_point() or position_ids.dtype == torch.bool:
        raise ValueError(f"`{name}` has the type {position_ids.dtype}: give whole numbers.")
    if has_readable_values(position_ids) and (position_ids < 0).any():
        raise ValueError(f"`{name}` holds {int(position_ids.min())}: positions start at 0.")
    return position_ids.to(embeds.device)


def number_sequences(
    position_ids: torch.Tensor | None, attention_mask: Any = None, cache: Cache | None = None
) -> torch.Tensor | None:
    """Numbers concatenated sequences; with a mask or a past, a row is one sequence.

    Returns:
        The number of its sequence for each token, from 0, of shape (batch or 1, length). None if
        every row is one sequence.
    """
    if position_ids is None or attention_mask is not None or _has_past(cache):
        return None
    found: torch.Tensor | None = find_packed_sequence_indices(position_ids)
    return found


def check_one_sequence(position_ids: torch.Tensor | None, attention_mask: Any) -> None:
    """Refuses rows of several sequences, where each row has one result."""
    sequences = number_sequences(position_ids, attention_mask)
    if sequences is None or type(sequences) is not torch.Tensor or is_tracing():
        return
    if int(sequences[:, -1].max()):
        raise ValueError(
            f"`position_ids` describe a row of {int(sequences[:, -1].max()) + 1} sequences, "
            "but each row has one result: give one sequence a row, or an attention mask."
        )


def attend_within(sequences: torch.Tensor | None, batch: int) -> MaskFunction | None:
    """Makes a mask function of transformers that keeps the sequences of a row apart.

    It is None if every row is one sequence, and `sequences` is None: nothing is hidden.
    """
    if sequences is None:
        return None
    numbers = sequences.expand(batch, -1)

    def is_same(row: Any, head: Any, query: Any, key: Any) -> Any:
        return numbers[row, query] == numbers[row, key]

    return is_same


# Token ids and labels ----------------------------------------------------------------------------


def check_token_ids(
    name: str, ids: torch.Tensor, vocab_size: int, ignore_index: int | None = None
) -> None:
    """Refuses ids outside the vocabulary, [0, vocab_size).

    Raises:
        ValueError: If there are no ids, or if an id lies outside the vocabulary.
    """
    check_not_empty(name, ids)
    if (outside := _first_outside(ids, vocab_size, ignore_index)) is not None:
        raise ValueError(
            f"`{name}` holds the id {outside}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}: use the tokenizer that the model was trained with, or resize the "
            "embeddings."
        )


def check_not_empty(name: str, tensor: torch.Tensor) -> None:
    """Refuses ids or embeddings without elements."""
    if tensor.numel() == 0:
        shape = tuple(tensor.shape)
        raise ValueError(f"`{name}` is empty (shape {shape}): give at least one token.")


def _first_outside(ids: torch.Tensor, size: int, ignore_index: int | None) -> int | None:
    """Returns the first id that is not in [0, size); None: all are, or they cannot be read."""
    if not has_readable_values(ids):
        return None
    outside = (ids < 0) | (ids >= size)
    if ignore_index is not None:
        outside &= ids != ignore_index
    return int(ids[outside][0]) if outside.any() else None


def shift_right(
    labels: torch.Tensor, pad_token_id: int, decoder_start_token_id: int
) -> torch.Tensor:
    """Turns the tokens to predict into the tokens that the decoder reads (Vaswani et al. §3.1).

    Args:
        labels: Of shape (batch, target_len), with -100 where there is nothing to predict. They are
            not changed.
        pad_token_id: Replaces -100.
        decoder_start_token_id: The first token of every sequence.
    """
    start = labels.new_full((labels.shape[0], 1), decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORE_INDEX, pad_token_id)


def problem_type_of(labels: torch.Tensor, num_labels: int) -> ProblemType:
    """Infers the kind of classification from labels, as transformers does.

    Returns:
        "regression" for one output, "single_label_classification" for one integer per row,
        otherwise "multi_label_classification".
    """
    if num_labels == 1:
        return "regression"
    is_integer = not labels.is_floating_point() and labels.dtype != torch.bool
    one_per_row = labels.numel() == labels.shape[0]
    if is_integer and one_per_row:
        return "single_label_classification"
    return "multi_label_classification"


def check_labels(labels: torch.Tensor, logits: torch.Tensor, problem_type: str) -> None:
    """Refuses labels that do not fit.

    Args:
        labels: As in `losses.sequence_loss`, or of shape (batch, source_len) for tokens.
        logits: Of shape (..., labels).
        problem_type: As in `losses.sequence_loss`; "single_label_classification" for tokens.

    Raises:
        ValueError: If the number of labels differs from that of the logits, or if a class is
            outside those of the model.
    """
    classes = logits.shape[-1]
    single = problem_type == "single_label_classification"
    expected = logits.shape[:-1] if single else logits.shape
    if labels.numel() != expected.numel():
        raise ValueError(
            f"`labels` has the shape {tuple(labels.shape)}, but {tuple(expected)} is needed with "
            f"`problem_type` {problem_type!r} and `num_labels` {classes}: change the labels, or "
            "set these two fields of the config."
        )
    if not single:
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"`labels` has the type {labels.dtype}, but `problem_type` {problem_type!r} needs "
            "integers, one class each: convert them, or set `problem_type`."
        )
    if (outside := _first_outside(labels, classes, IGNORE_INDEX)) is not None:
        raise ValueError(
            f"`labels` contains the class {outside}, but the model has classes 0 "
            f"to {classes - 1}: set `num_labels` in the config, or use {IGNORE_INDEX} where "
            "there is no label."
        )
