"""Loads the corpora of a recipe: reads, filters and joins them, and counts what is dropped."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, Features, Value, concatenate_datasets

from vanilla_transformer.data.arguments import LIMITS, SPLITS, DataArguments
from vanilla_transformer.data.corpus_entries import Corpus, read_entries, shares_of, suffix_of
from vanilla_transformer.data.file_formats import dataset_from_rows, read_tsv
from vanilla_transformer.data.filters import pair_key, reasons_to_drop
from vanilla_transformer.data.parallel_data import (
    copy_rows,
    files_of_split,
    first_rows,
    load_parallel_data,
)
from vanilla_transformer.data.text_files import read_line_pairs, read_lines
from vanilla_transformer.data.tmx import read_tmx

_FEATURES = Features(
    {
        **{name: Value("string") for name in ("source", "target", "corpus", "reason", "document")},
        "line": Value("int64"),
    }
)
_MOST_EXAMPLES = 3


class CorpusRow(NamedTuple):
    """A pair of a corpus.

    Attributes:
        source: Its source, without a tag.
        line: The line or row of the file, from 1 on.
        reason: The filter that drops it; "": none does.
        document: The document that it belongs to; "": it is not known.
    """

    source: str
    target: str
    line: int
    reason: str
    document: str


# Reading ------------------------------------------------------------------------------------------


def read_pairs(corpus: Corpus, split: str) -> Iterator[tuple[str, str, int, str]]:
    """Yields source, target, line and document of each pair of a split, as a stream of its files.

    Only a training file may have a column of documents.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is damaged, or lacks a column or a language.
    """
    paths = corpus.paths(split)
    suffix = suffix_of(paths[0]) if paths else ""
    if split == "train" and corpus.monolingual is not None:
        yield from ((line, line, number, "") for number, line in enumerate(read_lines(paths[0]), 1))
    elif len(paths) == 2:
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
        for number, pair in enumerate(zip(rows["source"], rows["target"], strict=True), start=1):
            yield (*pair, number, "")


def _load_rows(corpus: Corpus, split: str) -> Dataset:
    """Loads the rows of a table or of a data set as `load_parallel_data` does."""
    return load_parallel_data(arguments_of(corpus, split) or DataArguments())[split]


def arguments_of(corpus: Corpus, split: str) -> DataArguments | None:
    """Returns the options that name the data of a split of a corpus; None: it has none."""
    options: dict[str, Any]
    paths = [] if corpus.dataset is not None else corpus.paths(split)
    if corpus.dataset is None and not paths:
        return None
    if len(paths) == 2 or paths == [corpus.monolingual]:
        options = {f"{split}_source": paths[0], f"{split}_target": paths[-1]}
    else:
        options = {f"{split}_file": paths[0]} if paths else {"dataset_name": corpus.dataset}
        if not paths or suffix_of(paths[0]) != ".tsv":  # whose columns have no names
            columns = map(str, (corpus.columns or ("source", "target"))[:2])
            options |= dict(zip(("source_column", "target_column"), columns, strict=True))
    return DataArguments(**options)


def corpus_rows(corpus: Corpus, split: str, held_out: frozenset[int]) -> Iterator[CorpusRow]:
    """Yields the pairs of a split with the reason why each is dropped; only a training has filters.

    Raises:
        ValueError: As `read_pairs`.
    """
    limits = corpus.limits() if split == "train" else {"empty": True}
    reason = reasons_to_drop(limits, corpus.languages, held_out)
    for source, target, line, document in read_pairs(corpus, split):
        yield CorpusRow(source, target, line, reason(source, target), document)


def _tagged_rows(
    spec: dict[str, Any], split: str, held_out: Sequence[int], **_: Any
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the table of a corpus; its arguments are what the table depends on."""
    corpus = Corpus(**spec)
    for row in corpus_rows(corpus, split, frozenset(held_out)):
        source = row.source if corpus.tag is None else f"{corpus.tag} {row.source}"
        yield {**row._asdict(), "source": source, "corpus": corpus.name}


