"""Documents whose texts are written in capitals, so that a test sees all that is changed."""

from dataclasses import replace

from vanilla_transformer.documents.marked_text import TextTranslation


def in_capitals(document, *arguments):
    outputs = [replace(text, plain=text.plain.upper()) for text in unchanged(document)]
    return document.write(outputs, *arguments)


def unchanged(document):
    """The texts of a document, as translations of themselves."""
    return [
        TextTranslation(marked.plain, marked.tags, marked.edges)
        for marked in (text.marked for text in document.texts)
    ]
