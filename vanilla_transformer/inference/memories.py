"""Reads memories of translations from files: pairs of texts, and documents of two languages."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Indel

from vanilla_transformer.data.corpus_entries import suffix_of
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.data.tmx import read_tmx
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.markup import MarkedText
from vanilla_transformer.documents.memory import Memory, Pair, Suggestion
from vanilla_transformer.documents.messages import Document
from vanilla_transformer.inference.documents import target_of_document


def read_memory(paths: Sequence[str], source: str | None, target: str | None) -> Memory:
    """Reads the pairs of files.

    A file is a `.tsv` (source, tab, target), a `.tmx`, each also with .gz, or a document that holds
    sources and targets, such as `.po` and `.xliff`, of which finished translations count.

    Args:
        source: The language of the sources, which a `.tmx` needs, as it needs `target`.

    Raises:
        ValueError: If a file is of another kind, damaged, or for another target language.
    """
    return Memory(pair for path in paths for pair in _read(path, source, target))


def _read(path: str, source: str | None, target: str | None) -> Iterator[Pair]:
    suffix = suffix_of(path)
    if suffix == ".tmx":
        if not (source and target):
            raise ValueError(f"{path} needs --source-language and --target-language.")
        yield from (Pair(*row[:2]) for row in read_tmx(path, [source, target]))
    elif suffix == ".tsv":
        for number, line in enumerate(read_lines(path), start=1):
            cells = line.split("\t")
            if len(cells) < 2:
                raise ValueError(f"{path}, line {number}: there is no tab before a target.")
            yield Pair(*cells[:2])
    else:
        document = read_document(path, Path(path).read_bytes())
        target_of_document(document, target)
        if not document.marks_doubt:
            raise ValueError(f"{path} holds no translations: give a .tsv, .tmx, .po or .xliff.")
        yield from document.pairs


def read_versions(previous: str, existing: str, document: Document) -> list[Suggestion | None]:
    """Returns the translations of a former version that the texts of a document keep.

    None: the former version does not have the text, or in another place.

    Raises:
        ValueError: If the files do not fit together; the error names the first place that differs.
    """
    old, new = (read_document(path, Path(path).read_bytes()) for path in (previous, existing))
    sides = [
        [(len(marked.tags), place) for marked, place in zip(side.texts, side.places, strict=True)]
        for side in (old, new)
    ]
    for source, target in zip_longest(*sides):
        if source is None or target is None or source[0] != target[0]:
            raise ValueError(
                f"{existing} is no translation of {previous}: they differ from "
                f"{(target or source)[1]} on, with {len(sides[1])} and {len(sides[0])} texts."
            )
    former: list[Suggestion | None] = [None] * len(document.texts)
    texts = [[_content_of(marked) for marked in side.texts] for side in (old, document)]
    for block in Indel.opcodes(*texts):
        if block.tag == "equal":
            numbers = range(block.src_start, block.src_end)
            former[block.dest_start : block.dest_end] = [
                Suggestion(old.texts[n].text, new.texts[n].text, 1.0, True, new.texts[n])
                for n in numbers
            ]
    return former


def _content_of(marked: MarkedText) -> tuple[object, ...]:
    """Returns what two texts of different files have in common."""
    return marked.text, *((tag.position, tag.text, tag.kind) for tag in marked.tags)
