"""Digests of files, texts and tables: equal content, equal digest."""

import hashlib
import json
from os import PathLike
from typing import TYPE_CHECKING

from vanilla_transformer.data.text_files import existing_file

if TYPE_CHECKING:
    from datasets import Dataset


def content_digest(path: str | PathLike[str]) -> str:
    """Returns the SHA-256 digest of a file's content, in hexadecimal.

    Args:
        path: Path of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
    """
    with existing_file(path).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def text_digest(text: str) -> str:
    """Returns the SHA-256 digest of a text in UTF-8, in hexadecimal.

    Args:
        text: Any text that UTF-8 can hold.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def rows_digest(rows: "Dataset") -> str:
    """Returns the SHA-256 digest of all columns of a table, in hexadecimal.

    Args:
        rows: The table. The order of its rows counts, that of its columns does not.
    """
    digest = hashlib.sha256()
    names = sorted(rows.column_names)
    for batch in rows.select_columns(names).iter(1000):
        digest.update(json.dumps([batch[name] for name in names]).encode())
    return digest.hexdigest()
