"""Tokens for placeholders in training pairs, so that a model learns to copy them."""

from typing import Any

import numpy as np
from datasets import Dataset
from transformers.utils import logging

from vanilla_transformer.columns import LINKS
from vanilla_transformer.data.file_formats import map_rows
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN, PLACEHOLDERS
from vanilla_transformer.text.readings import StandIns

logger = logging.get_logger(__name__)

_SHARE, _LEAST_SHARE = 0.5, 0.01
_SAMPLE = 10_000  # pairs that are looked at, spread over all of them


def share_of_placeholders(rows: Dataset, share: float | None) -> float:
    """Returns the share of the pairs whose placeholders become tokens.

    Args:
        share: The share that the options give. None: one half if at least 1% of the pairs have
            placeholders, otherwise 0.
    """
    if share is not None:
        return share
    sides = [rows[side][:: max(len(rows) // _SAMPLE, 1)] for side in ("source", "target")]
    change = StandIns(PLACEHOLDERS).in_pair
    count = sum(change(*pair) != pair for pair in zip(*sides, strict=True))
    return _SHARE if count >= max(_LEAST_SHARE * len(sides[0]), 1) else 0.0


def with_placeholders(
    rows: Dataset, tokenizer: Any, share: float, num_proc: int | None = None
) -> Dataset:
    """Puts tokens for placeholders into a share of some pairs, always the same ones.

    Args:
        rows: Pairs with the columns "source" and "target". Pairs with links stay if the number of
            their words would change, as the links count words.
        tokenizer: Has the tokens; if it has none, the pairs stay.
    """
    placeholders = StandIns.of(tokenizer)
    if not placeholders.tokens:
        return rows
    drawn = np.random.default_rng(0).random(len(rows)) < share
    has_links = LINKS in rows.column_names

    def change(sources: list[str], targets: list[str], numbers: list[int]) -> dict[str, list[str]]:
        pairs = list(zip(sources, targets, strict=True))
        for number in np.flatnonzero(drawn[numbers]):
            source, token, shown = pairs[number][0].partition(MEMORY_TOKEN)
            texts = source, pairs[number][1], shown
            changed = placeholders.in_pair(*texts)
            if not has_links or all(
                len(new.split()) == len(old.split())
                for new, old in zip(changed, texts, strict=True)
            ):
                pairs[number] = changed[0] + token + changed[2], changed[1]
        return dict(zip(("source", "target"), map(list, zip(*pairs, strict=True)), strict=True))

    logger.debug(f"Tokens stand for placeholders in {share:.0%} of the pairs that have them.")
    options: dict[str, Any] = {"batched": True, "input_columns": ["source", "target"]}
    work = "Putting tokens for placeholders"
    return map_rows(rows, change, work, placeholders, share, num_proc=num_proc, **options)
