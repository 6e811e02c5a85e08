"""Numbers in English words and in Korean words: a data set of character sequences.

The PyPI package `num2words` (LGPL) generates the pairs. It is imported, not copied.
"""

import hashlib
from collections.abc import Callable

from datasets import Dataset, DatasetDict
from pronunciations import split_of

from vanilla_transformer.extras import optional_packages

LIMIT = 100_000
"""Numbers are drawn below this limit."""

COUNT = 20_000
"""How many numbers are drawn."""


def load_numerals(limit: int = LIMIT, count: int = COUNT) -> DatasetDict:
    """Generates numbers with their names, split by number.

    The drawn numbers, their order and their split depend only on the SHA-256 of each number. They
    are the same on every machine, and the order of each split is pseudo-random.

    Args:
        limit: Numbers are drawn from 0 to `limit - 1`, without repetition.
        count: How many numbers are drawn; at most `limit`.

    Returns:
        "train" (90%), "validation" (5%) and "test" (5%) with the columns `source`, such as
        "three hundred and five", and `target`, such as "삼백오".

    Raises:
        ModuleNotFoundError: If the package `num2words` is not installed.
        ValueError: If `count` is not between 1 and `limit`, or a split would be empty.
    """
    if not 1 <= count <= limit:
        raise ValueError(f"`count` is {count}: it must be between 1 and `limit` ({limit}).")
    name_number = _import_num2words()
    by_digest = sorted(
        range(limit), key=lambda n: hashlib.sha256(f"order of {n}".encode()).digest()
    )
    columns: dict[str, dict[str, list[str]]] = {
        split: {"source": [], "target": []} for split in ("train", "validation", "test")
    }
    for number in by_digest[:count]:
        split = columns[split_of(str(number))]
        split["source"].append(name_number(number, lang="en"))
        split["target"].append(name_number(number, lang="ko"))
    if empty := [name for name, split in columns.items() if not split["source"]]:
        raise ValueError(f"`count` is {count}, too few to fill the splits {empty}: draw more.")
    return DatasetDict({name: Dataset.from_dict(split) for name, split in columns.items()})


def _import_num2words() -> Callable[..., str]:
    with optional_packages():
        from num2words import num2words
    name_number: Callable[..., str] = num2words
    return name_number
