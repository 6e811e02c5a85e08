"""Reads JSON files, and names those that are damaged."""

import json
from pathlib import Path
from typing import Any


def read_object(file: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Args:
        file: Path of the file.

    Returns:
        The object.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If the file is damaged; the error names it.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problem = str(error)
    else:
        if isinstance(content, dict):
            return content
        problem = f"it holds a {type(content).__name__}, not an object"
    raise ValueError(f"{str(file)!r} is not valid ({problem}). It may be cut off: copy it again.")
