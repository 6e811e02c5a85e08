"""Loads text, tables and word links from files as data sets, in a cache that follows their content.

CSV and JSON have readers of their own. Those of `datasets` name no line that is not UTF-8; the one
of CSV shifts the columns of a file without a message if a text of its first row holds an unquoted
comma, the one of JSON takes texts like 2020-01-31 for dates and may crash on a damaged file.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import (
    Dataset,
    Features,
    Value,
    concatenate_datasets,
    load_dataset,
)
from datasets.exceptions import DatasetGenerationError
from datasets.table import MemoryMappedTable

from vanilla_transformer import __version__
from vanilla_transformer.data.arguments import FORMATS
from vanilla_transformer.data.corpus_entries import suffix_of
from vanilla_transformer.data.file_contents import content_digest, text_digest
from vanilla_transformer.data.shards import write_tables
from vanilla_transformer.data.text_files import read_line_pairs, read_lines
from vanilla_transformer.data.word_alignment import count_words, parse_links

_LONGEST_FIELD = 2**31 - 1
_ROWS_OF_A_CHUNK = 20_000
_FORMAT = 2  # of the rows in the cache: with another number, no older ones are used
_PAIR = Features({"source": Value("string"), "target": Value("string")})


def dataset_from_rows(
    read_rows: Callable[..., Iterator[dict[str, Any]]],
    features: Features,
    paths: dict[str, str],
    **options: Any,
) -> Dataset:
    """Writes the rows of files to a file of the cache, unless it has them, and opens that file.

    Args:
        read_rows: Generator of the rows. Its arguments are `paths` and `options` by name.
        paths: Paths of the files, by the names of the generator's arguments.
        **options: What else the rows depend on, as JSON can hold it.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If there are no rows, or a text holds NUL bytes.
        Exception: Any error of the generator, as the generator raised it.
    """
    files = " and ".join(paths.values())
    digests = [content_digest(path) for path in paths.values()]
    made_by = [__version__, _FORMAT, read_rows.__name__, features.to_dict(), digests, options]
    key = text_digest(json.dumps(made_by))
    path = cache_folder() / f"{key}.arrow"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        chunks = _chunks_of(_without_nul(read_rows(**paths, **options), files))
        schema = features.arrow_schema
        write_tables(path, schema, (pa.Table.from_pylist(chunk, schema) for chunk in chunks))
    rows = Dataset(MemoryMappedTable.from_file(str(path)), fingerprint=key)
    if not len(rows):
        raise ValueError(f"{files} holds no data: give a file with data.")
    return rows


def _without_nul(rows: Iterator[dict[str, Any]], files: str) -> Iterator[dict[str, Any]]:
    """Yields rows; a NUL byte in a text is a sign of a damaged file."""
    for number, row in enumerate(rows, start=1):
        if any(isinstance(text, str) and "\0" in text for text in row.values()):
            raise ValueError(f"{files}, line {number}: NUL bytes are no text: the file is damaged.")
        yield row


def _chunks_of(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    return iter(lambda: list(islice(rows, _ROWS_OF_A_CHUNK)), [])


def cache_folder() -> Path:
    """Returns the folder of this package in the cache of `datasets`."""
    return Path(datasets.config.HF_DATASETS_CACHE, "vanilla_transformer")


def load_text_pairs(source: str, target: str) -> Dataset:
    """Loads the pairs of two text files: line n of the one belongs to line n of the other.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the files differ in their number of lines, are empty, or are not UTF-8 text.
    """
    return dataset_from_rows(_read_pairs, _PAIR, {"source": source, "target": target})


def _read_pairs(source: str, target: str) -> Iterator[dict[str, str]]:
    for source_line, target_line in read_line_pairs(source, target):
        yield {"source": source_line, "target": target_line}


def load_table(path: str) -> Dataset:
    """Loads a file with named columns, whose ending names the format. Columns of CSV are text.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is empty, damaged, not UTF-8 or of an unknown format.
    """
    suffix = Path(path.removesuffix(".gz")).suffix
    if suffix_of(path) == ".tsv":
        return dataset_from_rows(_read_tsv_rows, _PAIR, {"path": path})
    if suffix == ".csv":
        features = Features(dict.fromkeys(next(_read_csv_rows(path), {}), Value("string")))
        return dataset_from_rows(_read_csv_rows, features, {"path": path})
    if suffix in (".json", ".jsonl"):
        return dataset_from_rows(_read_json_rows, _json_features(path), {"path": path})
    if suffix != ".parquet" or path.endswith(".gz"):
        raise ValueError(f"{path} has an unknown format: give one of {FORMATS}.")
    # One folder per content: the cache of `load_dataset` only compares modification times.
    cache = cache_folder() / content_digest(path)
    try:
        return load_dataset("parquet", data_files=path, split="train", cache_dir=str(cache))
    except (DatasetGenerationError, pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read as .parquet ({error.__cause__ or error}): correct the file."
        ) from error


def read_tsv(path: str, columns: Sequence[Any]) -> Iterator[tuple[str, str, int, str]]:
    """Yields source, target, line and document of each pair of columns that tabs separate.

    The third of `columns`, if there is one, holds the document; else it is "".

    Raises:
        ValueError: If `columns` are no numbers, or a line has fewer columns.
    """
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
        source, target, document = [*(cells[column - 1] for column in columns), ""][:3]
        yield source, target, number, document


def _read_tsv_rows(path: str) -> Iterator[dict[str, str]]:
    for source, target, *_ in read_tsv(path, (1, 2)):
        yield {"source": source, "target": target}


def _read_csv_rows(path: str) -> Iterator[dict[str, str]]:
    csv.field_size_limit(_LONGEST_FIELD)  # 131,072 characters by default
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    records = filter(None, reader)
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
            yield dict(zip(header, record, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}: correct the line.") from error


def _json_features(path: str) -> Features:
    schema = pa.schema([])
    for rows in _chunks_of(_read_json_rows(path)):
        try:
            of_chunk = pa.schema(list(pa.array(rows).type))
            schema = pa.unify_schemas([schema, of_chunk], promote_options="permissive")
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    return Features.from_arrow_schema(schema)


def _read_json_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file of JSON lines, of one array, or of one object over some lines."""
    first = next((line for line in read_lines(path) if line.strip()), None)
    if first is None:
        return
    if isinstance(_parse_or_none(first), dict):
        yield from _read_json_lines(path)
        return
    whole = _parse_or_none("\n".join(read_lines(path)))
    rows = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is not JSON: give one object per line, or one array of objects.")
    yield from rows


