"""Glossaries: from files of tabs, mappings, and pairs of terms."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.text.terms import Glossary, Term

GlossaryLike = Glossary | str | Path | Mapping[str, str] | Sequence[Sequence[str]]
"""A glossary; its file; or targets by their sources, or pairs of both."""

_COLUMNS = ("source", "target", "case", "exact")


def as_glossary(glossary: GlossaryLike) -> Glossary:
    """Returns a glossary; makes one of a file, a mapping or a list of pairs.

    A file has the columns source, target, `case` and `exact` (1 or 0), of which the last two are
    optional. A first line with these names may give another order.
    """
    if isinstance(glossary, Glossary):
        return glossary
    if isinstance(glossary, str | Path):
        return Glossary(_load(Path(glossary)))
    pairs = glossary.items() if isinstance(glossary, Mapping) else glossary
    return Glossary(map(_term_of, pairs))


def _term_of(pair: Any) -> Term:
    match pair:
        case [str(source), str(target)]:
            return Term(source, target)
    raise ValueError(f"The glossary has {pair!r}: give pairs of a source and a target, as texts.")


def _load(path: Path) -> Iterator[Term]:
    """Yields the terms of a file, each with its line."""
    columns: Sequence[str] = _COLUMNS
    for number, line in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1 and {"source", "target"} <= {*cells} <= {*_COLUMNS}:
            columns = cells
        elif any(cells):
            row = dict.fromkeys(_COLUMNS, "") | dict(zip(columns, cells, strict=False))
            source, target, case, exact = (row[name] for name in _COLUMNS)
            location = f"{path}, line {number}"
            if not 2 <= len(cells) <= len(columns) or not {case, exact} <= {"", "0", "1"}:
                raise ValueError(
                    f"{location}: {line!r} must be a source, a tab and a target, and optionally "
                    "1 or 0 for `case` and `exact`."
                )
            yield Term(source, target, case == "1", exact == "1", location)
