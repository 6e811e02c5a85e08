"""Loads the data of a run: reads, filters and joins its corpora, and counts the dropped pairs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, Features, List, Value, concatenate_datasets
from transformers.utils import logging

from vanilla_transformer.columns import LANGUAGE_COLUMNS, languages_of_rows, split_tag
from vanilla_transformer.data.arguments import LIMITS, DataArguments
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.corpus_entries import SPLITS, Corpus, shares_of
from vanilla_transformer.data.corpus_reports import (
    CorpusReport,
    count_reasons,
    list_reasons,
    rows_with_reason,
)
from vanilla_transformer.data.file_formats import add_links, cached_table, open_data_set, read_pairs
from vanilla_transformer.data.filters import are_swapped, pair_key, reasons_to_drop
from vanilla_transformer.data.near_twins import is_twin, memory_of_sources
from vanilla_transformer.files.file_contents import content_digest, text_digest
from vanilla_transformer.files.text_files import suffix_of
from vanilla_transformer.language_tags import Languages
from vanilla_transformer.text.memory import Memory

logger = logging.get_logger(__name__)

_ASKED = 100
"""Rows of a corpus whose languages are compared with its options."""

_REFERENCES = "references"
_FEATURES = Features(
    {
        **{name: Value("string") for name in ("source", "target", "reason")},
        "line": Value("int64"),
        **{name: Value("string") for name in ("document", "corpus", *LANGUAGE_COLUMNS)},
        _REFERENCES: List(Value("string")),
    }
)
_OPTIONAL = tuple(_FEATURES)[4:]
"""Columns that a table lacks if none of its rows has a value."""


@dataclass(frozen=True)
class ParallelData:
    """The data of a run.

    Attributes:
        splits: "train", "validation" and "test", as far as they are given, with the columns
            "source" (with the tag of its corpus), "target" and "line"; and where any row has them,
            "corpus" (a name), "document", the languages of the row, "references" (a list of texts)
            and "alignment".
        reports: A report of each corpus of the training data that has a name.
        shares: The share of each corpus in an epoch, by its name; None: each pair is used once.
    """

    splits: DatasetDict
    reports: Sequence[CorpusReport] = ()
    shares: Mapping[str, float] | None = None


def load_parallel_data(
    args: DataArguments, links: str | None = None, cache: Path | None = None
) -> ParallelData:
    """Loads the splits of all entries, joined in their order.

    A file is read again when its content has changed.

    Args:
        links: File with the word links of each training pair, in Pharaoh's format. None: no links.
        cache: Folder of the Arrow copies. None: one under `HF_DATASETS_CACHE`.
    """
    tables = load_tables(args, cache)
    if links is not None:
        linked = tables.get("train", [])
        if len(linked) != 1 or linked[0][0].tag:
            raise ValueError(
                "`guided_alignment` names a file of links, which belong to the lines of one corpus "
                "without a tag: leave it out."
            )
        tables["train"] = [(entry, add_links(table, links)) for entry, table in linked]
    splits: dict[str, Dataset] = {}
    reports, shares = [], None
    for split in (split for split in SPLITS if split in tables):
        limit = getattr(args, LIMITS[split])
        parts = [_used_rows(entry, split, table, limit) for entry, table in tables[split]]
        if split == "train":
            entries, used = [entry for entry, _ in tables[split]], parts
            parts = [
                add_cased_copies(rows, args.case_augment, entry.tag)
                for entry, rows in zip(entries, used, strict=True)
            ]
            named = zip(entries, parts, strict=True)
            sizes = {entry.name: len(rows) for entry, rows in named if entry.name}
            # Copies count. Data that are no corpora have no shares.
            shares = shares_of(entries, sizes, args.corpora_temperature) or None
            of_size = {name: size / sum(sizes.values()) for name, size in sizes.items()}
            reports = [
                CorpusReport(
                    corpus=entry.name,
                    pairs=len(table),
                    used=len(rows),
                    copies=sizes[entry.name] - len(rows),
                    share=(shares or of_size)[entry.name],
                    dropped=count_reasons(table),
                )
                for (entry, table), rows in zip(tables[split], used, strict=True)
                if entry.name
            ]
        splits[split] = _joined(parts)
    return ParallelData(DatasetDict(splits), reports, shares)


def warn_of_swapped_columns(rows: Dataset, name: str) -> None:
    """Warns of pairs that are in each other's language, if both languages are known."""
    rows = rows.select(range(min(_ASKED, len(rows))))
    languages = languages_of_rows(rows)
    if are_swapped(zip(rows["source"], rows["target"], languages, strict=True)):
        source, target = languages[0]
        logger.warning(
            f"Most sources of the {name} are in {target}, and most targets in {source}: the "
            "columns, or the languages, are swapped."
        )


