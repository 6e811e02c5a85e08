"""Reads pairs from files and data sets of every format, and keeps them in a cache.

CSV and JSON have readers of their own. The readers of `datasets` name no line that is not UTF-8.
Their CSV shifts the columns of a file without a message if a text of its first row holds an
unquoted comma. Their JSON takes texts like 2020-01-31 for dates, and may crash on a damaged file.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from datasets import (
    Dataset,
    Features,
    Value,
    concatenate_datasets,
    load_dataset,
    load_dataset_builder,
    load_from_disk,
)
from datasets.fingerprint import Hasher
from datasets.table import MemoryMappedTable

from vanilla_transformer.columns import LANGUAGE_COLUMNS, LINKS
from vanilla_transformer.data.arguments import FORMATS
from vanilla_transformer.data.corpus_entries import Corpus
from vanilla_transformer.files.atomic_files import explained_full_disk
from vanilla_transformer.files.file_contents import content_digest, readers_digest, text_digest
from vanilla_transformer.files.tables import cache_folder, write_tables
from vanilla_transformer.files.text_files import read_line_pairs, read_lines, suffix_of
from vanilla_transformer.files.tmx import read_tmx
from vanilla_transformer.text.word_alignment import parse_links
from vanilla_transformer.text.words import aligner_words

_LONGEST_FIELD = 2**31 - 1
_ROWS_OF_A_CHUNK = 20_000
_OF_TABLES = ("corpus", *LANGUAGE_COLUMNS)  # further columns of texts that are read


class Pair(NamedTuple):
    """One pair of a file; None: the file does not say.

    Attributes:
        line: Its line, or its number in a table or a memory.
        corpus: The corpus that a table names itself.
        references: All translations of the source, where there are several.
    """

    source: str | None
    target: str | None
    line: int
    document: str | None = None
    corpus: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    references: list[str] | None = None


def read_pairs(corpus: Corpus, split: str, data_set: Dataset | None) -> Iterator[Pair]:
    """Yields the pairs of a split, as a stream of its files or of its data set."""
    paths, columns = corpus.paths(split), corpus.columns or ["source", "target"]
    suffix = suffix_of(paths[0]) if paths else ""
    if data_set is not None:
        rows = _rows_of_data_set(data_set, columns)
        yield from _pairs_of_table(rows, columns, f"{corpus.dataset} ({split})")
    elif len(paths) == 2:
        for number, pair in enumerate(read_line_pairs(*paths), start=1):
            yield Pair(*pair, number)
    elif suffix == ".tmx":
        languages = list(filter(None, corpus.languages or ()))
        yield from (Pair(*row) for row in read_tmx(paths[0], languages, corpus.inline))
    elif suffix == ".tsv":
        yield from _read_tsv(paths[0], corpus.columns or [1, 2])
    else:
        yield from _pairs_of_table(_read_table(paths[0]), columns, paths[0])


def _read_tsv(path: str, columns: Sequence[Any]) -> Iterator[Pair]:
    """Yields the pairs of columns that tabs separate; a third one holds the document."""
    if not all(isinstance(number, int) for number in columns):
        raise ValueError(
            f"{path} has no names of columns: give numbers, such as `columns: [2, 1]`."
        )
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if len(cells) < max(columns):
            raise ValueError(
                f"{path}, line {number}: it has {len(cells)} column{'s' * (len(cells) != 1)}, but "
                f"`columns` are {list(columns)}: separate source and target by a tab."
            )
        source, target, *document = (cells[column - 1] for column in columns)
        if number > 1 or {source, target} != {"source", "target"}:  # the names of the columns
            yield Pair(source, target, number, *document)


# Tables with named columns ------------------------------------------------------------------------


Row = tuple[int, Mapping[str, Any]]
"""A line or number of a row, and its values by column."""


def _read_table(path: str) -> Iterator[Row]:
    """Yields the rows of a file, whose ending names the format. Columns of CSV are text."""
    readers = {".csv": _read_csv, ".json": _read_json, ".jsonl": _read_json}
    if path.endswith(".parquet"):
        return _read_parquet(path)
    if read := readers.get(Path(path.removesuffix(".gz")).suffix):
        return read(path)
    raise ValueError(f"{path} has an unknown format: give one of {FORMATS}.")


def _read_csv(path: str) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_FIELD)  # 131,072 characters by default
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    records = filter(None, reader)  # no blank lines
    try:
        header: list[str] = next(records, [])
        if len(set(header)) < len(header):
            raise ValueError(f"{path} names a column twice in its header {header}: rename one.")
        for record in records:
            if len(record) != len(header):
                raise ValueError(
                    f"{path}, line {reader.line_num}: {len(record)} fields, but the header has "
                    f"{len(header)}: quote texts that contain commas."
                )
            yield reader.line_num, dict(zip(header, record, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}: correct the line.") from error


def _read_json(path: str) -> Iterator[Row]:
    """Yields the rows of a file of JSON lines, of one array, or of one object over some lines."""
    values: Iterable[tuple[int, Any]] = ()
    first = next((line for line in read_lines(path) if line.strip()), "")
    if isinstance(_parse_or_none(first), dict):
        lines = enumerate(read_lines(path), start=1)
        values = ((number, _parse_or_none(line)) for number, line in lines if line.strip())
    elif first:
        whole = _parse_or_none("\n".join(read_lines(path)))
        values = enumerate(whole if isinstance(whole, list) else [whole], start=1)
    for number, row in values:
        if not isinstance(row, dict):
            raise ValueError(
                f"{path}, line {number} is not a JSON object: give one object per line, or one "
                "array of objects."
            )
        yield number, row


def _parse_or_none(text: str) -> Any:
    """Returns the value of a JSON text; None also if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_parquet(path: str) -> Iterator[Row]:
    try:
        batches = pq.ParquetFile(path).iter_batches(1000)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as .parquet ({error}): correct it.") from error


