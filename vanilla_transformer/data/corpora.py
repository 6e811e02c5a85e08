"""Loads the corpora of a recipe: reads, filters and joins them, and counts what is dropped."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, Features, Value, concatenate_datasets

from vanilla_transformer.data.arguments import LIMITS, SPLITS, DataArguments
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.corpus_entries import (
    LANGUAGE_COLUMNS,
    Corpus,
    shares_of,
    suffix_of,
)
from vanilla_transformer.data.file_formats import dataset_from_rows, read_tsv
from vanilla_transformer.data.filters import active_filters, pair_key, reasons_to_drop
from vanilla_transformer.data.parallel_data import (
    copy_rows,
    files_of_split,
    first_rows,
    load_parallel_data,
)
from vanilla_transformer.data.text_files import read_line_pairs
from vanilla_transformer.data.tmx import read_tmx

_TEXTS = ("source", "target", "corpus", "reason", "document", *LANGUAGE_COLUMNS)
_FEATURES = Features(
    {
        **{name: Value("string") for name in _TEXTS},
        "line": Value("int64"),
    }
)
_MOST_EXAMPLES = 3


# Reading ------------------------------------------------------------------------------------------


def read_pairs(corpus: Corpus, split: str) -> Iterator[tuple[Any, ...]]:
    """Yields source, target, line and document of each pair of a split, as a stream of its files.

    Only a training file may have a column of documents. The languages of a pair follow, where a
    table or a data set has both of `LANGUAGE_COLUMNS`.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is damaged, or lacks a column or a language.
    """
    paths = corpus.paths(split)
    suffix = suffix_of(paths[0]) if paths else ""
    if len(paths) == 2:
        lines = read_line_pairs(*paths)
        yield from ((*pair, number, "") for number, pair in enumerate(lines, start=1))
    elif suffix == ".tmx":
        yield from read_tmx(paths[0], corpus.languages or (), corpus.inline)
    elif suffix == ".tsv":
        yield from read_tsv(paths[0], (corpus.columns or [1, 2])[: 3 if split == "train" else 2])
    else:
        rows = _load_rows(corpus, split)
        if "references" in rows.column_names:
            raise ValueError(
                f"The {split} data of the corpus {corpus.name!r} have a column 'references', which "
                f"`corpora` do not read: give them as `{split}_file`, or leave the column out."
            )
        named = LANGUAGE_COLUMNS if {*LANGUAGE_COLUMNS} <= {*rows.column_names} else ()
        columns = (rows[name] for name in ("source", "target", *named))
        for number, (source, target, *languages) in enumerate(zip(*columns, strict=True), start=1):
            yield (source, target, number, "", *languages)


def _load_rows(corpus: Corpus, split: str) -> Dataset:
    """Loads the rows of a table or of a data set as `load_parallel_data` does."""
    paths = corpus.paths(split)
    options: dict[str, Any] = {"dataset_name": corpus.dataset}
    if paths:
        options = {f"{split}_file": paths[0]}
    columns = map(str, (corpus.columns or ("source", "target"))[:2])
    options |= zip(("source_column", "target_column"), columns, strict=True)
    return load_parallel_data(DataArguments(**options))[split]


def _tagged_rows(
    spec: dict[str, Any], split: str, held_out: Sequence[int], **_: Any
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the table of a corpus; its arguments are what the table depends on.

    A source may have the tag of the corpus already. Each row has the reason why it is dropped; ""
    keeps it. Only a training has filters.
    """
    corpus = Corpus(**spec)
    begin = f"{corpus.tag} " if corpus.tag else ""
    limits = active_filters(corpus.filters) if split == "train" else {"empty": True}
    reason_of = reasons_to_drop(limits, corpus.languages, frozenset(held_out))
    for source, target, line, document, *languages in read_pairs(corpus, split):
        yield {
            "source": source if source.startswith(begin) else begin + source,
            "target": target,
            "corpus": corpus.name,
            "reason": reason_of(source, target),
            "document": document,
            "line": line,
            **dict(zip(LANGUAGE_COLUMNS, languages or (None, None), strict=True)),
        }