def load_tables(
    args: DataArguments, cache: Path | None = None
) -> dict[str, list[tuple[Corpus, Dataset]]]:
    """Loads the whole table of each entry for each split, before the limits on the number of rows.

    The column "reason" names the filter that drops a pair.
    """
    args.check_files()
    sources = [(each, open_data_set(each) if each.dataset else {}) for each in args.entries]
    for entry, opened in sources:
        if entry.dataset and not opened.keys() & {*SPLITS}:
            raise ValueError(
                f"{entry.dataset} has the splits {list(opened)}: it needs one of {list(SPLITS)}."
            )
    tables: dict[str, list[tuple[Corpus, Dataset]]] = {}
    held_out, twins = frozenset[int](), Memory()
    for split in reversed(SPLITS):  # a missing file is found before the training data are read
        if split == "train" and any(entry.name for entry in args.entries):
            held_out = _keys_of(tables, args.tags)  # of the other splits, which are read
            if any("twin" in entry.limits(split) for entry in args.entries):
                others = (table["source"] for of_split in tables.values() for _, table in of_split)
                twins = memory_of_sources(chain.from_iterable(others), args.tags)
        of_split = [
            (entry, _load_table(entry, split, opened.get(split), held_out, twins, args.tags, cache))
            for entry, opened in sources
            if entry.paths(split) or split in opened
        ]
        if of_split:
            tables[split] = of_split
    return tables


def _load_table(
    corpus: Corpus,
    split: str,
    data_set: Dataset | None,
    held_out: frozenset[int],
    twins: Memory,
    tags: Sequence[str],
    cache: Path | None,
) -> Dataset:
    """Loads the pairs of a corpus, with the dropped ones."""
    paths, limits = corpus.paths(split), corpus.limits(split)
    # The content counts, not the names, and no weight changes a table.
    changes: dict[str, Any] = {**dict.fromkeys(SPLITS), "dataset": None, "weight": None}
    made_from = [
        asdict(replace(corpus, **changes)),
        split == "train",
        limits,
        sorted(held_out) if "held_out" in limits else None,
        tags,
        [suffix_of(path) for path in paths],
        [content_digest(path) for path in paths],
        None if data_set is None else data_set._fingerprint,
    ]
    reason_of = reasons_to_drop(limits, held_out, partial(is_twin, twins))
    rows = _judged_rows(corpus, split, data_set, reason_of, tags)
    origin = " and ".join(paths) or f"{corpus.dataset} ({split})"
    table = cached_table(rows, _FEATURES, text_digest(json.dumps(made_from)), origin, cache)
    columns = table.with_format("arrow")
    table = table.remove_columns(
        [name for name in _OPTIONAL if columns[name][:].null_count == len(table)]
    )
    if "language" in limits and not {*LANGUAGE_COLUMNS} & {*table.column_names}:
        raise ValueError(
            f"{corpus.label}: the filter `language` needs `languages`, such as [en, de]."
        )
    return table


