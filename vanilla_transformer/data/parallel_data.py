"""Loads parallel data, from files or the Hub, into columns of text."""

from collections.abc import Collection, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, load_dataset, load_dataset_builder, load_from_disk
from numpy.typing import NDArray
from transformers.utils import logging

from vanilla_transformer.data.arguments import LIMITS, SPLITS, DataArguments
from vanilla_transformer.data.atomic_files import explained_full_disk
from vanilla_transformer.data.cased_copies import add_cased_copies, drawn_rows
from vanilla_transformer.data.corpus_entries import LANGUAGE_COLUMNS, RowLanguages
from vanilla_transformer.data.file_formats import add_links, load_table, load_text_pairs
from vanilla_transformer.languages import standard_tag

logger = logging.get_logger(__name__)


def load_parallel_data(args: DataArguments, links: str | None = None) -> DatasetDict:
    """Loads the splits that the arguments name.

    Pairs with an empty side are skipped; a warning counts them. A file is read again when its
    content has changed. Arrow copies are kept under `HF_DATASETS_CACHE`.

    Args:
        links: File with the word links of each training pair, in Pharaoh's format. None: no links.

    Returns:
        The splits "train", "validation" and "test" that are given, with the text columns "source"
        and "target", and "references" (a list of texts), "corpus" (a name) and `LANGUAGE_COLUMNS`
        if the data have such columns. With links, "train" also has the column "alignment".

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If no source of data is given, or more than one, or only one side; if a file is
            empty, damaged, not UTF-8 or of an unknown format; if the two sides differ in length;
            if a column is missing or does not hold text; if a split has no usable pair; and under
            the conditions of `add_links`.
        OSError: If the disk of the cache is full.
    """
    if args.corpora:
        from vanilla_transformer.data.corpora import load_corpora  # which loads tables by this room

        return load_corpora(args, links)
    splits = {}
    with explained_full_disk(Path(datasets.config.HF_DATASETS_CACHE)):
        for name, loaded in _load_all_rows(args).items():
            if links is not None and name == "train":
                loaded = add_links(loaded, links)
            files = ", ".join(files_of_split(args, name)) or str(args.dataset_name)
            splits[name] = first_rows(drop_empty_pairs(loaded, name, files), args, name)
        if "train" in splits:
            known = args.row_languages()
            splits["train"] = add_cased_copies(splits["train"], args.case_augment, known)
    return DatasetDict({name: splits[name] for name in SPLITS if name in splits})


def first_rows(rows: Dataset, args: DataArguments, split: str) -> Dataset:
    """Returns as many rows of a split as the arguments allow."""
    limit = getattr(args, LIMITS[split]) or len(rows)
    return rows.select(range(min(limit, len(rows))))


def _load_all_rows(args: DataArguments) -> dict[str, Dataset]:
    """Loads the splits with the pairs that are skipped later."""
    tables = {name: getattr(args, f"{name}_file") for name in SPLITS}
    texts = {
        name: (getattr(args, f"{name}_source"), getattr(args, f"{name}_target")) for name in SPLITS
    }
    files = {name: path for name, path in tables.items() if path}
    sides = {name: paths for name, paths in texts.items() if any(paths)}
    if (args.dataset_name is not None) == bool(files or sides) or files.keys() & sides:
        raise ValueError(
            "Give one source of data for each split: `train_file`, or `train_source` and "
            "`train_target` (and the same with `validation_`, `test_`); or `dataset_name` for all."
        )
    if args.dataset_name is not None:
        return _load_hub_splits(args)
    for name, paths in sides.items():
        if None in paths:
            raise ValueError(f"Give both `{name}_source` and `{name}_target`, or neither.")
    return {
        name: select_text_columns(load_table(files[name]), args, files[name])
        if name in files
        else load_text_pairs(*sides[name])
        for name in reversed(SPLITS)  # a missing file is found before the training data are read
        if name in files or name in sides
    }


