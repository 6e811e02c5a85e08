"""Documents whose texts are written in capitals, so that a test sees all that is changed."""

from vanilla_transformer.documents.marked_text import MarkedText


def in_capitals(document, *arguments):
    outputs = [MarkedText(text.text.upper(), text.tags) for text in document.texts]
    return document.write(outputs, *arguments)
