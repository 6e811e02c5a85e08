"""The further arguments of a forward (`**kwargs`): which are used, and what becomes of the others.

An argument that nothing would use is an error. transformers and its tools pass some to every model;
those are left out, with a warning where a caller may think that they count.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .attention import eager_attention_forward
from .position_ids import positions_of_lengths, positions_of_sequences

logger = logging.get_logger(__name__)

ARGUMENTS = (
    "input_ids",
    "attention_mask",
    "position_ids",
    "inputs_embeds",
    "decoder_input_ids",
    "decoder_attention_mask",
    "decoder_inputs_embeds",
    "encoder_outputs",
    "past_key_values",
    "use_cache",
    "labels",
    "logits_to_keep",
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
)
"""Names that a misspelt one is compared with."""

BOUNDARIES = ("cu_seq_lens_q", "seq_idx")
"""Where the sequences of a row begin, as `DataCollatorWithFlattening` says it."""

OF_ONE_STACK = frozenset(("position_ids", *BOUNDARIES))
"""What a model with an encoder and a decoder does not take: it would be that of one side only."""

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
"""Names that tokenizers and tools for other models pass; nothing here uses them."""

OF_CONTINUOUS_BATCHING = frozenset(
    (
        *("cache", "read_index", "write_index", "block_table"),
        *("logits_indices", "logits_processor_args"),
    )
)

OF_GENERATION = frozenset(("tokenizer", "assistant_tokenizer", "assistant_model", "streamer"))
"""Names that `generate()` hands to the model in the search methods that do not use them."""

OF_WHOLE_MODELS = frozenset(("labels", "logits_to_keep"))
"""Names that `generate()` passes to the encoder too, which has no use for them."""


def select_arguments(
    kwargs: Mapping[str, Any], implementation: str | None, ignored: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Selects the further arguments of a forward that are used below.

    Args:
        kwargs: The further arguments.
        implementation: Name of the attention implementation, which may have arguments of its own.
        ignored: Names to leave out without a word.

    Returns:
        The arguments to hand down, in a dictionary of their own.

    Raises:
        ValueError: If nothing would use an argument. One that is None does not count.
    """
    if kwargs.keys() <= USED:
        return dict(kwargs)
    kwargs = {name: value for name, value in kwargs.items() if value is not None}
    ignored |= OF_GENERATION
    unknown = kwargs.keys() - USED - ignored
    if isinstance(kwargs.get("cache"), PagedAttentionCache):
        unknown -= OF_CONTINUOUS_BATCHING
    for name in sorted(unknown & UNUSED):
        logger.warning_once(f"`{name}` has no effect on this model.")
    unknown = _not_accepted(unknown - UNUSED, implementation)
    if unknown:
        raise ValueError(_explain_unknown(sorted(unknown)))
    return {name: value for name, value in kwargs.items() if name not in ignored | UNUSED}


def refuse_arguments(kwargs: Mapping[str, Any], names: frozenset[str]) -> None:
    """Refuses arguments that only other models have.

    Args:
        kwargs: The further arguments of a forward.
        names: Names of other models' arguments.

    Raises:
        ValueError: If one of them is given.
    """
    given = sorted(name for name in names & kwargs.keys() if kwargs[name] is not None)
    if given:
        raise ValueError(_explain_unknown(given))


def direct_attention(kwargs: dict[str, Any], is_causal: bool) -> dict[str, Any]:
    """Settles `is_causal`, which implementations of attention read in different ways.

    Args:
        kwargs: The further arguments of a stack's forward.
        is_causal: Whether the stack is a decoder.

    Returns:
        The arguments, with `is_causal` only where it is False.

    Raises:
        ValueError: If it is True for an encoder.
    """
    if not kwargs.get("is_causal"):
        return kwargs
    if not is_causal:
        raise ValueError(
            "`is_causal` True would hide later tokens from an encoder, which reads in both "
            "directions: leave it out, or use a language model."
        )
    return {name: value for name, value in kwargs.items() if name != "is_causal"}


def positions_of_boundaries(
    kwargs: dict[str, Any], attention_mask: Any, length: int
) -> torch.Tensor | None:
    """Returns the positions of concatenated sequences whose boundaries are given in another form.

    Args:
        kwargs: The further arguments of a forward: `cu_seq_lens_q` holds 0 and the end of each
            sequence of the only row, `seq_idx` the number of its sequence for each token.
        attention_mask: The mask of the caller. With one, a row is one sequence.
        length: Number of tokens of a row.

    Returns:
        Positions of shape (batch or 1, length), or None if no boundaries are given.
    """
    boundaries, sequences = (kwargs.get(name) for name in BOUNDARIES)
    if attention_mask is not None:
        return None
    if boundaries is not None:
        return positions_of_lengths(boundaries, length)
    return None if sequences is None else positions_of_sequences(sequences)


def _not_accepted(names: set[str], implementation: str | None) -> set[str]:
    """Returns the names that an attention implementation has no parameter for."""
    function: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
        str(implementation), eager_attention_forward
    )
    is_known = function.__module__.startswith(("transformers.", __package__ or __name__))
    if not is_known or "flash" in str(implementation):
        return set()  # it may read any name from its own `**kwargs`
    own = {*inspect.signature(function).parameters, "kernel_options"}
    given_by_layers = {"module", "query", "key", "value", "attention_mask", "dropout", "scaling"}
    given_by_layers |= {"position_bias", "kwargs"} | OF_CONTINUOUS_BATCHING
    return names - (own - given_by_layers)


def _explain_unknown(names: list[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    close = difflib.get_close_matches(names[0], ARGUMENTS, n=1, cutoff=0.6)
    hint = f" Did you mean `{close[0]}`?" if close and close[0] not in names else ""
    return f"This model has no argument {listed}, and nothing would use it: leave it out.{hint}"
