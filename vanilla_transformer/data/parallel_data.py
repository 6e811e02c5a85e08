"""Parallel data: from files or the Hub to columns of text."""

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, Features, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray
from transformers.utils import logging

from vanilla_transformer.data.arguments import FORMATS, SPLITS, DataArguments
from vanilla_transformer.data.text_files import existing_file, read_lines

logger = logging.get_logger(__name__)

_BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def load_parallel_data(args: DataArguments) -> DatasetDict:
    """Load the splits that the arguments name.

    Pairs with an empty side are skipped, with a warning that counts them. Files are read again
    whenever their content has changed; Arrow copies are kept under `HF_DATASETS_CACHE`.

    Args:
        args: names one source of data.

    Returns:
        Splits "train", "validation" and "test", those that are given, with the text columns
        "source" and "target", and "references" (a list of texts) where the data have such a column.

    Raises:
        FileNotFoundError: when a file does not exist.
        ValueError: when no source of data is given, or more than one, or one side alone; when a
            file is empty, of an unknown format, damaged or not UTF-8; when two sides differ in
            length; when a column is missing or holds no text; when a split has no usable pair.
    """
    load = {"hub": _load_hub, "files": _load_files, "texts": _load_texts}[_kind_of_source(args)]
    limits = {
        "train": args.max_train_samples,
        "validation": args.max_eval_samples,
        "test": args.max_test_samples,
    }
    splits = {name: drop_empty_pairs(split, name) for name, split in load(args).items()}
    for name, split in splits.items():
        splits[name] = split.select(range(min(limits[name] or len(split), len(split))))
    return DatasetDict(splits)


def _kind_of_source(args: DataArguments) -> str:
    options = {
        "hub": ["dataset_name"],
        "files": [f"{split}_file" for split in SPLITS],
        "texts": [f"{split}_{side}" for split in SPLITS for side in ("source", "target")],
    }
    given = {
        kind: [name for name in names if getattr(args, name) is not None]
        for kind, names in options.items()
    }
    kinds = [kind for kind, names in given.items() if names]
    if not kinds:
        raise ValueError(
            "no data: give dataset_name, or train_file (validation_file, test_file), or "
            "train_source and train_target (the same with validation_, test_)"
        )
    if len(kinds) > 1:
        both = " and ".join(given[kind][0] for kind in kinds)
        raise ValueError(f"{both} name more than one source of data: give only one")
    return kinds[0]


def drop_empty_pairs(dataset: Dataset, name: str) -> Dataset:
    """Drop the pairs whose source or target is missing, empty or white space; warn with counts.

    Args:
        dataset: has the text columns "source" and "target".
        name: of the split, for messages.

    Raises:
        ValueError: when no pair is left.
    """
    source, target = (_has_text(dataset, column) for column in ("source", "target"))
    kept = source & target
    if not kept.any():
        raise ValueError(f"the {name} split has no pair with text on both sides: check its files")
    if kept.all():
        return dataset
    logger.warning(
        f"{name}: skipped {(~kept).sum()} of {len(kept)} pairs for an empty side "
        f"(source {(~source).sum()}, target {(~target).sum()}); "
        f"the first is pair {np.flatnonzero(~kept)[0] + 1}"
    )
    return dataset.select(np.flatnonzero(kept))


def _has_text(dataset: Dataset, column: str) -> NDArray[np.bool_]:
    tables = dataset.select_columns([column]).with_format("arrow").iter(batch_size=10_000)
    trimmed = (pc.utf8_trim_whitespace(table[column]) for table in tables)
    masks = [pc.fill_null(pc.not_equal(text, ""), False).to_numpy() for text in trimmed]
    return np.concatenate([np.zeros(0, np.bool_), *masks])


# Plain text -----------------------------------------------------------------------------------


def _load_texts(args: DataArguments) -> dict[str, Dataset]:
    splits = {}
    for name in SPLITS:
        paths = {side: getattr(args, f"{name}_{side}") for side in ("source", "target")}
        missing = [side for side, path in paths.items() if path is None]
        if len(missing) == 1:
            raise ValueError(f"{name}_{missing[0]} is missing: give both sides of the {name} split")
        if not missing:
            features = Features({"source": Value("string"), "target": Value("string")})
            splits[name] = _from_rows(_text_rows, features, paths)
    return splits


def _text_rows(source: str, target: str, digests: tuple[str, ...]) -> Iterator[dict[str, str]]:
    pairs, lines, shorter = 0, 0, ""
    for first, second in zip_longest(read_lines(source), read_lines(target)):
        lines += 1
        if first is None or second is None:
            shorter = source if first is None else target
        else:
            pairs += 1
            yield {"source": first, "target": second}
    if shorter:
        longer = target if shorter == source else source
        raise ValueError(
            f"{shorter} has {pairs} lines and {longer} has {lines} lines: line n of the one must "
            "belong to line n of the other"
        )
    if not pairs:
        raise ValueError(f"{source} and {target} are empty: give files with text")


