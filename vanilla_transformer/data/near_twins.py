"""Held-out texts that are nearly equal to texts of the training: scores with them flatter."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any

from datasets import Dataset
from transformers.utils import logging

from vanilla_transformer.columns import split_tag
from vanilla_transformer.data.file_formats import map_rows
from vanilla_transformer.text.memory import Memory, Pair

logger = logging.get_logger(__name__)

TWIN = "is_twin"
"""Name of the column that tells which held-out texts have a twin."""
WITHOUT_TWINS = "without_twins"
"""End of the names of scores that leave these texts out."""
LEAST_SIMILARITY_OF_TWINS = 0.8
"""Similarity of texts from which they are twins: one word in five may differ."""
_MOST_PAIRS = 1_000_000
"""Training pairs that are compared: a million take 3 minutes, and 0.3 GB beside their texts."""


def memory_of_sources(sources: Iterable[str], tags: Sequence[str]) -> Memory:
    """Returns a memory that knows the first million sources, without tags and translations."""
    texts = dict.fromkeys(split_tag(source, tags)[1] for source in islice(sources, _MOST_PAIRS))
    return Memory(Pair(text, "-") for text in texts)


def is_twin(memory: Memory, text: str) -> bool:
    """Returns whether a memory has a text that is nearly equal; numbers and case do not count."""
    return memory.has_similar(text, LEAST_SIMILARITY_OF_TWINS)


def mark_twins(rows: Dataset, training: Dataset, tags: Sequence[str], split: str) -> Dataset:
    """Adds the column `TWIN` to the rows of a held-out split if one has a twin; tells how many."""

    @cache
    def memory() -> Memory:  # only if the rows are not kept already
        return memory_of_sources(training["source"], tags)

    def mark(batch: dict[str, Any], _: list[int]) -> dict[str, list[bool]]:
        texts = (split_tag(source, tags)[1] for source in batch["source"])
        return {TWIN: [is_twin(memory(), text) for text in texts]}

    work = "Comparing held-out texts with the training"
    marked = map_rows(rows, mark, work, training._fingerprint, tags, batched=True)
    if not (count := sum(marked[TWIN])):
        return rows
    logger.info(
        f"{split.capitalize()}: {count:,} of {len(rows):,} texts are nearly equal to a training "
        "text (80% of the words)."
    )
    return marked
