"""Translates documents, whose texts are taken out of files by `documents`."""

from typing import Any

from vanilla_transformer.documents.formats import TextsOfFile
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.inference.translator import Translator


def translate_document(translator: Translator, document: TextsOfFile, **options: Any) -> bytes:
    """Returns a document with its texts translated.

    Args:
        document: What `documents.formats.read_document` returns.
        **options: As for `Translator.translate`.
    """
    texts = document.texts
    outputs = translator.translate([marked.text for marked in texts], return_links=True, **options)
    return document.write(
        [
            place_tags(marked, output.text, output.links)
            for marked, output in zip(texts, outputs, strict=True)
        ]
    )
