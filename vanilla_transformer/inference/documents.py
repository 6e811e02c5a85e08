"""Translates documents, whose texts are taken out of files by `documents`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from transformers.utils import logging

from vanilla_transformer.documents.markup import MarkedText, place_tags
from vanilla_transformer.documents.messages import Document
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.segments import NO_LINKS
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.languages import closest_tag, known_tag

logger = logging.get_logger(__name__)


def translate_document(
    translator: Translator,
    document: Document,
    on_outputs: Callable[[Sequence[Translation]], None] = lambda _: None,
    fuzzy_below: int = 0,
    **options: Any,
) -> bytes:
    """Returns a document with its texts translated, sentence by sentence.

    A text whose output is cut off at the longest length stays; a warning names its place.

    Args:
        document: What `documents.formats.read_document` returns.
        on_outputs: Is called with the output of each text.
        fuzzy_below: As for `write_document`.
        **options: As for `Translator.translate`.
    """
    target = options.get("tgt_lang")
    (direction,) = translator.directions(1, options.get("src_lang"), target)
    language = target_of_document(document, target or direction.target)
    texts = [marked.text for marked in document.texts]
    outputs = translator.translate(
        texts,
        return_links=True,
        in_sentences=True,
        name_text=document.places.__getitem__,
        **options,
    )
    on_outputs(outputs)
    written, untranslated = write_document(document, outputs, language, fuzzy_below)
    if untranslated:
        logger.warning(f"The source stays in {', '.join(untranslated)}.")
    return written


def target_of_document(document: Document, target: str | None) -> str | None:
    """Returns the tag of a target language; None: it is none.

    Raises:
        ValueError: If the document is a translation into another one.
    """
    own, language = known_tag(document.language), known_tag(target)
    if own and language and closest_tag(own, [language]) is None:
        raise ValueError(
            f"the file is a translation into {document.language}, and the target is {target}: take "
            "the other model, or take the language out of the file."
        )
    return language


def write_document(
    document: Document,
    outputs: Sequence[Translation],
    language: str | None,
    fuzzy_below: int = 0,
) -> tuple[bytes, list[str]]:
    """Returns a document with outputs, and the places where the source stays.

    It stays where an output is cut off at the longest length.

    Args:
        language: What `target_of_document` returns.
        fuzzy_below: Outputs of a lower quality are marked as doubtful.
    """
    written: list[MarkedText | None] = []
    untranslated = []
    placed = with_tags_placed(document.texts, outputs)
    for marked, output, place in zip(placed, outputs, document.places, strict=True):
        if output.is_complete:
            is_doubtful = output.quality is not None and output.quality < fuzzy_below
            written.append(replace(marked, is_doubtful=is_doubtful))
        else:
            written.append(None)
            untranslated.append(place)
    return document.write(written, language), untranslated


def with_tags_placed(
    texts: Sequence[MarkedText], outputs: Sequence[Translation]
) -> list[MarkedText]:
    """Returns outputs with the tags of their texts; without tags, no links are needed."""
    return [
        place_tags(marked, output.text, output.links or NO_LINKS)
        for marked, output in zip(texts, outputs, strict=True)
    ]
