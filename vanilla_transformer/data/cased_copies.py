"""Copies of training pairs in capitals and in title case, so that a model learns such texts too."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import regex
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray

from vanilla_transformer.columns import languages_of
from vanilla_transformer.data.file_formats import map_rows
from vanilla_transformer.text.capitals import to_title, to_upper

_WORDS = regex.compile(
    r"(?<!\S)(?!--?\p{L}|\S*\p{L}[.:]+\p{L}{2})[^\s\d<>{}\[\]$%@\\/_#&|=]+(?!\S)"
)
"""Words that change: not tags, placeholders, markup, options, names of files, addresses and words
with a digit."""


def add_cased_copies(rows: Dataset, share: float | None, tag: str | None = None) -> Dataset:
    """Adds copies of some pairs after all pairs: one half in capitals, one half in title case.

    A pair whose source would stay as it is has no copy: it would have two targets.

    Args:
        rows: Pairs with the columns "source" and "target". Other columns are copied as they are;
            the columns of languages decide which letter is the capital of another.
        share: Number of copies in relation to the number of pairs. None: no copies.
        tag: The word before the sources, which stays as it is; None: there is none.
    """
    if share is None:
        return rows
    begin = "" if tag is None else f"{tag} "

    def in_other_case(row: dict[str, Any], number: int) -> dict[str, str]:
        text = row["source"].removeprefix(begin)
        head = row["source"].removesuffix(text)
        change = (to_title, to_upper)[number % 2]
        (languages,) = languages_of({name: [value] for name, value in row.items()}, 1)
        source, target = map(partial(_with_words, change), (text, row["target"]), languages)
        return {"source": head + source, "target": target}

    drawn = rows.select(drawn_rows(len(rows), share))
    copies = map_rows(drawn, in_other_case, "Copying in other case", begin)
    pairs = zip(drawn["source"], copies["source"], strict=True)
    differing = [number for number, (old, new) in enumerate(pairs) if old != new]
    return concatenate_datasets([rows, copies.select(differing)])


def drawn_rows(count: int, share: float) -> NDArray[np.int64]:
    """Draws the rows that are copied: of so many rows always the same ones, in their order."""
    rows = np.random.default_rng(0).choice(count, round(share * count), replace=False)
    return np.sort(rows)


def _with_words(change: Callable[..., str], text: str, language: str | None) -> str:
    return str(_WORDS.sub(lambda word: change(word[0], language), text))
