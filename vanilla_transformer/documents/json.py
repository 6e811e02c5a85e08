"""JSON: the strings that are values, with their paths as names."""

import json
import re
from collections.abc import Iterator
from functools import partial

from vanilla_transformer.documents.marked_text import split_text
from vanilla_transformer.documents.places import Place

_SURROGATE = re.compile("[\ud800-\udfff]")
# A string, with the colon after it if it is a name; a bracket or a comma.
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[\[\]{},]')


def places_of_json(source: str, has_notes: bool = False) -> Iterator[Place]:
    """Yields the places of texts; `has_notes`: values of names that begin with @ are none."""
    json.loads(source.removeprefix("\ufeff"))  # which raises an error if it is not valid
    is_ascii = source.isascii() and "\\u" in source  # so are the outputs
    encode = partial(json.dumps, ensure_ascii=is_ascii)
    for begin, end, path in _strings(source):
        if has_notes and any(str(step).startswith('"@') for step in path):
            continue
        text = json.loads(source[begin:end])
        if _SURROGATE.search(text):
            line = source.count("\n", 0, begin) + 1
            raise ValueError(f"line {line}: half of a surrogate pair, which is no character.")
        yield from Place.find((begin, end), split_text(text), encode=encode, name=path)


def _strings(source: str) -> Iterator[tuple[int, int, tuple[str | int, ...]]]:
    """Yields the span of each string that is a value, with its path of names and indices."""
    path: list[str | int] = []
    for token in _TOKEN.finditer(source):
        if token[2]:
            path[-1] = token[1]  # the name of the next value
        elif token[1]:
            yield *token.span(), tuple(path)
        elif token[0] in "[{":
            path.append(0)
        elif token[0] in "]}":
            path.pop()
        elif isinstance(path[-1], int):
            path[-1] += 1  # a comma of an array
