"""JSON objects of files, and digests of files, texts and tables: equal content, equal digest."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset


def read_object(file: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problem = str(error)
    else:
        if isinstance(content, dict):
            return content
        problem = f"it holds a {type(content).__name__}, not an object"
    raise ValueError(f"{str(file)!r} is not valid ({problem}). It may be cut off: copy it again.")


def content_digest(path: str | PathLike[str]) -> str:
    """Returns the SHA-256 digest of a file's content, in hexadecimal."""
    with Path(path).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def text_digest(text: str) -> str:
    """Returns the SHA-256 digest of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def rows_digest(rows: "Dataset") -> str:
    """Returns the SHA-256 digest of a table without the numbers of its lines, in hexadecimal.

    The order of its rows counts, the order of its columns does not.
    """
    digest = hashlib.sha256()
    names = sorted({*rows.column_names} - {"line"})
    for batch in rows.select_columns(names).iter(1000):
        digest.update(json.dumps([batch[name] for name in names]).encode())
    return digest.hexdigest()


@cache
def readers_digest() -> str:
    """Returns a digest of the code that reads and judges data, for the keys of its cache.

    So nothing is taken from a cache that other code has filled.
    """
    package = Path(__file__).parents[1]
    folders = ("data/*", "batches/*", "files/*", "text/*")
    beside = ("columns", "grouping", "names", "language_tags", "tokenizer_sides")
    parts = (*folders, *beside, "model/directions", "model/tokenization_*")
    files = [path for part in parts for path in package.glob(f"{part}.py")]
    return text_digest(" ".join(content_digest(path) for path in sorted(files)))


def without_infinities(report: Any) -> Any:
    """Returns a report as JSON can hold it, which has no infinity and no NaN: None instead."""
    if isinstance(report, Mapping):
        return {name: without_infinities(value) for name, value in report.items()}
    if isinstance(report, (list, tuple)):
        return [without_infinities(value) for value in report]
    return None if isinstance(report, float) and not isfinite(report) else report