def _load_hub_splits(args: DataArguments) -> dict[str, Dataset]:
    name, opened = str(args.dataset_name), _open_data_set(args)
    splits = {split: opened[split] for split in SPLITS if split in opened}
    if not splits:
        raise ValueError(f"{name} has the splits {list(opened)}: it needs one of {list(SPLITS)}.")
    return {
        split: select_text_columns(rows, args, f"{name} ({split})")
        for split, rows in splits.items()
    }


def _open_data_set(args: DataArguments) -> Any:
    """Opens a data set of the Hub or of a directory, by the names of its splits."""
    name = str(args.dataset_name)
    if Path(name, "dataset_dict.json").is_file():
        return load_from_disk(name)
    builder = load_dataset_builder(name, args.dataset_config_name)
    # Texts such as "NA" stay texts in CSV files.
    options: dict[str, Any] = {"keep_default_na": False} if builder.name == "csv" else {}
    return load_dataset(name, args.dataset_config_name, **options)


def languages_of_rows(
    rows: Dataset, known: RowLanguages
) -> Iterator[tuple[str | None, str | None]]:
    """Yields the languages of source and target of each row of a split."""
    names = [name for name in ("corpus", *LANGUAGE_COLUMNS) if name in rows.column_names]
    if not names:
        yield from repeat(known.of_all, len(rows))
    else:
        for batch in rows.select_columns(names).iter(10_000):
            yield from known.of(batch, len(batch[names[0]]))


def directions_of(
    rows: Dataset, data: DataArguments, tags: Collection[str]
) -> list[tuple[str | None, str, str]]:
    """Returns the directions that the options and the columns of pairs name, with their tags.

    Args:
        rows: Training pairs.
        tags: Words that a source may begin with to say what the target shall be.

    Raises:
        ValueError: If a language is unknown.
    """
    named: dict[tuple[str | None, str, str], None] = {}
    for corpus in data.entries:
        if corpus.languages:
            one, other = map(standard_tag, corpus.languages)
            named[one, other, corpus.tag or ""] = None
    if data.target_language is not None:
        source = standard_tag(data.source_language) if data.source_language else None
        pair = source, standard_tag(data.target_language)
        if pair not in [row[:2] for row in named]:
            named[(*pair, "")] = None
    if {*LANGUAGE_COLUMNS} & {*rows.column_names}:
        pairs = languages_of_rows(rows, data.row_languages())
        begins = (text.partition(" ")[0] for text in rows["source"])
        for (source, target), begin in dict.fromkeys(zip(pairs, begins, strict=True)):
            if target:
                of_source = standard_tag(source) if source else None
                tag = begin if begin in tags else ""
                named[of_source, standard_tag(target), tag] = None
    return list(named)


def files_of_split(args: DataArguments, split: str) -> list[str]:
    """Returns the paths of the files that are given for a split."""
    paths = (getattr(args, f"{split}_{part}") for part in ("file", "source", "target"))
    return [path for path in paths if path]


def name_row(args: DataArguments, split: str, index: int) -> str:
    """Returns where a row of a loaded split comes from, e.g. "Line 3 of a.en, a.de".

    Lines that were skipped count, and copies in other case have the line of their pair. If `args`
    name no data, it is the row of the split.
    """
    origin = ", ".join(files_of_split(args, split)) or args.dataset_name
    if args.corpora:
        row = load_parallel_data(args)[split][index]
        return f"Line {row['line']} of the corpus {row['corpus']!r}"
    if origin is None:
        return f"Row {index + 1} of the {split} split"
    unit = "Line" if getattr(args, f"{split}_source") else "Row"
    source, target = _sides_with_text(_load_all_rows(args)[split])
    rows = np.flatnonzero(source & target)[: getattr(args, LIMITS[split])]
    if split == "train" and args.case_augment is not None:
        rows = np.concatenate([rows, rows[drawn_rows(len(rows), args.case_augment)]])
    return f"{unit} {1 + rows[index]} of {origin}"


