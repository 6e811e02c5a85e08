"""Tags that stand for a word, such as the one in "Saved as <x/>.", which a model reads as `{0}`."""

from collections.abc import Mapping, Sequence
from itertools import chain

import regex

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    TextTranslation,
    free_names,
)

_BEFORE = regex.compile(r"$|[\s\p{Ps}\p{Pi}\p{Pd}\p{S}\"'/]")
_BEHIND = regex.compile(r"$|[\s\p{Pe}\p{Pf}\p{Pd}\p{S}\p{Po}]")
Names = Mapping[str, Sequence[Tag]]  # the tags that each placeholder stands for


def name_tags(marked: MarkedText) -> tuple[MarkedText, Names]:
    """Returns a text with placeholders for the tags that stand for a word, and these tags."""
    items = list[Item]()
    names = dict[str, list[Tag]]()
    free = free_names(marked.plain)
    name = ""
    for item in (part for part in marked.items() if part):
        if isinstance(item, str) or not _stands_for_word(marked.plain, item):
            items.append(item)
        elif items[-1:] == [name]:  # directly after another such tag
            names[name].append(item)
        else:
            name = next(free)
            names[name] = [item]
            items.append(name)
    return MarkedText.of(items, marked.edges), names


def _stands_for_word(text: str, tag: Tag) -> bool:
    """Returns whether a tag without a partner stands between spaces or signs."""
    before, behind = text[: tag.position][-1:], text[tag.position :][:1]
    return tag.kind == "empty" and bool(_BEFORE.match(before) and _BEHIND.match(behind))


def with_named_tags(marked: TextTranslation, names: Names) -> TextTranslation:
    """Returns a translation with tags for its placeholders; tags of lost placeholders come last."""
    items = list[Item]()
    remaining = dict(names)
    for part in marked.items():
        pieces = regex.split(r"(\{\d+\})", part) if isinstance(part, str) else [part]
        for piece in pieces:
            items += remaining.pop(piece, [piece]) if isinstance(piece, str) else [piece]
    return TextTranslation.of([*items, *chain.from_iterable(remaining.values())], marked.edges)
