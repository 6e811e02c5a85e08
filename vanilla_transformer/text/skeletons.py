"""Skeletons: the forms by which a memory compares texts, and translations that fit another text.

Skeletons ignore placeholders and numbers, case, and the signs at the end of a text.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from unicodedata import normalize

import regex

from vanilla_transformer.text.capitals import to_upper
from vanilla_transformer.text.edits import Edit, apply_edits, meets
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.printf import takes_next_value
from vanilla_transformer.text.words import words_and_signs

_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:]\p{Nd}+)*")
_ENDING = regex.compile(r"[\s.:;!?\u2026\u3002\uff0e\uff1a\uff01\uff1f\u061f\u06d4\u0964]*\Z")
_WIDE = {".": "\u3002", ":": "\uff1a", "!": "\uff01", "?": "\uff1f"}
_WIDE_SCRIPT = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]\Z")
_BREAK = regex.compile(r"[\n\t]")
_WORD = regex.compile(r"[\p{L}\p{N}\p{M}]")
PART = "\0"
"""The character that stands for a part in a skeleton."""


class Skeleton:
    """The form by which a memory compares a text, and the parts that this form ignores.

    Attributes:
        text: The text.
        leading_space: The white space before it.
        spans: The spans of its placeholders, numbers and the like, in order.
        parts: The texts of these spans.
        ending: The signs and white space at its end.
        body: The rest, with a NUL for each part.
        cased_words: The words of the body.
        words: These words in small letters.
        breaks: The line breaks and tabs.

    Args:
        source_parts: As for `find_patterns`.
    """

    def __init__(self, text: str, source_parts: Sequence[str] | None = None) -> None:
        self.text = text
        begin, end = len(text) - len(text.lstrip()), _ENDING.search(text).start()
        kept = [span for span in kept_spans(text, source_parts=source_parts) if span[0] < end]
        end = max([begin, end, *(span[1] for span in kept)])
        numbers = (match.span() for match in _NUMBER.finditer(text, begin, end))
        self.spans = sorted([*kept, *(span for span in numbers if not meets(span, kept))])
        self.parts = [text[slice(*span)] for span in self.spans]
        self.leading_space, self.ending = text[:begin], text[end:]
        body = apply_edits(text[:end], [Edit(begin, end, PART) for begin, end in self.spans])
        self.body = " ".join(normalize("NFC", body).split())
        self.breaks = _BREAK.findall(text.strip())
        words = (self.body[slice(*span)] for span in words_and_signs(self.body))
        self.cased_words = [word for word in words if word == PART or _WORD.search(word)]
        self.words = [word.lower() for word in self.cased_words]


class Endings:
    """The signs at both ends of a memory's targets, counted by the endings of their sources."""

    def __init__(self) -> None:
        self._signs = defaultdict[str, Counter[tuple[str, str]]](Counter)

    def add(self, source: Skeleton, target: str) -> None:
        """Counts the signs with which a target renders the ending of its source."""
        opening, _, ending = _split_signs(target)
        plain = _plain_ending(ending)
        if plain == _plain_ending(source.ending):
            self._signs[plain][opening, ending.rstrip()] += 1

    def with_ending(self, body: str, wanted: str) -> tuple[str, str]:
        """Returns a target, with an opening sign if needed, and the usual form of an ending."""
        _, body, _ = _split_signs(body)
        sign, space = wanted.strip(), wanted[len(wanted.rstrip()) :]
        usual = self._signs.get(_plain_ending(wanted)) if sign else None
        if usual:
            (opening, ending), _ = usual.most_common(1)[0]
            return opening + body, ending + space
        if sign in _WIDE and _WIDE_SCRIPT.search(body):
            return body, _WIDE[sign] + space
        return body, wanted


def adapted_target(stored: Skeleton, target: str, query: Skeleton, endings: Endings) -> str | None:
    """Returns the target of a stored source with the parts, case and ending of a query.

    Returns None if its parts or its line breaks do not fit.
    """
    if stored.text == query.text:
        return target
    own = Skeleton(target, stored.parts)
    parts = _adapted_parts(own, stored, query)
    if parts is None or query.breaks not in (stored.breaks, own.breaks):
        return None
    write = to_upper if _is_in_capitals(query.body) and not _is_in_capitals(stored.body) else str
    body = ""
    last = len(own.leading_space)
    for (begin, end), part in zip(own.spans, parts, strict=True):
        body += write(target[last:begin]) + part
        last = end
    body += write(target[last : len(target) - len(own.ending)])
    if query.body[:1].isupper() and stored.body[:1].islower() and own.body[:1].islower():
        body = to_upper(body[:1]) + body[1:]
    ending = own.ending
    if stored.ending != query.ending:
        body, ending = endings.with_ending(body, query.ending)
    return query.leading_space + body + ending


def _adapted_parts(own: Skeleton, stored: Skeleton, query: Skeleton) -> list[str] | None:
    """Returns the parts of a target in which the parts of a query replace those of its source.

    None: the target has other parts than both, or one may become any of several parts of the query.
    """
    if Counter(own.parts) == Counter(stored.parts) and len(own.parts) == len(query.parts):
        order = list(map(stored.parts.index, own.parts))
        values = [index for index in order if takes_next_value(query.parts[index])]
        # stored `3 of 3`, query `2 of 7`: which 3 becomes the 2?
        is_ambiguous = len({*zip(stored.parts, query.parts, strict=True)}) > len({*stored.parts})
        keeps_order = values == sorted(values)  # or else `%s` would stand for another value
        return [query.parts[n] for n in order] if keeps_order and not is_ambiguous else None
    is_in_query = not Counter(own.parts) - Counter(query.parts)
    # With the same words and other parts, the target lacks an unknown part of the query.
    lacks_part = stored.words == query.words and query.parts != stored.parts
    return own.parts if is_in_query and not lacks_part else None


def _is_in_capitals(text: str) -> bool:
    return text.isupper() and sum(map(str.isupper, text)) > 1


def _plain_ending(ending: str) -> str:
    """Returns the English form of the signs at an end."""
    return normalize("NFKC", ending).replace("\u3002", ".").strip()


def _split_signs(text: str) -> tuple[str, str, str]:
    """Returns the sign of Spanish before a question or a call, the body, and the ending."""
    body = text[: _ENDING.search(text).start()]
    rest = body.lstrip("\u00bf\u00a1")
    return body[: len(body) - len(rest)], rest, text[len(body) :]
