"""Front matter of Markdown in YAML: the values of named keys are texts."""

import math
import re
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import yaml
from yaml.reader import ReaderError

from vanilla_transformer.documents.places import Place

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")  # an anchor and a tag of YAML
_LINE_BREAK = re.compile("[\n\x85\u2028\u2029]")  # as YAML sees them


def places_of_front_matter(head: re.Match[str], keys: Collection[str]) -> Iterator[Place]:
    """Yields the places of texts that are values of keys, or are in lists that are values.

    Args:
        head: The front matter; its group 2 is the text between the lines `---`.
    """
    try:
        root = yaml.compose(head[2])
    except ReaderError as error:  # a control character
        line = head[2].count("\n", 0, error.position) + 2
        raise ValueError(f"line {line}: {error.reason}.") from error
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark
        raise ValueError(f"line {mark.line + 2}: {error.problem}.") from error
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("line 1: front matter whose keys are named must have keys, in YAML.")
    texts = (
        node
        for key, value in root.value
        if key.value in keys
        for node in (value.value if isinstance(value, yaml.SequenceNode) else [value])
        if node.tag == "tag:yaml.org,2002:str"
    )
    for node in dict.fromkeys(texts):  # an alias is the node that it names
        first, last = (head.start(2) + mark.index for mark in (node.start_mark, node.end_mark))
        begin = _PROPERTIES.match(head.string, first).end()  # type: ignore[union-attr]  # it also matches the empty string
        end = begin + len(head.string[begin:last].rstrip())
        encode = partial(_scalar_of, style=node.style)
        yield from Place.find((begin, end), [node.value], encode=encode)


def _scalar_of(text: str, style: str | None) -> str:
    """Writes a text as a value of YAML in one line, in the style of its source where it can."""
    if style in ("|", ">") or _LINE_BREAK.search(text):
        style = '"'
    written = yaml.safe_dump(text, default_style=style, allow_unicode=True, width=math.inf)
    return str(written).split("\n")[0]