def _load_table_of(corpus: Corpus, split: str, held_out: frozenset[int]) -> Dataset:
    """Loads the pairs of a corpus, those that are dropped included."""
    paths = {f"file{number}": path for number, path in enumerate(corpus.paths(split))}
    options: dict[str, Any] = {"spec": asdict(replace(corpus, weight=None)), "split": split}
    options |= {"held_out": sorted(held_out), "limits": corpus.limits()}
    if corpus.dataset is not None:
        options["fingerprint"] = _load_rows(corpus, split)._fingerprint
    return dataset_from_rows(_tagged_rows, _FEATURES, paths, **options)


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
        ValueError: If an entry is wrong, a file is damaged, a split is given twice, nothing is left
            of a corpus, or all of the validation or test pairs are in the training data.
    """
    corpora, others = entries_of(args), _load_other_splits(args)
    if links is not None:
        raise ValueError(
            "`guided_alignment` names a file of links, which belong to the lines of one corpus: "
            "leave it or `corpora` out, or give `guided_alignment: own`."
        )
    whole = {split: [rows] for split, rows in others.items()}
    for split in ("validation", "test"):
        for corpus in corpora:
            if _has_split(corpus, split):
                kept = _kept_rows(_load_table_of(corpus, split, frozenset()))
                whole.setdefault(split, []).append(kept)
    loaded = {
        split: concatenate_datasets([first_rows(rows, args, split) for rows in parts])
        for split, parts in whole.items()
    }
    tags = tags_of(args)
    keys = {
        split: set[int]().union(*(_keys_of(rows, tags) for rows in parts))
        for split, parts in whole.items()
    }
    held_out = frozenset().union(*keys.values())
    tables = {
        corpus.name: _load_table_of(corpus, "train", held_out)
        for corpus in corpora
        if _has_split(corpus, "train")
    }
    if tables:
        _check_held_out(keys, tables, tags)
        parts = [first_rows(_kept_rows(table), args, "train") for table in tables.values()]
        loaded["train"] = concatenate_datasets(parts)
        sizes = {name: len(rows) for name, rows in zip(tables, parts, strict=True)}
        reports = _make_reports(tables, sizes, shares_of(corpora, sizes, args.corpora_temperature))
        loaded["train"].info.description = json.dumps(reports)
    return DatasetDict({split: loaded[split] for split in SPLITS if split in loaded})


def entries_of(args: DataArguments) -> list[Corpus]:
    """Returns the entries of `corpora`; none if it is not given."""
    return read_entries(args.corpora or ())


def tags_of(args: DataArguments) -> list[str]:
    """Returns the tags of `corpora`, each once."""
    return list(dict.fromkeys(corpus.tag for corpus in entries_of(args) if corpus.tag is not None))


def held_out_keys(args: DataArguments) -> frozenset[int]:
    """Returns `pair_key` of each validation and test pair, without tags."""
    keys = [_keys_of(rows, tags_of(args)) for rows in _load_other_splits(args).values()]
    for corpus in entries_of(args):
        for split in ("validation", "test"):
            if _has_split(corpus, split):
                rows = corpus_rows(corpus, split, frozenset())
                keys.append({pair_key(row.source, row.target) for row in rows})
    return frozenset().union(*keys)


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
    corpora = entries_of(args)
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
    kept = _rows_with_reason(table, "")
    return copy_rows(table, kept, "kept", "Filtering").remove_columns("reason")


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


def _check_held_out(
    keys: Mapping[str, set[int]], tables: Mapping[str, Dataset], tags: Sequence[str]
) -> None:
    """Refuses a split that lies in the training data as a whole."""
    leaked: set[int] = set()
    for table in tables.values():
        leaks = _rows_with_reason(table, "held_out").nonzero()[0]
        leaked |= _keys_of(table.select(leaks), tags)
    for split, wanted in keys.items():
        if wanted and wanted <= leaked:
            raise ValueError(
                f"All pairs of the {split} set are in the training data: give texts that the model "
                "does not learn from."
            )


# What was dropped ---------------------------------------------------------------------------------


def _make_reports(
    tables: Mapping[str, Dataset], sizes: Mapping[str, int], shares: Mapping[str, float] | None
) -> list[dict[str, Any]]:
    """Returns for each corpus its pairs, those in use, its share of an epoch, and what is dropped.

    Raises:
        ValueError: If nothing is left of a corpus.
    """
    reports = []
    for name, table in tables.items():
        counted = pc.value_counts(table.with_format("arrow")["reason"][:]).to_pylist()
        reasons = Counter({row["values"]: row["counts"] for row in counted if row["values"]})
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
                "used": sizes[name],
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
    return (
        f"Corpus {report['corpus']}: {report['used']:,} of {report['pairs']:,} pairs are used"
        f"{dropped}; {report['share']:.1%} of an epoch."
    )


def _list_reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in reasons.items())


def dropped_examples(
    corpus: Corpus, held_out: frozenset[int]
) -> tuple[int, dict[str, tuple[int, list[CorpusRow]]]]:
    """Reads the training pairs of a corpus as a stream, and keeps nothing.

    Returns:
        The number of pairs; for each filter that drops some, their number and the first ones.
    """
    count, dropped = 0, Counter[str]()
    examples: dict[str, list[CorpusRow]] = {}
    for row in corpus_rows(corpus, "train", held_out):
        count += 1
        if row.reason:
            dropped[row.reason] += 1
            if len(known := examples.setdefault(row.reason, [])) < _MOST_EXAMPLES:
                known.append(row)
    return count, {name: (number, examples[name]) for name, number in dropped.most_common()}
