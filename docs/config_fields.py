"""Writes the table of `docs/config.md` from the docstring and the defaults of the config.

    python docs/config_fields.py

A test compares the page with what this program would write.
"""

import re
from dataclasses import MISSING, dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

from vanilla_transformer import VanillaTransformerConfig

PAGE = Path(__file__).parent / "config.md"
BEGIN, END = "<!-- fields: begin -->\n", "<!-- fields: end -->\n"


@dataclass(frozen=True)
class Entry:
    """One entry of the docstring's `Args`: the fields that it names, and its text."""

    names: tuple[str, ...]
    text: str


def docstring_entries(docstring: str) -> list[Entry]:
    """Reads the `Args` section of a Google-style docstring.

    Args:
        docstring: The docstring, as `__doc__` holds it.

    Returns:
        One entry per argument, in order, without `**kwargs`. The text of an entry is one line.
    """
    section = re.search(r"^Args:\n(.*?)(?:\n\S|\Z)", cleandoc(docstring), re.DOTALL | re.MULTILINE)
    if section is None:
        raise ValueError("The docstring of the config has no section `Args:`: add one.")
    parts = re.split(r"^ {4}(?=\S)", section[1], flags=re.MULTILINE)
    pairs = (" ".join(part.split()).partition(": ") for part in parts if part.strip())
    return [Entry(tuple(names.split(", ")), text) for names, _, text in pairs if names[0] != "*"]


def markdown_table(config_class: Any) -> str:
    """Makes the table of fields: names, defaults, meaning.

    Args:
        config_class: A config class with annotated fields and a documented constructor.

    Returns:
        The table in Markdown.
    """
    values = {
        field.name: field.default_factory() if field.default is MISSING else field.default
        for field in fields(config_class)
        if (field.default, field.default_factory) != (MISSING, MISSING)
    }
    lines = ["| field | default | meaning and source |", "|---|---|---|"]
    for entry in docstring_entries(config_class.__doc__):
        names = ", ".join(f"`{name}`" for name in entry.names)
        defaults = [repr(values[name]).replace("'", '"') for name in entry.names]
        shown = defaults[:1] if len(set(defaults)) == 1 else defaults
        default = ", ".join(f"`{value}`" for value in shown)
        lines.append(f"| {names} | {default} | {code_spans(entry.text)} |")
    return "\n".join(lines) + "\n"


def code_spans(text: str) -> str:
    """Marks quoted values as code, and escapes what Markdown would read in a table.

    Args:
        text: One line of a docstring.

    Returns:
        The line in Markdown.
    """
    text = re.sub(r'(?<!`)("[\w.]+")(?!`)', r"`\1`", text)
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([*_|<])", r"\\\1", piece) for piece in pieces[::2]]
    pieces[1::2] = [piece.replace("|", r"\|") for piece in pieces[1::2]]
    return "`".join(pieces)


def updated_page(page: str) -> str:
    """Replaces the table between the two markers of the page.

    Args:
        page: The text of `docs/config.md`.

    Returns:
        The text with the table of the present config.
    """
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + markdown_table(VanillaTransformerConfig) + END + after


if __name__ == "__main__":
    PAGE.write_text(updated_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
