"""Translates documents, whose texts are taken out of files by `documents`."""

from collections.abc import Sequence
from typing import Any

from vanilla_transformer.documents.formats import TextsOfFile
from vanilla_transformer.documents.markup import MarkedText, place_tags
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.segments import NO_LINKS
from vanilla_transformer.inference.translator import Translator


def translate_document(translator: Translator, document: TextsOfFile, **options: Any) -> bytes:
    """Returns a document with its texts translated.

    Args:
        document: What `documents.formats.read_document` returns.
        **options: As for `Translator.translate`.
    """
    texts = document.texts
    outputs = translator.translate([marked.text for marked in texts], return_links=True, **options)
    return document.write(with_tags_placed(texts, outputs))


def with_tags_placed(
    texts: Sequence[MarkedText], outputs: Sequence[Translation]
) -> list[MarkedText]:
    """Returns outputs with the tags of their texts; without tags, no links are needed."""
    return [
        place_tags(marked, output.text, output.links or NO_LINKS)
        for marked, output in zip(texts, outputs, strict=True)
    ]
