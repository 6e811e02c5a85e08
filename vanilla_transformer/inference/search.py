"""How outputs are searched for: the model's settings and a caller's options, resolved once."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

DEFAULT_MAX_NEW_TOKENS = 256
"""Longest output in tokens of a model whose settings name no length; `generate()` stops at 20."""


@dataclass(frozen=True)
class Search:
    """The search of one call.

    Attributes:
        settings: All settings of `generate()`. Nothing changes them.
        num_beams: Beam width; 1 is greedy search or sampling.
        n_best: Outputs per source.
        max_new_tokens: Longest output in tokens, the end included.
        length_penalty: Exponent of the length by which scores are divided.
        do_sample: Whether tokens are drawn.
    """

    settings: GenerationConfig
    num_beams: int
    n_best: int
    max_new_tokens: int
    length_penalty: float
    do_sample: bool


def resolve_search(defaults: GenerationConfig, n_best: int, **options: Any) -> Search:
    """Combines the settings that are saved with a model with those of a call.

    A beam search stops when `num_beams` outputs are complete, as in most toolkits for translation,
    unless `early_stopping` says otherwise.

    Args:
        defaults: The settings of the model; they are not changed.
        n_best: Outputs per source.
        **options: Settings that differ, by their names in `GenerationConfig`; None keeps one.

    Returns:
        The search.

    Raises:
        ValueError: If a setting is unknown, or out of range.
    """
    settings = deepcopy(defaults)
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := settings.update(**given):
        raise ValueError(
            f"Unknown search option {next(iter(unknown))!r}: use a field of `GenerationConfig`, "
            "such as num_beams or max_new_tokens."
        )
    num_beams = 1 if settings.num_beams is None else settings.num_beams
    _check_counts(num_beams, n_best, bool(settings.do_sample))
    new_tokens = longest_output(settings, DEFAULT_MAX_NEW_TOKENS)
    # `generate()` fills in what is None from the model: name the length as the model does.
    by_new_tokens = defaults.max_new_tokens is not None
    settings.max_new_tokens = new_tokens if by_new_tokens else None
    settings.max_length = None if by_new_tokens else new_tokens + 1
    settings.num_return_sequences = n_best
    if num_beams > 1 and settings.early_stopping is None:
        settings.early_stopping = True
    penalty = settings.length_penalty
    return Search(
        settings=settings,
        num_beams=num_beams,
        n_best=n_best,
        max_new_tokens=new_tokens,
        length_penalty=1.0 if penalty is None else float(penalty),
        do_sample=bool(settings.do_sample),
    )


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


def _check_counts(num_beams: int, n_best: int, samples: bool) -> None:
    for name, value in (("num_beams", num_beams), ("n_best", n_best)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"`{name}` is {value!r}: give a whole number of at least 1.")
    if n_best > num_beams and (num_beams > 1 or not samples):
        raise ValueError(
            f"`n_best` is {n_best}, but the search keeps {num_beams}: set `num_beams` to at least "
            "that number, or sample with `do_sample=True` and `num_beams=1`."
        )
