"""The columns of a table of pairs besides the texts: languages, links of words, references."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from datasets import Dataset

from vanilla_transformer.language_tags import Languages, standard_tag

LANGUAGE_COLUMNS = ("source_language", "target_language")
"""Columns that name the languages of each row; a table lacks a column without any name."""
LINKS = "alignment"
"""Name of the column of links: lines in Pharaoh's format, and after encoding links of tokens."""


def languages_of(columns: Mapping[str, Sequence[Any]], count: int) -> list[Languages]:
    """Returns the languages of some rows, given their columns."""
    unknown = [None] * count
    source, target = (columns.get(name, unknown) for name in LANGUAGE_COLUMNS)
    return list(zip(source, target, strict=True))


def languages_of_rows(rows: Dataset) -> list[Languages]:
    """Returns the languages of each row of a table."""
    names = [name for name in LANGUAGE_COLUMNS if name in rows.column_names]
    return languages_of(rows.select_columns(names)[:] if names else {}, len(rows))


def with_languages(rows: Dataset, languages: Languages) -> Dataset:
    """Returns rows with these languages, except where their columns name others."""
    columns = zip(*languages_of_rows(rows), strict=True)
    for name, own, language in zip(LANGUAGE_COLUMNS, columns, languages, strict=True):
        if language is not None:
            if name in rows.column_names:
                rows = rows.remove_columns(name)
            rows = rows.add_column(name, [code or language for code in own])
    return rows


def split_tag(source: str, tags: Sequence[str]) -> tuple[str, str]:
    """Returns the tag that a source begins with, or "", and the rest without the space between."""
    tag = next((tag for tag in tags if source.startswith(f"{tag} ")), "")
    return tag, source[len(tag) + 1 :] if tag else source


def distinct_directions(rows: Dataset, tags: Collection[str] = ()) -> list[tuple[Any, ...]]:
    """Returns the triples of source language, target language and tag that occur in a table.

    Args:
        tags: Words at the begin of a source that ask for a kind of target; "" stands for none.
    """
    found: dict[tuple[Any, ...], None] = {}
    names = [name for name in LANGUAGE_COLUMNS if name in rows.column_names]
    for batch in rows.select_columns(["source", *names]).with_format("arrow").iter(100_000):
        begins = pc.list_element(pc.split_pattern(batch["source"], " ", max_splits=1), 0)
        is_tag = pc.is_in(begins, pa.array([*tags], pa.string()))
        columns = [
            batch[name] if name in names else pa.nulls(len(batch), pa.string())
            for name in LANGUAGE_COLUMNS
        ]
        table = pa.table([*columns, pc.if_else(is_tag, begins, "")], [*LANGUAGE_COLUMNS, "tag"])
        distinct = table.group_by(table.column_names, use_threads=False).aggregate([])
        found |= dict.fromkeys(tuple(row.values()) for row in distinct.to_pylist())
    return list(found)


def directions_of(rows: Dataset, tags: Collection[str]) -> list[tuple[str | None, str, str]]:
    """Returns the directions of pairs whose target's language is known, with their tags."""
    named = [
        (standard_tag(source) if source else None, standard_tag(target), tag)
        for source, target, tag in distinct_directions(rows, tags)
        if target
    ]
    return list(dict.fromkeys(named))


def references_of(rows: Dataset) -> list[list[str]]:
    """Returns the references of each text: the several that the data name, or its target."""
    if "references" not in rows.column_names:
        return [[text] for text in rows["target"]]
    return [own or [text] for own, text in zip(rows["references"], rows["target"], strict=True)]