def open_data_set(corpus: Corpus) -> Any:
    """Opens a data set of the Hub or of a directory, by the names of its splits."""
    name = str(corpus.dataset)
    if Path(name, "dataset_dict.json").is_file():
        return load_from_disk(name)
    builder = load_dataset_builder(name, corpus.dataset_config)
    # Texts such as "NA" stay texts in CSV files.
    options: dict[str, Any] = {"keep_default_na": False} if builder.name == "csv" else {}
    return load_dataset(name, corpus.dataset_config, **options)


def _rows_of_data_set(data_set: Dataset, columns: Sequence[str]) -> Iterator[Row]:
    wanted = {*columns, *(name.split(".")[0] for name in columns), *_OF_TABLES, "references"}
    texts = data_set.select_columns([name for name in data_set.column_names if name in wanted])
    yield from enumerate(texts, start=1)


def _pairs_of_table(rows: Iterable[Row], columns: Sequence[str], origin: str) -> Iterator[Pair]:
    for number, row in rows:
        if missing := [name for name in columns[:2] if name not in row]:
            row = _with_parts(row)  # only if it is needed
            if missing := [name for name in missing if name not in row]:
                raise ValueError(
                    f"{origin}, line {number} has no column {missing[0]!r}; its columns are "
                    f"{list(row)}. Name source and target by `source_column` and "
                    "`target_column`."
                )
        for name in (*columns[:2], *_OF_TABLES):
            if not isinstance(row.get(name), str | None):
                raise ValueError(
                    f"{origin}, line {number}: column {name!r} holds {row[name]!r}: it must hold "
                    "text."
                )
        source, target = (row[name] for name in columns[:2])
        named = (str(row[name]) for name in columns[2:] if row.get(name) is not None)
        document = next(named, None)
        others: dict[str, Any] = {
            name: row[name] for name in _OF_TABLES if name in row and name not in columns
        }
        if "references" in row and "references" not in columns:
            others["references"] = _check_references(row["references"], origin, number)
        yield Pair(source, target, number, document, **others)