def _read_json_lines(path: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            if not isinstance(row := _parse_or_none(line), dict):
                raise ValueError(
                    f"{path}, line {number} is not a JSON object: give one object per line."
                )
            yield row


def _parse_or_none(text: str) -> Any:
    """Returns what a JSON text holds; None also if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Links of words -----------------------------------------------------------------------------------


LINKS = "alignment"
"""Name of the column of links: lines in Pharaoh's format, and after encoding links of tokens."""


def add_links(pairs: Dataset, path: str) -> Dataset:
    """Adds the links of a file to pairs of texts.

    Args:
        pairs: All rows that the lines belong to, with the text columns "source" and "target".
        path: File with one line per row in Pharaoh's format; an empty line has no links.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is malformed, if it names a word that its pair does not have, or if
            the file has another number of lines than there are rows.
    """
    links = dataset_from_rows(_read_links, Features({LINKS: Value("string")}), {"path": path})
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


def _read_links(path: str) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            parse_links(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        yield {LINKS: line}


def _check_words(pairs: Dataset, path: str) -> None:
    """Refuses links to words that a text does not have, unless the pair will be skipped."""
    for number, row in enumerate(pairs, start=1):
        counts = [count_words(row[side] or "") for side in ("source", "target")]
        for link in parse_links(row[LINKS]) if all(counts) else ():
            for side, index, words in zip(("source", "target"), link, counts, strict=True):
                if index >= words:
                    raise ValueError(
                        f"{path}, line {number}: the link {link[0]}-{link[1]} names word "
                        f"{index} of the {side}, which has {words} words, counted from 0: "
                        "correct the line."
                    )
