"""Digests of files: equal content, equal digest."""

import hashlib
from os import PathLike

from vanilla_transformer.data.text_files import existing_file


def content_digest(path: str | PathLike[str]) -> str:
    """Returns the SHA-256 digest of a file's content, in hexadecimal.

    Args:
        path: Path of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
    """
    with existing_file(path).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