def _load_table_of(corpus: Corpus, split: str, held_out: frozenset[int]) -> Dataset:
    """Loads the pairs of a corpus, those that are dropped included."""
    paths = {f"file{number}": path for number, path in enumerate(corpus.paths(split))}
    options: dict[str, Any] = {"spec": asdict(replace(corpus, weight=None)), "split": split}
    options |= {"held_out": sorted(held_out), "limits": active_filters(corpus.filters)}
    if corpus.dataset is not None:
        options["fingerprint"] = _load_rows(corpus, split)._fingerprint
    table = dataset_from_rows(_tagged_rows, _FEATURES, paths, **options)
    columns = table.with_format("arrow")
    unnamed = [n for n in LANGUAGE_COLUMNS if columns[n][:].null_count == len(table)]
    return table.remove_columns(unnamed)


# Loading ------------------------------------------------------------------------------------------


def load_corpora(args: DataArguments, links: str | None = None) -> DatasetDict:
    """Loads the splits that the entries of `corpora` name, joined in their order.

    Validation and test data may also be given by the other options. The training split describes
    what was read in `info.description`; see `reports_of`.

    Args:
        links: As in `load_parallel_data`; it is refused.

    Returns:
        The splits, with the columns "source" (with its tag), "target", "corpus" and "line".

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If an entry is wrong, a file is damaged, a split is given twice, or nothing is
            left of a corpus.
    """
    if links is not None:
        raise ValueError(
            "`guided_alignment` names a file of links, which belong to the lines of one corpus: "
            "leave it or `corpora` out."
        )
    whole, tables = load_tables(args)
    loaded = {
        split: concatenate_datasets([first_rows(rows, args, split) for rows in parts])
        for split, parts in whole.items()
    }
    if tables:
        kept = {n: first_rows(_kept_rows(table), args, "train") for n, table in tables.items()}
        known, tags = args.row_languages(), {each.name: each.tag for each in args.entries}
        parts = {
            name: add_cased_copies(rows, args.case_augment, known, tags[name])
            for name, rows in kept.items()
        }
        loaded["train"] = concatenate_datasets([*parts.values()])
        sizes = {name: len(rows) for name, rows in parts.items()}
        shares = shares_of(args.entries, sizes, args.corpora_temperature)
        loaded["train"].info.description = json.dumps(_make_reports(tables, kept, sizes, shares))
    return DatasetDict({split: loaded[split] for split in SPLITS if split in loaded})


def load_tables(args: DataArguments) -> tuple[dict[str, list[Dataset]], dict[str, Dataset]]:
    """Loads what the entries of `corpora` name, before the limits on the number of rows.

    Returns:
        The parts of the validation and the test split; for each corpus its training pairs, in which
        the column "reason" names the filter that drops a pair.
    """
    corpora, tags = args.entries, args.tags
    whole = {split: [rows] for split, rows in _load_other_splits(args).items()}
    for split in ("validation", "test"):
        for corpus in corpora:
            if _has_split(corpus, split):
                kept = _kept_rows(_load_table_of(corpus, split, frozenset()))
                whole.setdefault(split, []).append(kept)
    keys = [_keys_of(rows, tags) for parts in whole.values() for rows in parts]
    held_out = frozenset[int]().union(*keys)
    tables = {
        corpus.name: _load_table_of(corpus, "train", held_out)
        for corpus in corpora
        if _has_split(corpus, "train")
    }
    return whole, tables


def _has_split(corpus: Corpus, split: str) -> bool:
    if corpus.dataset is None:
        return bool(corpus.paths(split))
    try:
        _load_rows(corpus, split)
    except KeyError:
        return False
    return True


