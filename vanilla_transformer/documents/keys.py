"""Signs before letters of keys, such as `&Open`: texts lose them, and outputs get them back."""

from collections.abc import Sequence
from dataclasses import replace

import regex

from vanilla_transformer.documents.marked_text import (
    Tag,
    TextTranslation,
    split_edges,
    split_text,
    without_equal_edges,
)
from vanilla_transformer.documents.places import FileText
from vanilla_transformer.text.edits import meets
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.memory import Pair

_SIGN = regex.compile(
    r"(?<![\w&])&(?=[\p{L}\p{N}])(?!\w+;)|(?<=\b\p{Lu}\p{Ll}*|\s\p{Ll}+)&(?=\p{Ll})(?!\w+;)"
    r"|(?<![\w_])_(?=(?:\p{L}\p{Ll}*|OK)\b)|(?<=\b\p{Lu}\p{Ll}*)_(?=\p{Ll})"
)
_LONGEST_LABEL = 80  # characters, chosen without a measurement: a longer text has no key
_SHORTEST_WORD = 3  # letters on both sides of a sign that may be the word "and"
_LETTERS_BEFORE, _LETTERS = regex.compile(r"\p{L}*$"), regex.compile(r"\p{L}*")
_LETTER = r"[\p{Latin}\p{Greek}\p{Cyrillic}]"
_TAIL = regex.compile(r"[\s.:\u2026\uff1a]*\Z")
_SIGN_BEHIND = regex.compile(r"\s*\([&_]\p{L}\)")


def find_key(text: str, lowered_source: str | None) -> int | None:
    """Returns the position of the sign before the letter of a key in a text. None: it has none.

    Args:
        lowered_source: The file in small letters. `Pass&word` has a key where it has "password",
            too; `Drag&drop` has none. None: its texts have no keys.
    """
    if lowered_source is None or len(text) > _LONGEST_LABEL:
        return None
    signs = list(_SIGN.finditer(text))
    if len(signs) != 1:
        return None
    position = signs[0].start()
    parts = _LETTERS_BEFORE.search(text, endpos=position)[0], _LETTERS.match(text, position + 1)[0]
    word = "".join(parts).lower()
    is_doubtful = min(map(len, parts)) >= _SHORTEST_WORD and word not in lowered_source
    return None if is_doubtful else position


def pair_without_keys(pair: Pair, lowered_source: str = "") -> Pair:
    """Returns a pair without signs of keys, and without the same tags around both sides.

    A document takes the same out of a text before it is translated.

    Args:
        lowered_source: As for `find_key`.
    """
    source, sign = _without_sign(pair.source, find_key(pair.source, lowered_source))
    target = _SIGN_BEHIND.sub("", pair.target)
    # A translator may put the sign before any letter.
    target = target.replace(sign, "") if sign and target.count(sign) == 1 else target
    target = _without_sign(target, find_key(target, lowered_source))[0]
    sides = (split_edges(split_text(text)) for text in (source, target))
    source, target = without_equal_edges(*sides)
    return pair._replace(source=source, target=target)


def _without_sign(text: str, key: int | None) -> tuple[str, str]:
    """Returns a text without the sign at a position, and the sign."""
    return (text, "") if key is None else (text[:key] + text[key + 1 :], text[key])


class KeyText:
    """A text without the sign before the letter of a key.

    Attributes:
        texts: The text, alone.
    """

    def __init__(self, row: FileText, lowered_source: str | None) -> None:
        marked, self._flags = row.marked, row.flags
        key = find_key(marked.plain, lowered_source)
        text, self._sign = _without_sign(marked.plain, key)
        if key is not None:
            self._letter = text[key]
            marked = replace(marked, plain=text, tags=_moved(marked.tags, key, -1))
        self.texts = [marked]

    def write(self, outputs: Sequence[TextTranslation]) -> TextTranslation:
        """Puts the sign before the same letter, best where a word begins, or the first one."""
        (output,) = outputs
        if not self._sign:
            return output
        text, added, letter = output.plain, self._sign, f"(?i:{regex.escape(self._letter)})"
        kept = kept_spans(text, flags=self._flags)
        letters = (
            found.span()
            for pattern in (rf"\b{letter}", letter, _LETTER)
            for found in regex.finditer(pattern, text)
        )
        position = next((begin for begin, end in letters if not meets((begin, end), kept)), None)
        if position is None:  # as Chinese and Japanese programs have it
            position, added = _TAIL.search(text).start(), f"({self._sign}{self._letter.upper()})"
        written = f"{text[:position]}{added}{text[position:]}"
        return replace(output, plain=written, tags=_moved(output.tags, position, len(added)))


def _moved(tags: Sequence[Tag], begin: int, count: int) -> tuple[Tag, ...]:
    """Returns tags, of which those behind a position are moved."""
    return tuple(
        replace(tag, position=tag.position + count * (tag.position > begin)) for tag in tags
    )