def _with_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row in which the parts of a column are columns, such as `translation.en`."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        parts = value if isinstance(value, dict) else {}
        values |= {f"{name}.{part}": text for part, text in parts.items()} or {name: value}
    return values


def _check_references(references: Any, origin: str, number: int) -> list[str]:
    texts = references if isinstance(references, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{origin}, line {number}: 'references' holds {references!r}: give a list of texts, "
            "at least one and no null. A CSV file cannot hold lists: rename its column."
        )
    return texts


# The cache ----------------------------------------------------------------------------------------


def cached_table(
    rows: Iterator[tuple[Any, ...]], features: Features, key: str, origin: str, folder: Path | None
) -> Dataset:
    """Writes rows to a file of the cache, unless it is there, and opens it.

    Args:
        rows: Values in the order of the features. They are not read if the file is there.
        key: A digest of everything that the rows depend on, besides the code that reads them.
        origin: The name of the rows in errors.
    """
    key = text_digest(json.dumps([readers_digest(), features.to_dict(), key]))
    path = (folder or cache_folder()) / f"{key}.arrow"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = features.arrow_schema
        with explained_full_disk(path.parent):
            try:
                write_tables(path, schema, _tables_of(rows, schema))
            except UnicodeEncodeError as error:
                raise ValueError(f"{origin} holds half a character: {error}") from error
    table = Dataset(MemoryMappedTable.from_file(str(path)), fingerprint=key)
    if not len(table):
        raise ValueError(f"{origin} holds no data: give a file with data.")
    return table


def map_rows(
    rows: Dataset, change: Callable[..., Any], work: str, *made_with: Any, **options: Any
) -> Dataset:
    """Changes rows; those of a file are kept beside it, as long as the code stays the same."""
    key = Hasher.hash([readers_digest(), rows._fingerprint, work, *made_with])
    return rows.map(change, with_indices=True, new_fingerprint=key, desc=work, **options)


def _tables_of(rows: Iterator[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.Table]:
    while chunk := list(islice(rows, _ROWS_OF_A_CHUNK)):
        columns = zip(*chunk, strict=True)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)
        ]
        yield pa.Table.from_arrays(arrays, schema=schema)


# Links of words -----------------------------------------------------------------------------------


def add_links(pairs: Dataset, path: str) -> Dataset:
    """Adds links to pairs of texts: a file with a line for each pair, in Pharaoh's format."""
    feature, key = Features({LINKS: Value("string")}), content_digest(path)
    links = cached_table(_read_links(path), feature, key, path, None)
    if len(links) != len(pairs):
        raise ValueError(
            f"{path} has {len(links)} lines, but there are {len(pairs)} training pairs: line n "
            "must hold the links of pair n; a pair without links has an empty line."
        )
    joined: Dataset = concatenate_datasets(
        [pairs.remove_columns([LINKS]) if LINKS in pairs.column_names else pairs, links], axis=1
    )
    _check_words(joined, path)
    return joined


def _read_links(path: str) -> Iterator[tuple[str]]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            parse_links(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        yield (line,)


def _check_words(pairs: Dataset, path: str) -> None:
    """Refuses links to words that a text does not have, unless the pair will be skipped."""
    for number, row in enumerate(pairs, start=1):
        counts = [len(aligner_words(row[side] or "")) for side in ("source", "target")]
        for link in parse_links(row[LINKS]) if all(counts) else ():
            for side, index, words in zip(("source", "target"), link, counts, strict=True):
                if index >= words:
                    raise ValueError(
                        f"{path}, line {number}: the link {link[0]}-{link[1]} names word "
                        f"{index} of the {side}, which has {words} words, counted from 0: "
                        "correct the line."
                    )
