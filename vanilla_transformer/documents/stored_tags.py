"""Stored translations, whose markup is written in their text, with tags."""

import re

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    TextTranslation,
    partners_of,
)

_TAG = re.compile(r"(?:<|&lt;)/?([\w:.-]+)(?:[^<>&]|&(?![lg]t;))*(?:>|&gt;)")


def with_tags_of(text: MarkedText, target: str) -> TextTranslation | None:
    """Returns a stored translation with the tags of a text. None: it has other tags."""
    remaining = list(text.tags)
    open_names = list[str]()
    items = list[Item]()
    written = "|".join(re.escape(tag.text) for tag in remaining if tag.text) or "(?!)"
    for index, part in enumerate(re.split(f"({written})", target)):  # texts and tags by turns
        equal = [tag for tag in remaining if index % 2 and tag.text == part]
        closing = [tag for tag in equal if tag.kind == "end" and tag.name in open_names[-1:]]
        same = next(iter(closing or equal), None)
        if same:
            remaining.remove(same)
            if same.kind == "begin":
                open_names.append(same.name)
            elif same.kind == "end":
                del open_names[-1:]
        elif index % 2:
            return None
        items.append(same or part)
    if len(partners_of(items)) < len(partners_of([*text.items()])):
        return None  # tags of its pairs cross
    translated = TextTranslation.of(items, text.edges)
    # Parts of both texts that only look like tags must be the same, too.
    alike = [sorted(match[0] for match in _TAG.finditer(side.plain)) for side in (translated, text)]
    return None if remaining or alike[0] != alike[1] else translated


def with_own_tags(text: MarkedText, target: str) -> TextTranslation:
    """Returns the stored translation of an equal text with the tags that a person gave it."""
    # The class of each tag: an element of the file stays one, other tags of XML become text.
    classes = {match[1]: type(tag) for tag in text.tags if (match := _TAG.match(tag.text))}
    items, last = list[Item](), 0
    for match in _TAG.finditer(target):
        tag_class = classes.get(match[1], Tag)
        items += [target[last : match.start()], tag_class(0, match[0])]
        last = match.end()
    return TextTranslation.of([*items, target[last:]], text.edges)
