"""Reads memories of translations from files: pairs of texts, and documents of two languages."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Indel
from transformers.utils import logging

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.markup import MarkedText
from vanilla_transformer.documents.messages import pair_of_messages
from vanilla_transformer.documents.places import Document, Row
from vanilla_transformer.documents.translation import target_of_document
from vanilla_transformer.files.text_files import read_lines, suffix_of
from vanilla_transformer.files.tmx import read_tmx
from vanilla_transformer.text.languages import closest_tag, known_tag
from vanilla_transformer.text.memory import Memory, Pair

logger = logging.get_logger(__name__)


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

    None: the former version does not have the text, or in another place. Where texts have names,
    the translation may lack some and have others, which a warning names. If the files do not fit
    together otherwise, the error names the first place that differs.
    """
    sides = [read_document(path, Path(path).read_bytes()) for path in (previous, existing)]
    sources, targets, own = (_messages_of(side) for side in (*sides, document))
    if any(message[0].key for message in sources):
        pairs = _named_pairs(sources, targets, existing)
    else:
        for source, target in zip_longest(sources, targets):
            if not (source and target and _fit(source, target)):
                raise ValueError(
                    f"{existing} is no translation of {previous}: they differ from "
                    f"{(target or source)[0].location} on, with {len(targets)} and {len(sources)} "
                    "texts."
                )
        pairs = list(zip(sources, targets, strict=True))
    former: list[MarkedText | None] = []
    kept = _kept_messages([source for source, _ in pairs], own)
    for number, message in enumerate(own):
        source, target = pairs[kept[number]] if number in kept else (message, None)
        part = target[0].part if target and source[0].part == message[0].part else None
        if target and _fit(source, target):
            former += [replace(row.text, is_known=True, part=part) for row in target]
        else:  # it may have other branches for plurals
            whole = [replace(row.text, is_known=True, part=part) for row in message]
            former += whole if part else [None for _ in message]
    return former, Memory(
        Pair(row.text.write(), of_row.text.write())
        for source, target in pairs
        if target and _fit(source, target)
        for row, of_row in zip(source, target, strict=True)
    )


def _messages_of(document: Document) -> list[list[Row]]:
    """Returns the texts of each message of a document."""
    messages: list[list[Row]] = []
    for row in document.rows:
        if not row.number:
            messages.append([])
        messages[-1].append(row)
    return messages


def _named_pairs(
    sources: Sequence[list[Row]], targets: Sequence[list[Row]], existing: str
) -> list[tuple[list[Row], list[Row] | None]]:
    """Returns each message with that of the same name; several of one name are in one order."""
    pairs: list[tuple[list[Row], list[Row] | None]] = []
    left = _by_name(targets)
    for name, messages in _by_name(sources).items():
        fits = len(left.get(name, [])) == len(messages)
        pairs += zip(messages, left.pop(name) if fits else [None for _ in messages], strict=True)
    if left:
        places = ", ".join(message[0].location for of_name in left.values() for message in of_name)
        logger.warning(f"{existing}: what it has in {places} is not in the former version.")
    return pairs


def _by_name(messages: Sequence[list[Row]]) -> dict[object, list[list[Row]]]:
    named: dict[object, list[list[Row]]] = {}
    for message in messages:
        named.setdefault(message[0].key, []).append(message)
    return named


def _kept_messages(sources: Sequence[list[Row]], own: Sequence[list[Row]]) -> dict[int, int]:
    """Returns the numbers of messages that did not change, and those of their former version."""
    contents = [[_content_of(message) for message in side] for side in (sources, own)]
    kept: dict[int, int] = {}
    for block in Indel.opcodes(*contents):
        if block.tag == "equal":
            numbers = range(block.dest_start, block.dest_end)
            kept.update(zip(numbers, range(block.src_start, block.src_end), strict=True))
    named = {
        (message[0].key, content): number
        for number, (message, content) in enumerate(zip(sources, contents[0], strict=True))
        if message[0].key
    }
    for number, (message, content) in enumerate(zip(own, contents[1], strict=True)):
        kept[number] = named.get((message[0].key, content), kept.get(number, -1))
    return {number: former for number, former in kept.items() if former >= 0}


def _fit(source: Sequence[Row], target: Sequence[Row]) -> bool:
    """Returns whether a message and its translation have as many texts, with as many tags."""
    return [len(row.text.tags) for row in source] == [len(row.text.tags) for row in target]


def _content_of(message: Sequence[Row]) -> tuple[object, ...]:
    """Returns the content by which messages of two files are compared."""
    texts = (row.text for row in message)
    return tuple((t.text, *((tag.position, tag.text, tag.kind) for tag in t.tags)) for t in texts)