def _from_rows(
    rows: Callable[..., Iterator[dict[str, str]]], features: Features, paths: dict[str, str]
) -> Dataset:
    """Write rows to Arrow; the digests make the cache depend on the content of the files."""
    # a tuple, since a list would be taken for shards
    digests = tuple(_digest(path) for path in paths.values())
    try:
        return Dataset.from_generator(
            rows, features=features, gen_kwargs={**paths, "digests": digests}
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


def _digest(path: str) -> str:
    with existing_file(path).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


# Files with columns ---------------------------------------------------------------------------


def _load_files(args: DataArguments) -> dict[str, Dataset]:
    paths = {name: getattr(args, f"{name}_file") for name in SPLITS}
    return {
        name: _standard_columns(_load_file(path), args, path)
        for name, path in paths.items()
        if path is not None
    }


def _load_file(path: str) -> Dataset:
    suffix = Path(path.removesuffix(".gz")).suffix
    if suffix == ".csv":
        features = Features({name: Value("string") for name in _csv_header(path)})
        return _from_rows(_csv_rows, features, {"path": path})
    if suffix not in _BUILDERS or path.endswith(".parquet.gz"):
        raise ValueError(f"{path} is of no known format: give one of {FORMATS}")
    # a folder for each content, because the cache of `load_dataset` looks at the time alone
    cache = Path(datasets.config.HF_DATASETS_CACHE, "vanilla_transformer", _digest(path))
    if suffix != ".parquet" and not sum(1 for line in read_lines(path) if line.strip()):
        raise ValueError(f"{path} is empty: give a file with data")
    try:
        return load_dataset(
            _BUILDERS[suffix], data_files={"train": path}, split="train", cache_dir=str(cache)
        )
    except (DatasetGenerationError, pa.ArrowInvalid) as error:
        raise ValueError(
            f"{path} cannot be read as {suffix}: {error.__cause__ or error}"
        ) from error


def _csv_records(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV file, each with the number of its last line."""
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    try:
        yield from ((reader.line_num, record) for record in reader if record)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}: mend the line") from error


def _csv_header(path: str) -> list[str]:
    _, header = next(_csv_records(path), (0, []))
    if not header:
        raise ValueError(f"{path} is empty: give a file with a header line and data")
    if len(set(header)) < len(header):
        raise ValueError(f"{path} names a column twice in its header {header}: rename one")
    return header


def _csv_rows(path: str, digests: tuple[str, ...]) -> Iterator[dict[str, str]]:
    records = _csv_records(path)
    _, header = next(records)
    line = 1
    for line, record in records:
        if len(record) != len(header):
            raise ValueError(
                f"{path}, line {line}: {len(record)} fields where the header has {len(header)}: "
                "quote texts that hold commas"
            )
        yield dict(zip(header, record, strict=True))
    if line == 1:
        raise ValueError(f"{path} has a header and no data: give a file with data")


# The Hub, and columns -------------------------------------------------------------------------


def _load_hub(args: DataArguments) -> dict[str, Dataset]:
    name = str(args.dataset_name)
    if Path(name, "dataset_dict.json").is_file():
        found = load_from_disk(name)
    else:
        found = load_dataset(name, args.dataset_config_name)
    splits = {split: found[split] for split in SPLITS if split in found}
    if not splits:
        raise ValueError(f"{name} has the splits {list(found)}: it needs one of {list(SPLITS)}")
    return {
        split: _standard_columns(rows, args, f"{name} ({split})") for split, rows in splits.items()
    }


def _standard_columns(dataset: Dataset, args: DataArguments, where: str) -> Dataset:
    """Reduce a data set to "source", "target" and, if it has them, "references"."""
    if args.source_lang is not None or args.target_lang is not None:
        if args.source_lang is None or args.target_lang is None:
            raise ValueError("source_lang and target_lang go together: give both")
        dataset = dataset.flatten()
        wanted = {
            f"translation.{args.source_lang}": "source",
            f"translation.{args.target_lang}": "target",
        }
    else:
        wanted = {args.source_column: "source", args.target_column: "target"}
    _check_columns(dataset, wanted, where)
    kept = [*wanted, *(["references"] if "references" in dataset.column_names else [])]
    dataset = dataset.select_columns(kept)
    if "references" in kept:
        _check_references(dataset["references"], where)
    return dataset.rename_columns({old: new for old, new in wanted.items() if old != new})


def _check_columns(dataset: Dataset, wanted: dict[str, str], where: str) -> None:
    if len(wanted) < 2:
        raise ValueError(f"source and target are both column {list(wanted)}: name two columns")
    for column in wanted:
        if column not in dataset.column_names:
            raise ValueError(
                f"{where} has no column {column!r}, it has {dataset.column_names}: set "
                "source_column and target_column, or source_lang and target_lang for a column "
                "'translation'"
            )
        if not _is_text(feature := dataset.features[column]):
            raise ValueError(f"{where}: column {column!r} holds {feature}: it must hold text")
    if (references := dataset.features.get("references")) is None:
        return
    if not _is_text(getattr(references, "feature", None)):
        raise ValueError(
            f"{where}: column 'references' holds {references}: it must hold lists of text"
        )


def _check_references(column: Iterable[list[str | None] | None], where: str) -> None:
    for number, texts in enumerate(column, 1):
        if not texts or None in texts:
            raise ValueError(
                f"{where}, row {number}: 'references' holds {texts}: give it at least one text, "
                "and no null"
            )


def _is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")