def select_text_columns(dataset: Dataset, args: DataArguments, origin: str) -> Dataset:
    """Reduces a data set to its text columns, under standard names.

    Returns:
        The same rows with the text columns "source" and "target", "references" (a list of texts),
        "corpus" (a name) and `LANGUAGE_COLUMNS` if the data set has such columns.

    Raises:
        ValueError: If a column is missing or does not hold text, if only one language is named, or
            if a row has no reference.
    """
    wanted = dict(zip(_text_columns(args), ("source", "target"), strict=True))
    if args.source_lang is not None:
        dataset = dataset.flatten()
    for name in wanted:
        if name not in dataset.features:
            raise ValueError(
                f"{origin} has no column {name!r}; its columns are {dataset.column_names}. Set "
                "`source_column` and `target_column`, or `source_lang` and `target_lang` for a "
                "column 'translation'."
            )
        if not _holds_text(dataset.features[name]):
            raise ValueError(
                f"{origin}: column {name!r} holds {dataset.features[name]!r}: it must hold text."
            )
    references = dataset.features.get("references")
    if references is not None and not _holds_text(getattr(references, "feature", None)):
        raise ValueError(
            f"{origin}: column 'references' holds {references}: it must hold lists of text. A CSV "
            "file cannot hold lists: rename the column, or use .jsonl or .parquet."
        )
    kept = [*wanted, *(["references"] if "references" in dataset.column_names else [])]
    for name in ("corpus", *LANGUAGE_COLUMNS):
        if _holds_text(dataset.features.get(name)) and name not in wanted:
            kept.append(name)
    dataset = dataset.select_columns(kept)
    for number, texts in enumerate(dataset["references"] if "references" in kept else (), 1):
        if not texts or None in texts:
            raise ValueError(
                f"{origin}, row {number}: 'references' holds {texts}: give it at least one text, "
                "and no null."
            )
    return dataset.rename_columns({old: new for old, new in wanted.items() if old != new})


def _text_columns(args: DataArguments) -> list[str]:
    """Returns the names of the columns of source and target.

    Raises:
        ValueError: If only one language is named, or both are one column.
    """
    languages = [name for name in (args.source_lang, args.target_lang) if name is not None]
    if len(languages) == 1:
        raise ValueError("`source_lang` and `target_lang` go together: give both.")
    names = [f"translation.{name}" for name in languages]
    names = names or [args.source_column, args.target_column]
    if names[0] == names[1]:
        raise ValueError(f"Source and target are both column {names[:1]}: name two columns.")
    return names


def _holds_text(feature: object) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")


def drop_empty_pairs(dataset: Dataset, split: str, files: str) -> Dataset:
    """Drops the pairs in which a side is missing, empty or white space; a warning counts them.

    Raises:
        ValueError: If no pair is left.
    """
    source, target = _sides_with_text(dataset)
    kept = source & target
    if not kept.any():
        raise ValueError(f"The {split} split has no pair with text on both sides: check {files}.")
    if kept.all():
        return dataset
    logger.warning(
        f"{split}: skipped {(~kept).sum()} of {len(kept)} pairs because a side is empty "
        f"(source {(~source).sum()}, target {(~target).sum()}). "
        f"The first of them is pair {np.flatnonzero(~kept)[0] + 1}."
    )
    return copy_rows(dataset, kept)


def copy_rows(dataset: Dataset, kept: NDArray[np.bool_]) -> Dataset:
    """Copies the rows that are kept: a table of indices would make each access slow."""
    chosen = dataset.with_format("arrow").select(np.flatnonzero(kept))
    return chosen.flatten_indices().with_format(None)


def _sides_with_text(dataset: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns, for each row, whether the source and the target hold more than white space."""
    masks: dict[str, list[NDArray[np.bool_]]] = {"source": [], "target": []}
    for table in dataset.select_columns([*masks]).with_format("arrow").iter(batch_size=10_000):
        for column, parts in masks.items():
            has_text = pc.not_equal(pc.utf8_trim_whitespace(table[column]), "")
            parts.append(pc.fill_null(has_text, False).to_numpy())
    source, target = (
        np.concatenate([np.zeros(0, np.bool_), *parts_of_side]) for parts_of_side in masks.values()
    )
    return source, target
