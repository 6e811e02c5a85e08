"""Reads memories of translations from files: pairs of texts, and documents of two languages."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path

from vanilla_transformer.documents.accelerators import pair_without_accelerators
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.messages import target_of_document
from vanilla_transformer.files.text_files import read_lines, suffix_of
from vanilla_transformer.files.tmx import EMPTY_CODE, read_tmx
from vanilla_transformer.language_tags import closest_tag, known_tag
from vanilla_transformer.text.memory import Memory, Pair, normalized


def read_memory(
    paths: Sequence[str],
    source: str | None,
    target: str | None,
    without: Collection[tuple[str, str]] = (),
) -> Memory:
    """Reads the pairs of files.

    A file is a `.tsv` (source, tab, target) or a `.tmx`, also with .gz, or a document with sources
    and targets, such as `.po` and `.xliff`; its finished translations count. A server's corrections
    are a `.tsv` with both languages at the end of a line; those of other languages do not count.

    Args:
        source: The language of the sources, which a `.tmx` needs, as it needs `target`.
        without: Sources and targets of pairs that do not count.
    """
    excluded = [Pair(*texts) for texts in without]
    excluded += [*map(pair_without_accelerators, excluded)]
    left_out = set(map(_texts_of, excluded))
    pairs = (pair for path in paths for pair in _read(path, source, target))
    return Memory(pair for pair in pairs if _texts_of(pair) not in left_out)


def _texts_of(pair: Pair) -> tuple[str, str]:
    """Returns the texts by which pairs are equal: codes of a `.tmx` do not count."""
    return normalized(_without_codes(pair.source)), normalized(_without_codes(pair.target))


def _without_codes(text: str) -> str:
    return EMPTY_CODE.sub("", text).strip()


def pair_of_line(line: str, location: str, least: int = 2) -> tuple[Pair, Sequence[str]]:
    """Reads a line of a `.tsv`: a pair, and the languages of both sides if it is a correction.

    Args:
        location: The file and the line, as an error names them.
        least: The number of columns that the line must have.
    """
    cells = line.split("\t")
    if len(cells) < least:
        raise ValueError(f"{location}: it has fewer than {least} columns, with tabs between.")
    languages = cells[2:4]
    is_correction = len(languages) == 2 and (all(map(known_tag, languages)) or not any(languages))
    return Pair(cells[0], cells[1], is_correction=is_correction), languages


def _read(path: str, source: str | None, target: str | None) -> Iterator[Pair]:
    suffix = suffix_of(path)
    if suffix == ".tmx":
        if not (source and target):
            raise ValueError(f"{path} needs --source-language and --target-language.")
        coded = list[Pair]()  # after all others, which keep their neighbours
        for row in read_tmx(path, [source, target], "number"):
            plain = Pair(_without_codes(row[0]), _without_codes(row[1]))  # a text may lack the tags
            yield from _as_text_and_message(plain)
            if plain.source != row[0] or plain.target != row[1]:
                coded.append(Pair(*row[:2]))
        yield from chain.from_iterable(map(_as_text_and_message, coded))
    elif suffix == ".tsv":
        for number, line in enumerate(read_lines(path), start=1):
            pair, languages = pair_of_line(line, f"{path}, line {number}")
            if not pair.is_correction or all(map(_is_language, languages, (source, target))):
                yield from _as_text_and_message(pair)
    else:
        document = read_document(path, Path(path).read_bytes())
        try:
            target_of_document(document, target)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if not document.marks_doubt:
            raise ValueError(f"{path} holds no translations: give a .tsv, .tmx, .po or .xliff.")
        yield from document.pairs


def _as_text_and_message(pair: Pair) -> Iterator[Pair]:
    """Yields a pair, and the same without accelerators and tags around it, if that differs."""
    yield pair
    message = pair_without_accelerators(pair)
    if message.source != pair.source.strip():
        yield message


def _is_language(cell: str, language: str | None) -> bool:
    """Returns whether a cell names a language, or none at all."""
    own, wanted = known_tag(cell), known_tag(language)
    return not (own and wanted) or closest_tag(own, [wanted]) is not None
