"""Reads memories of translations from files: pairs of texts, and documents of two languages."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Indel

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.markup import MarkedText
from vanilla_transformer.documents.messages import pair_of_messages
from vanilla_transformer.documents.places import Document
from vanilla_transformer.documents.translation import target_of_document
from vanilla_transformer.files.text_files import read_lines, suffix_of
from vanilla_transformer.files.tmx import read_tmx
from vanilla_transformer.text.languages import closest_tag, known_tag
from vanilla_transformer.text.memory import Memory, Pair


def read_memory(
    paths: Sequence[str],
    source: str | None,
    target: str | None,
    without: Collection[tuple[str, str]] = (),
) -> Memory:
    """Reads the pairs of files.

    A file is a `.tsv` (source, tab, target), a `.tmx`, each also with .gz, or a document that holds
    sources and targets, such as `.po` and `.xliff`, of which finished translations count. The
    corrections of a server are a `.tsv` with the languages behind: those of others do not count.

    Args:
        source: The language of the sources, which a `.tmx` needs, as it needs `target`.
        without: Sources and targets of pairs that do not count.
    """
    left_out = {*without, *(pair_of_messages(*texts)[:2] for texts in without)}
    pairs = (pair for path in paths for pair in _read(path, source, target))
    return Memory(pair for pair in pairs if pair[:2] not in left_out)


def _read(path: str, source: str | None, target: str | None) -> Iterator[Pair]:
    suffix = suffix_of(path)
    if suffix == ".tmx":
        if not (source and target):
            raise ValueError(f"{path} needs --source-language and --target-language.")
        for row in read_tmx(path, [source, target]):
            yield from _as_text_and_message(*row[:2])
    elif suffix == ".tsv":
        corrections: dict[tuple[str, str], str] = {}
        for number, line in enumerate(read_lines(path), start=1):
            cells = line.split("\t")
            if len(cells) < 2:
                raise ValueError(f"{path}, line {number}: there is no tab before a target.")
            if len(cells) < 4:
                yield from _as_text_and_message(*cells[:2])
            elif all(map(_is_language, cells[2:4], (source, target))):
                corrections[cells[0], cells[3]] = cells[1]  # the last one counts
        for (text, _), correction in corrections.items():
            yield from _as_text_and_message(text, correction)
    else:
        document = read_document(path, Path(path).read_bytes())
        try:
            target_of_document(document, target)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if not document.marks_doubt:
            raise ValueError(f"{path} holds no translations: give a .tsv, .tmx, .po or .xliff.")
        yield from document.pairs


def _as_text_and_message(source: str, target: str) -> Iterator[Pair]:
    """Yields a pair for lines, and one for messages, without signs of keys, if there are any."""
    yield Pair(source, target)
    message = pair_of_messages(source, target)
    if message.source != source.strip():
        yield message


def _is_language(cell: str, language: str | None) -> bool:
    """Returns whether a cell names a language, or none at all."""
    own, wanted = known_tag(cell), known_tag(language)
    return not (own and wanted) or closest_tag(own, [wanted]) is not None


def read_versions(
    previous: str, existing: str, document: Document
) -> tuple[list[MarkedText | None], Memory]:
    """Returns the translations of a former version that the texts of a document keep, and all.

    None: the former version does not have the text, or in another place. If the files do not fit
    together, the error names the first place that differs.
    """
    old, new = (read_document(path, Path(path).read_bytes()) for path in (previous, existing))
    order = {key: number for number, key in reversed([*enumerate(old.keys)])}
    sources, targets = (
        list(zip_longest(side.keys, side.texts, side.locations, side.parts)) for side in (old, new)
    )
    targets.sort(key=lambda row: order.get(row[0], len(order)))  # fields of JSON have any order
    pairs = list(zip_longest(sources, targets))
    for source, target in pairs:
        if not (source and target) or _frame_of(*source) != _frame_of(*target):
            raise ValueError(
                f"{existing} is no translation of {previous}: they differ from "
                f"{(target or source)[2]} on, with {len(targets)} and {len(sources)} texts."
            )
    texts = [[_content_of(marked) for marked in side.texts] for side in (old, document)]
    kept: dict[int, int] = {}
    for block in Indel.opcodes(*texts):
        if block.tag == "equal":
            own = range(block.dest_start, block.dest_end)
            kept.update(zip(own, range(block.src_start, block.src_end), strict=True))
    named = {row: number for number, row in enumerate(zip(old.keys, texts[0], strict=False))}
    rows = enumerate(zip(document.keys, texts[1], strict=False))
    kept.update({number: named[row] for number, row in rows if row in named})
    former: list[MarkedText | None] = [None for _ in document.texts]
    for number, of_former in kept.items():
        (*_, source_part), (_, target, _, target_part) = pairs[of_former]
        part = target_part if source_part == document.parts[number] else None
        former[number] = replace(target, is_known=True, part=part)
    return former, Memory(Pair(row[1].write(), of_row[1].write()) for row, of_row in pairs)


def _frame_of(key: object, marked: MarkedText, *_: object) -> tuple[object, int]:
    """Returns the facts that a text and its translation have in common."""
    return key, len(marked.tags)


def _content_of(marked: MarkedText) -> tuple[object, ...]:
    """Returns the content by which texts of two files are compared."""
    return marked.text, *((tag.position, tag.text, tag.kind) for tag in marked.tags)
