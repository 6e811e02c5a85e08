"""Rows that are computed in groups, such as one for each language, and stay in their order."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Row = TypeVar("Row")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)


def map_grouped(
    rows: Sequence[Row], keys: Sequence[Key], compute: Callable[[Key, list[Row]], list[Result]]
) -> list[Result]:
    """Computes the rows of each key together; returns the results in the order of the rows."""
    groups: dict[Key, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    results: dict[int, Result] = {}
    for key, indices in groups.items():
        group = compute(key, [rows[index] for index in indices])
        results |= zip(indices, group, strict=True)
    return [results[index] for index in range(len(rows))]
