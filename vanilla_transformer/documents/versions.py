"""A former version of a document and its translation: what of that a new version keeps."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Indel
from transformers.utils import logging

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.marked_text import TextTranslation
from vanilla_transformer.documents.places import Document, FileText
from vanilla_transformer.text.memory import Memory, Pair

logger = logging.get_logger(__name__)


def read_versions(
    previous: str, existing: str, document: Document, front_matter: Collection[str] = ()
) -> tuple[list[TextTranslation | None], Memory]:
    """Returns the translations of a former version that the texts of a document keep, and all.

    None: the former version does not have the text, or in another place. Where texts have names,
    the translation may lack some and have others, which a warning names. If the files do not fit
    together otherwise, the error names the first place that differs.

    Args:
        front_matter: As for `read_document`.
    """
    sides = [
        read_document(path, Path(path).read_bytes(), front_matter) for path in (previous, existing)
    ]
    if any(side.marks_doubt for side in sides):
        raise ValueError(
            f"{existing} holds sources and translations: give it as --memory, without --previous."
        )
    sources, targets, own = (_by_name(side) for side in (*sides, document))
    left = [message[0].location for name, message in targets.items() if name not in sources]
    if any(row.name is None for row in sides[0].texts):
        for source, target in zip_longest(sources.values(), targets.values(), fillvalue=()):
            if not _fit(source, target):
                raise ValueError(
                    f"{existing} is no translation of {previous}: they differ from "
                    f"{(target or source)[0].location} on, with {len(targets)} and {len(sources)} "
                    "texts."
                )
    elif left:
        logger.warning(f"{existing}: what it has in {', '.join(left)} is not in {previous}.")
    names, former = _former_names(sources, own), list[TextTranslation | None]()
    for name, message in own.items():
        source, target = sources.get(names.get(name), message), targets.get(names.get(name), ())
        part = target[0].part if target and source[0].part == message[0].part else None
        # With other branches (plural forms) than the source, it stays one part.
        rows = target if _fit(message, target) else message if part else ()
        written = [
            TextTranslation(
                row.marked.plain, row.marked.tags, own.marked.edges, is_known=True, part=part
            )
            for own, row in zip(message, rows, strict=False)
        ]
        former += written or [None for _ in message]
    return former, Memory(
        Pair(row.marked.write(), translated.marked.write())
        for name, source in sources.items()
        if _fit(source, targets.get(name, ()))
        for row, translated in zip(source, targets[name], strict=True)
    )


def _by_name(document: Document) -> Mapping[object, Sequence[FileText]]:
    """Returns the texts of each message of a document by its name.

    This is its own name, its number among the messages of that name, and their count.
    """
    counts = Counter(row.name for row in document.texts if row.begins)
    named, seen = dict[object, list[FileText]](), Counter[object]()
    for row in document.texts:
        seen[row.name] += row.begins
        named.setdefault((row.name, seen[row.name], counts[row.name]), []).append(row)
    return named


def _former_names(
    sources: Mapping[object, Sequence[FileText]], own: Mapping[object, Sequence[FileText]]
) -> dict[object, object]:
    """Returns the names that messages had in the former version, of those that did not change."""
    former, new = (
        {name: _content_of(message) for name, message in side.items()} for side in (sources, own)
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
    texts = (row.marked for row in message)
    return tuple((t.plain, *((tag.position, tag.text, tag.kind) for tag in t.tags)) for t in texts)
