"""Reuses the translation of a document's previous version."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Indel
from transformers.utils import logging

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation, Translations
from vanilla_transformer.documents.places import Document, FileText
from vanilla_transformer.text.memory import Memory, Pair

logger = logging.get_logger(__name__)

_Messages = Mapping[object, Sequence[FileText]]  # the texts of messages, by a name of each


def read_versions(
    previous: str, existing: str, document: Document, front_matter: Collection[str] = ()
) -> tuple[Translations, Memory]:
    """Returns the translation that each text of a document keeps, and a memory of all of them.

    A text keeps its translation if the previous version has it in the same place, else it gets
    None. If texts have names, the translation may lack some, and a warning names its further ones.

    Args:
        previous: The file of the previous version.
        existing: The file of its translation.
        front_matter: As for `read_document`.

    Raises:
        ValueError: If the files do not fit together; it names the first text that differs.
    """
    sides = [
        read_document(path, Path(path).read_bytes(), front_matter) for path in (previous, existing)
    ]
    if any(side.marks_doubt for side in sides):
        raise ValueError(
            f"{existing} holds sources and translations: give it as --memory, without --previous."
        )
    sources, targets = map(_by_name, sides)
    has_names = all(text.name is not None for text in sides[0].texts)
    _check_translation(previous, existing, sources, targets, has_names)
    pairs = (
        Pair(text.marked.write(), translated.marked.write())
        for name, source in sources.items()
        if _fit(source, targets.get(name, ()))
        for text, translated in zip(source, targets[name], strict=True)
    )
    return _kept_translations(sources, targets, _by_name(document)), Memory(pairs)


def _check_translation(
    previous: str, existing: str, sources: _Messages, targets: _Messages, has_names: bool
) -> None:
    """Raises an error if a file is no translation of another; if texts have names, warns."""
    if has_names:
        left = [message[0].location for name, message in targets.items() if name not in sources]
        if left:
            logger.warning(f"{existing}: the texts in {', '.join(left)} are not in {previous}.")
        return
    for source, target in zip_longest(sources.values(), targets.values(), fillvalue=()):
        if not _fit(source, target):
            raise ValueError(
                f"{existing} is no translation of {previous}: they differ from "
                f"{(target or source)[0].location} on, with {len(targets)} and {len(sources)} "
                "texts."
            )


def _kept_translations(sources: _Messages, targets: _Messages, messages: _Messages) -> Translations:
    """Returns the translation that each text of a document keeps, or None."""
    names = _former_names(sources, messages)
    kept = list[TextTranslation | None]()
    for name, message in messages.items():
        former = names.get(name)
        target = targets.get(former, ())
        is_unchanged = target and sources[former][0].file_part == message[0].file_part
        part = target[0].file_part if is_unchanged else None
        fits = _fit(message, target)
        if not (part or fits):
            kept += [None for _ in message]
            continue
        # With other branches (plural forms) than the source's, a translation stays one part.
        texts = [text.marked for text in (target if fits else message)]
        kept += [
            TextTranslation(own.plain, own.tags, text.marked.edges, is_known=True, file_part=part)
            for text, own in zip(message, texts, strict=True)
        ]
    return kept


def _by_name(document: Document) -> _Messages:
    """Returns the messages of a document by name, number of that name, and count of that name."""
    counts = Counter(text.name for text in document.texts if text.begins_message)
    named = dict[object, list[FileText]]()
    seen = Counter[object]()
    for text in document.texts:
        seen[text.name] += 1 if text.begins_message else 0
        named.setdefault((text.name, seen[text.name], counts[text.name]), []).append(text)
    return named


def _former_names(sources: _Messages, messages: _Messages) -> dict[object, object]:
    """Returns the names in the previous version of those messages that did not change."""
    former, new = (
        {name: _content_of(message) for name, message in side.items()}
        for side in (sources, messages)
    )
    found: dict[object, object] = {}
    for block in Indel.opcodes(list(former.values()), list(new.values())):
        if block.tag == "equal":
            names = list(former)[block.src_start : block.src_end]
            found.update(zip(list(new)[block.dest_start : block.dest_end], names, strict=True))
    return found | {name: name for name in new if former.get(name) == new[name]}


def _fit(source: Sequence[FileText], target: Sequence[FileText]) -> bool:
    """Returns whether a message and its translation have as many texts, with as many tags."""
    return [len(row.marked.tags) for row in source] == [len(row.marked.tags) for row in target]


def _content_of(message: Sequence[FileText]) -> tuple[object, ...]:
    """Returns the content by which messages of two files are compared."""
    return tuple(
        (text.marked.plain, *((tag.position, tag.text, tag.kind) for tag in text.marked.tags))
        for text in message
    )