def _load_other_splits(args: DataArguments) -> dict[str, Dataset]:
    """Loads the whole validation and test splits that the options beside `corpora` name."""
    is_named = {split: bool(files_of_split(args, split)) for split in SPLITS}
    corpora = args.entries
    for split in SPLITS:
        if is_named[split] and (split == "train" or any(corpus.paths(split) for corpus in corpora)):
            raise ValueError(
                f"The {split} data are given in `corpora` and by `{split}_...`: give them once."
            )
    if args.dataset_name is not None:
        raise ValueError(
            "`dataset_name` and `corpora` exclude each other: use `dataset` in an entry."
        )
    if not any(is_named.values()):
        return {}
    changes: dict[str, Any] = dict.fromkeys((*LIMITS.values(), "corpora", "corpora_temperature"))
    return dict(load_parallel_data(replace(args, **changes)))


def _kept_rows(table: Dataset) -> Dataset:
    return copy_rows(table, _rows_with_reason(table, "")).remove_columns("reason")


def _rows_with_reason(table: Dataset, reason: str) -> Any:
    is_dropped = pc.equal(table.with_format("arrow")["reason"][:], reason)
    return is_dropped.to_numpy(zero_copy_only=False)


def _keys_of(rows: Dataset, tags: Sequence[str]) -> set[int]:
    """Returns the keys of pairs, whose sources may begin with the tag of a corpus."""

    def plain(source: str) -> str:
        tag, _, rest = source.partition(" ")
        return rest if tag in tags else source

    pairs = zip(rows["source"], rows["target"], strict=True)
    return {pair_key(plain(source), target) for source, target in pairs}


# What was dropped ---------------------------------------------------------------------------------


def _make_reports(
    tables: Mapping[str, Dataset],
    kept: Mapping[str, Dataset],
    sizes: Mapping[str, int],
    shares: Mapping[str, float] | None,
) -> list[dict[str, Any]]:
    """Returns for each corpus its pairs, those in use, its share of an epoch, and what is dropped.

    Args:
        sizes: Numbers of pairs with their copies in other case.

    Raises:
        ValueError: If nothing is left of a corpus.
    """
    reports = []
    for name, table in tables.items():
        reasons = count_reasons(table)
        if not sizes[name]:
            raise ValueError(
                f"The filters leave nothing of the corpus {name!r} with {len(table):,} pairs "
                f"({_list_reasons(reasons)}): `vanilla-transformer corpora RECIPE` shows examples."
            )
        share = sizes[name] / sum(sizes.values()) if shares is None else shares[name]
        reports.append(
            {
                "corpus": name,
                "pairs": len(table),
                "used": len(kept[name]),
                "copies": sizes[name] - len(kept[name]),
                "share": share,
                "is_mixed": shares is not None,
                "dropped": dict(reasons.most_common()),
            }
        )
    return reports


def reports_of(rows: Dataset) -> list[dict[str, Any]]:
    """Returns what is known of the corpora of a training split; empty without `corpora`."""
    try:
        reports = json.loads(rows.info.description or "null")
    except ValueError:  # a description for people
        return []
    return reports if isinstance(reports, list) else []


def describe_report(report: Mapping[str, Any]) -> str:
    """Returns a report in words."""
    dropped = f" ({_list_reasons(report['dropped'])})" if report["dropped"] else ""
    copies = f", and {report['copies']:,} copies in other case" if report.get("copies") else ""
    return (
        f"Corpus {report['corpus']}: {report['used']:,} of {report['pairs']:,} pairs are used"
        f"{dropped}{copies}; {report['share']:.1%} of an epoch."
    )


def _list_reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in reasons.items())


def count_reasons(table: Dataset) -> Counter[str]:
    """Counts the pairs that each filter drops from a corpus."""
    counted = pc.value_counts(table.with_format("arrow")["reason"][:]).to_pylist()
    return Counter({row["values"]: row["counts"] for row in counted if row["values"]})


def dropped_examples(table: Dataset, reason: str) -> Dataset:
    """Returns the first pairs that a filter drops from a corpus."""
    return table.select(_rows_with_reason(table, reason).nonzero()[0][:_MOST_EXAMPLES])