def _judged_rows(
    corpus: Corpus,
    split: str,
    data_set: Dataset | None,
    reason_of: Callable[[str, str, Languages], str],
    tags: Sequence[str],
) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a table: the pairs, and the reason why each is dropped; "" keeps it.

    A source may have the tag of the corpus already; no tag counts for the reason.
    """
    begin = f"{corpus.tag} " if corpus.tag else ""
    of_all = corpus.languages or (None, None)
    for pair in read_pairs(corpus, split, data_set):
        source, target = pair.source or "", pair.target or ""
        if "\0" in source or "\0" in target:
            where = " and ".join(corpus.paths(split)) or corpus.dataset
            raise ValueError(
                f"{where}, line {pair.line}: NUL bytes are no text: the data are damaged."
            )
        languages = pair.source_language or of_all[0], pair.target_language or of_all[1]
        yield (
            source if source.startswith(begin) else begin + source,
            target,
            reason_of(split_tag(source, tags)[1], target, languages),
            pair.line,
            pair.document or None,
            corpus.name or pair.corpus,
            *languages,
            pair.references,
        )


def _used_rows(corpus: Corpus, split: str, table: Dataset, limit: int | None) -> Dataset:
    """Returns the first rows that no filter drops.

    Warnings count empty pairs that no report counts, and tell of swapped columns.
    """
    is_kept, dropped = rows_with_reason(table, ""), count_reasons(table)
    if not is_kept.any():
        remedy = (
            "`vanilla-transformer corpora RECIPE` shows examples" if corpus.name else "check it"
        )
        raise ValueError(
            f"Nothing is left of the {split} data {corpus.label!r} with {len(table):,} pairs "
            f"({list_reasons(dropped)}): {remedy}."
        )
    if not is_kept.all() and (split != "train" or not corpus.name):
        logger.warning(
            f"{split}: skipped {len(table) - is_kept.sum():,} of {len(table):,} pairs because a "
            f"side is empty. The first of them is on line {table[int(is_kept.argmin())]['line']:,}."
        )
    rows = table.remove_columns("reason")
    if not is_kept.all():  # a copy: a table of indices would make each access slow
        rows = rows.with_format("arrow").select(np.flatnonzero(is_kept))
        rows = rows.flatten_indices().with_format(None)
    warn_of_swapped_columns(rows, f"{split} data{f' of {corpus.name}' * bool(corpus.name)}")
    return rows.select(range(min(limit or len(rows), len(rows))))


def _joined(parts: Sequence[Dataset]) -> Dataset:
    """Joins the rows of corpora; where only some have several references, others have one."""
    if any(_REFERENCES in rows.column_names for rows in parts):
        parts = [
            rows
            if _REFERENCES in rows.column_names
            else rows.add_column(_REFERENCES, [[text] for text in rows["target"]])
            for rows in parts
        ]
    return concatenate_datasets([*parts])


def _keys_of(
    tables: Mapping[str, Sequence[tuple[Corpus, Dataset]]], tags: Sequence[str]
) -> frozenset[int]:
    """Returns the keys of held-out pairs, whose sources may begin with the tag of a corpus."""
    whole = [rows for parts in tables.values() for _, rows in parts]
    pairs = (pair for rows in whole for pair in zip(rows["source"], rows["target"], strict=True))
    return frozenset(pair_key(split_tag(source, tags)[1], target) for source, target in pairs)


def name_row(args: DataArguments, split: str, row: Mapping[str, Any], index: int) -> str:
    """Returns where a row of a split comes from, e.g. "Line 3 of a.en, a.de"."""
    if "line" not in row:
        return f"Row {index + 1} of the {split} split"
    unnamed = [entry for entry in args.entries if not entry.name and entry.may_have(split)]
    files = [path for entry in unnamed for path in entry.paths(split) or [str(entry.dataset)]]
    origin = ", ".join(files) or f"the corpus {row['corpus']!r}"
    return f"Line {row['line']} of {origin}"
