"""Training pairs that show the translation of a similar text, so that a model uses a memory.

This translation stands behind the source (Bulte and Tezcan 2019, "Neural Fuzzy Repair"). Some pairs
show the translation of an unrelated text, so that the model learns to ignore it (Hoang et al. 2022,
"Improving Robustness of Retrieval Augmented Translation via Shuffling of Suggestions").
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from datasets import Dataset

from vanilla_transformer.columns import languages_of, split_tag
from vanilla_transformer.data.file_formats import map_rows
from vanilla_transformer.text.memory import (
    LEAST_READ,
    LEAST_SIMILARITY,
    Memory,
    Pair,
    memory_suffix,
)

_SHARE = 0.5  # of the pairs that have a similar one
_UNRELATED = 0.05  # of the others
_ENOUGH = 0.05  # of the pairs have a similar one
_LOOKED_AT = 500  # pairs
_BLOCK = 50_000  # neighbours that are searched: pairs of one program stand side by side


def has_similar_pairs(rows: Dataset, tags: Sequence[str] = ()) -> bool:
    """Returns whether at least 5% of some pairs are similar to other ones."""
    some = rows.select(range(min(len(rows), _BLOCK)))
    memories = _memories(some, tags)
    looked_at = _directions_and_pairs(some[:: max(len(some) // _LOOKED_AT, 1)], tags)
    found = [
        memories[0, direction].similar(pair.source, LEAST_SIMILARITY, excludes_equal_words=True)
        is not None
        for direction, pair in looked_at
    ]
    return sum(found) >= _ENOUGH * len(found)


def annotate_memory(
    rows: Dataset, tags: Sequence[str] = (), num_proc: int | None = None
) -> Dataset:
    """Puts the translation of a similar text behind the sources of half of the pairs that have one.

    The source of this translation is never equal.

    Args:
        rows: Pairs with the columns "source" and "target".
        tags: Words that sources may begin with, which do not count.
    """
    memories = _memories(rows, tags)

    def annotate(batch: dict[str, Any], numbers: list[int]) -> dict[str, list[str]]:
        sources = list(batch["source"])
        of_rows = zip(numbers, _directions_and_pairs(batch, tags), strict=True)
        for index, (number, (direction, pair)) in enumerate(of_rows):
            chance, memory = Random(number), memories[number // _BLOCK, direction]
            drawn = chance.random()
            if drawn >= _SHARE:
                continue
            shown = memory.similar(pair.source, LEAST_READ, excludes_equal_words=True)
            if shown is None and drawn < _UNRELATED and len(memory):
                shown = memory.draw(chance)
                shown = shown if shown.target != pair.target else None
            if shown is not None:
                sources[index] += memory_suffix(pair.source, shown)
        return {"source": sources}

    work = "Searching for similar texts"
    return map_rows(rows, annotate, work, tags, batched=True, num_proc=num_proc)


_Direction = tuple[str | None, ...]
"""The tag of a source, or "", and its languages."""


def _memories(rows: Dataset, tags: Sequence[str]) -> dict[tuple[int, _Direction], Memory]:
    """Returns a memory of each direction in each block."""
    memories: dict[tuple[int, _Direction], Memory] = {}
    for block, batch in enumerate(rows.iter(_BLOCK)):
        for direction, pair in _directions_and_pairs(batch, tags):
            memories.setdefault((block, direction), Memory()).add(pair)
    return memories


def _directions_and_pairs(
    batch: Mapping[str, Any], tags: Sequence[str]
) -> Iterator[tuple[_Direction, Pair]]:
    """Yields pairs without their tags."""
    languages = languages_of(batch, len(batch["source"]))
    for source, target, of_row in zip(batch["source"], batch["target"], languages, strict=True):
        tag, text = split_tag(source, tags)
        yield (tag, *of_row), Pair(text, target)
