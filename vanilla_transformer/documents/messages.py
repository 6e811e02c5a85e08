"""Texts of programs: what their flags say, and the sign before the letter of a key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import regex

from vanilla_transformer.documents.kept import Span
from vanilla_transformer.documents.markup import MarkedText
from vanilla_transformer.documents.places import Place, find_place, split_text

_ACCELERATOR = regex.compile(
    r"(?<![\w&])&(?=[\p{L}\p{N}])(?!\w+;)|(?<=\b\p{Lu}\p{Ll}*|\s\p{Ll}+)&(?=\p{Ll})(?!\w+;)"
    r"|(?<![\w_])_(?=(?:\p{L}\p{Ll}*|OK)\b)|(?<=\b\p{Lu}\p{Ll}*)_(?=\p{Ll})"
)
_LONGEST_LABEL = 80
_LETTER = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}]")
_TAIL = regex.compile(r"[\s.:\u2026\uff1a]*\Z")


class Message(str):
    """A text of a program, with its flags of gettext, such as `c-format`."""

    __slots__ = ("flags",)
    flags: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class MessagePlace(Place):
    """The place of a message.

    Attributes:
        sign: "&" or "_", which the text has before the letter of a key. "": it has none.
        letter: That letter.
    """

    sign: str
    letter: str

    def write(self, output: MarkedText) -> str:
        """The sign returns to an output."""
        return super().write(self._with_sign(output) if self.sign else output)

    def _with_sign(self, output: MarkedText) -> MarkedText:
        """Puts the sign before the same letter, best where a word begins, or the first one."""
        text, added = output.text, self.sign
        letter = regex.escape(self.letter)
        same = regex.search(rf"\b(?i:{letter})", text) or regex.search(rf"(?i:{letter})", text)
        found = same or _LETTER.search(text)
        if found:
            place = found.start()
        else:  # as Chinese and Japanese programs have it
            place, added = _TAIL.search(text).start(), f"({self.sign}{self.letter.upper()})"
        tags = tuple(
            replace(tag, position=tag.position + len(added)) if tag.position > place else tag
            for tag in output.tags
        )
        return MarkedText(f"{text[:place]}{added}{text[place:]}", tags)


def find_message(
    span: Span, text: str, flags: frozenset[str], make: Callable[..., Place]
) -> Iterator[Place]:
    """Yields the place of a message, if there is something to translate in it."""
    signs = list(_ACCELERATOR.finditer(text))
    sign = letter = ""
    if len(signs) == 1 and len(text) <= _LONGEST_LABEL:
        begin, end = signs[0].span()
        sign, letter = text[begin:end], text[end]
        text = text[:begin] + text[end:]
    for place in find_place(span, split_text(text)):
        message = Message(place.text.text)
        message.flags = flags
        yield make(
            *(*span, replace(place.text, text=message), place.before, place.after),
            stays=False,
            sign=sign,
            letter=letter,
        )
