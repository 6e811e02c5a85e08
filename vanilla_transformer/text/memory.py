"""A memory of translations: pairs of texts, found by sources that are equal or similar.

A translation of an equal text counts as a person's decision: it is called exact. The texts are
equal to the letter, but for white space at both ends and the names of placeholders. All else is a
proposal: the translation of the most similar text, which gets the placeholders, numbers, case and
signs at the end of the text.
The similarity of texts is 1 less Levenshtein's distance in words, as a share of the longer one.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from random import Random
from threading import Lock
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import regex
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extract

from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN
from vanilla_transformer.text.capitals import to_upper
from vanilla_transformer.text.edits import Edit, Span, apply_edits, meets
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.languages import is_spaced_script_at
from vanilla_transformer.text.patterns import find_patterns
from vanilla_transformer.text.printf import takes_next_value
from vanilla_transformer.text.words import words_and_signs

LEAST_SIMILARITY = 0.6
"""Smallest similarity at which a stored translation is proposed in place of a model's.

From there on copying it has more BLEU than a model that does not read it (docs/better.md).
"""
LEAST_READ = 0.4
"""Smallest similarity at which a model reads a stored translation, and learns to read it.

From 0.4 to 0.6 a model has 0.7 to 1.4 BLEU more with it than without it (the same table).
"""
_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:]\p{Nd}+)*")
_ENDING = regex.compile(r"[\s.:;!?\u2026\u3002\uff0e\uff1a\uff01\uff1f\u061f\u06d4\u0964]*\Z")
_WIDE = {".": "\u3002", ":": "\uff1a", "!": "\uff01", "?": "\uff1f"}
_WIDE_SCRIPT = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]\Z")
_BREAK = regex.compile(r"[\n\t]")
_LETTER = regex.compile(r"\p{L}")
_NAME = regex.compile(r"(?:[%$#]?[({<]+\s*\$?|\$)([\w.\[\]]+)")  # and a placeholder before it
_WORD = regex.compile(r"[\p{L}\p{N}\p{M}]")
_PART = "\0"
# Among 146,000 pairs of programs, 142 of 600 other texts have a pair of similarity 0.4 or more. The
# 512 pairs that share the most words with a text lack its most similar pair for 2 of them (32 pairs
# for 10; all pairs take 2.9 ms a text in place of 1.5). If a translation fits a text, one of the
# first eight does; twice as many are tried.
_MOST_COMPARED = 512
_MOST_TRIED = 16
_LOCK = Lock()  # of all memories: it is held for some milliseconds at most


class Pair(NamedTuple):
    """A text and its translation.

    Attributes:
        context: A name that tells it from equal texts, such as `msgctxt`; "": it has none. None:
            it is unknown.
        is_doubtful: Whether the translation is only a proposal, for an equal text too.
        is_correction: Whether it counts before all others but later corrections.
    """

    source: str
    target: str
    context: str | None = None
    is_doubtful: bool = False
    is_correction: bool = False


@dataclass(frozen=True)
class Suggestion:
    """The translation that a memory has for a text.

    Attributes:
        source: The stored source.
        target: Its translation, with the placeholders of the text; of a similar text also with its
            numbers, case and ending.
        similarity: From 0 to 1.
        is_exact: Whether the sources are equal, but for the names of placeholders.
    """

    source: str
    target: str
    similarity: float
    is_exact: bool = False


class _Skeleton:
    """A text as texts are compared, and its parts that do not count.

    Attributes:
        text: The text.
        leading_space: The white space before it.
        spans: The spans of its placeholders, numbers and the like, in order.
        parts: The texts of these spans.
        ending: The signs and white space at its end.
        body: The rest, with a NUL for each part.
        written: The words of the body.
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
        body = apply_edits(text[:end], [Edit(begin, end, _PART) for begin, end in self.spans])
        self.body = " ".join(normalize("NFC", body).split())
        self.breaks = _BREAK.findall(text.strip())
        words = (self.body[slice(*span)] for span in words_and_signs(self.body))
        self.written = [word for word in words if word == _PART or _WORD.search(word)]
        self.words = [word.lower() for word in self.written]


class Memory:
    """Pairs of one direction; later ones may be added, by several threads."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._pairs: list[Pair] = []
        # Numbers and bytes in arrays: a million pairs take about 310 bytes each besides texts.
        self._last: dict[int, int] = {}  # by the hash of a nameless text: the last pair of it
        self._former = array("q")  # the pair before each with the same hash; -1: there is none
        self._ids: dict[str, int] = {}
        self._pairs_of: list[array[int]] = []  # by the id of a word
        self._words = array("I")  # of all pairs, one after the other
        self._ends = array("Q", [0])
        # How targets write an ending of sources: their signs at both ends.
        self._signs = defaultdict[str, Counter[tuple[str, str]]](Counter)
        for pair in pairs:
            self.add(pair)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pair: Pair) -> None:
        """Adds a pair that has a translation."""
        if not (pair.source.strip() and pair.target.strip()):
            return
        stored = _Skeleton(pair.source)
        # No number is like another, and what stays in a text is no translation of a similar one.
        is_like_others = _LETTER.search(stored.body) and pair.source != pair.target
        with _LOCK:
            self._pairs.append(pair)
            opening, _, ending = _split_signs(pair.target)
            plain = _plain_ending(ending)
            if is_like_others and plain == _plain_ending(stored.ending):
                self._signs[plain][opening, ending.rstrip()] += 1
            hashed, index = hash(_nameless(pair.source)), len(self) - 1
            self._former.append(self._last.get(hashed, -1))
            self._last[hashed] = index
            words = stored.words if is_like_others else []
            ids = [self._ids.setdefault(word, len(self._ids)) for word in words]
            self._pairs_of += [array("I") for _ in range(len(self._ids) - len(self._pairs_of))]
            for word in set(ids):
                self._pairs_of[word].append(index)
            self._words.extend(ids)
            self._ends.append(len(self._words))

    def exact(
        self, text: str, context: str | None = None, before: str = "", behind: str = ""
    ) -> Suggestion | None:
        """Returns the translation of an equal text.

        Of several, the first of these rules decides: the same context, the same names of
        placeholders, the last correction, the same neighbours, the most frequent translation, the
        last one.

        Args:
            context: Like a pair's. Pairs with another one do not count.
            before: The text before this one in its file.
            behind: The text behind it.
        """
        nameless = _nameless(text)
        found: list[tuple[tuple[int, ...], Suggestion]] = []
        for index in self._indices(hash(nameless)):
            pair = self._pairs[index]
            is_possible = None in (context, pair.context) or pair.context == context
            if pair.is_doubtful or not is_possible or _nameless(pair.source) != nameless:
                continue
            if (target := _renamed(pair, text)) is not None:
                above, below = self._pairs[index - 1 : index], self._pairs[index + 1 : index + 2]
                rank = (
                    (pair.context or "") == (context or ""),
                    _letters(pair.source) == _letters(text),
                    index if pair.is_correction else -1,
                    [near.source for near in above] == [before]
                    or [near.source for near in below] == [behind],
                )
                found.append((rank, Suggestion(pair.source, target, 1.0, is_exact=True)))
        best = max((rank for rank, _ in found), default=None)
        # Later pairs come first, and `most_common` keeps this order among equally frequent ones.
        frequent = Counter(suggestion for rank, suggestion in found if rank == best).most_common(1)
        return frequent[0][0] if frequent else None

    def _indices(self, hashed: int) -> Iterator[int]:
        """Yields the indices of the pairs of one hash, the last one first."""
        index = self._last.get(hashed, -1)
        while index >= 0:
            yield index
            index = self._former[index]

    def similar(
        self, text: str, least: float, excludes_equal_words: bool = False
    ) -> Suggestion | None:
        """Returns the translation of the most similar text; of equally similar ones, the last.

        Args:
            least: Smallest similarity.
            excludes_equal_words: Whether texts with the same words do not count.
        """
        query = _Skeleton(text)
        with _LOCK:
            candidates = self._candidates(query, least)
        usable = [row for row in candidates if row[1] < 1] if excludes_equal_words else candidates
        for index, similarity in usable[:_MOST_TRIED]:
            pair = self._pairs[index]
            target = self._adapted_target(_Skeleton(pair.source), pair.target, query)
            if target is not None:
                return Suggestion(pair.source, target, similarity)
        return None

    def has_similar(self, text: str, least: float) -> bool:
        """Returns whether a text of a smallest similarity is stored."""
        query = _Skeleton(text)
        with _LOCK:
            return bool(self._candidates(query, least))

    def draw(self, chance: Random) -> Suggestion:
        """Returns any pair, drawn at random, as a suggestion of similarity 0."""
        pair = self._pairs[chance.randrange(len(self))]
        return Suggestion(pair.source, pair.target, 0.0)

    def _adapted_target(self, stored: _Skeleton, target: str, query: _Skeleton) -> str | None:
        """Returns the target of a stored source with the parts, case and ending of a query.

        None: its parts do not fit, or its line breaks do not.
        """
        if stored.text == query.text:
            return target
        own = _Skeleton(target, stored.parts)
        parts = _adapted_parts(own, stored, query)
        if parts is None or query.breaks not in (stored.breaks, own.breaks):
            return None
        is_upper = _is_in_capitals(query.body) and not _is_in_capitals(stored.body)
        case = to_upper if is_upper else str
        body, last = "", len(own.leading_space)
        for (begin, end), part in zip(own.spans, parts, strict=True):
            body += case(target[last:begin]) + part
            last = end
        body += case(target[last : len(target) - len(own.ending)])
        if query.body[:1].isupper() and stored.body[:1].islower() and own.body[:1].islower():
            body = to_upper(body[:1]) + body[1:]
        ending = own.ending
        if stored.ending != query.ending:
            body, ending = self._with_ending(body, query.ending)
        return query.leading_space + body + ending

    def _with_ending(self, body: str, wanted: str) -> tuple[str, str]:
        """Returns a target and its ending, as this memory writes such an ending."""
        _, body, _ = _split_signs(body)
        sign, space = wanted.strip(), wanted[len(wanted.rstrip()) :]
        usual = self._signs.get(_plain_ending(wanted)) if sign else None
        if usual:
            (opening, ending), _ = usual.most_common(1)[0]
            return opening + body, ending + space
        if sign in _WIDE and _WIDE_SCRIPT.search(body):
            return body, _WIDE[sign] + space
        return body, wanted

    def _candidates(self, query: _Skeleton, least: float) -> list[tuple[int, float]]:
        """Finds the indices and similarities of pairs from a smallest one on, the highest first."""
        size = len(query.words)
        ids = [self._ids.get(word, len(self._ids)) for word in query.words]
        shared = np.zeros(len(self), np.uint32)
        counts = Counter(ids)
        for word, count in counts.items():
            if word < len(self._pairs_of):
                shared[np.frombuffer(self._pairs_of[word], np.uint32)] += count
        # A bound of the similarity that needs no order of words leaves few pairs to compare.
        indices = np.flatnonzero(shared >= max(least * size, 1))
        if not len(indices):
            return []
        ends = np.frombuffer(self._ends, np.uint64).astype(np.int64, copy=False)
        sizes = ends[indices + 1] - ends[indices]
        most = np.minimum(shared[indices], sizes) / np.maximum(sizes, size)
        order = np.lexsort((-indices, -most))[:_MOST_COMPARED]  # later pairs first among equal ones
        indices = indices[order][most[order] >= least]
        words = np.frombuffer(self._words, np.uint32)
        rows = [np.array(ids, np.uint32), *(words[ends[n] : ends[n + 1]] for n in indices)]
        # Words as characters, numbered anew: rapidfuzz compares texts fastest.
        _, numbers = np.unique(np.concatenate(rows), return_inverse=True)
        characters = iter(numbers.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass"))
        text, *texts = ("".join(islice(characters, len(row))) for row in rows)
        found = extract(
            text,
            dict(zip(indices.tolist(), texts, strict=True)),
            scorer=Levenshtein.normalized_similarity,
            processor=None,
            limit=None,
            score_cutoff=least - 1e-5,  # rapidfuzz leaves out a score that is equal to it
        )
        return sorted(
            ((index, similarity) for _, similarity, index in found),
            key=lambda row: (-row[1], -row[0]),
        )


def _adapted_parts(own: _Skeleton, stored: _Skeleton, query: _Skeleton) -> list[str] | None:
    """Returns the parts of a target, with those of a query in the place of those of its source.

    None: it has other parts than its source, or parts that the query lacks, or it is unknown which
    of its parts stands for which of the query.
    """
    if Counter(own.parts) == Counter(stored.parts) and len(own.parts) == len(query.parts):
        if len({*zip(stored.parts, query.parts, strict=True)}) > len({*stored.parts}):
            return None  # `2 of 7` for `3 of 3`
        order = list(map(stored.parts.index, own.parts))
        in_order = [index for index in order if takes_next_value(query.parts[index])]
        if in_order != sorted(in_order):
            return None  # `%s` would stand for another value
        return [query.parts[index] for index in order]
    if Counter(own.parts) - Counter(query.parts):
        return None
    if stored.words == query.words and query.parts != stored.parts:
        return None  # it lacks a part, and it is unknown which one
    return own.parts


def _letters(text: str) -> str:
    """Returns the letters by which equal texts are known: white space at the ends is left out."""
    return normalize("NFC", text.strip())


def _names(text: str) -> list[Span]:
    """Returns the spans of the names of the placeholders of a text."""
    found = find_patterns(text, kind="placeholder") if _NAME.search(text) else []
    return [match.span(1) for span, _ in found if (match := _NAME.match(text, *span))]


def _nameless(text: str) -> str:
    """Returns a text without the names of its placeholders."""
    return _letters(apply_edits(text, [Edit(*span, _PART) for span in _names(text)]))


def _renamed(pair: Pair, text: str) -> str | None:
    """Returns a translation with the names and the white space of a text equal to its source.

    None: names differ, and one does not stand once in the source and once in the translation.
    """
    if pair.source == text:
        return pair.target
    target, sides = pair.target, (pair.source, pair.target, text)
    old, own, new = ([side[slice(*span)] for span in _names(side)] for side in sides)
    if old != new:
        names = dict(zip(old, new, strict=True))
        if len(names) < len(old) or sorted(own) != sorted(old):
            return None
        edits = [Edit(*span, names[target[slice(*span)]]) for span in _names(target)]
        target = apply_edits(target, edits)
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return f"{text[:begin]}{target.strip()}{text[end:]}"


def _is_in_capitals(text: str) -> bool:
    return text.isupper() and sum(map(str.isupper, text)) > 1


def _plain_ending(ending: str) -> str:
    """Returns the signs at an end as English writes them."""
    return normalize("NFKC", ending).replace("\u3002", ".").strip()


def _split_signs(text: str) -> tuple[str, str, str]:
    """Returns the sign of Spanish before a question or a call, the body, and the ending."""
    body = text[: _ENDING.search(text).start()]
    rest = body.lstrip("\u00bf\u00a1")
    return body[: len(body) - len(rest)], rest, text[len(body) :]


def memory_suffix(text: str, similar: Suggestion) -> str:
    """Returns the suffix of a text with which a model reads the translation of a similar text.

    It ends with the words in which both texts differ: at each difference the words of the similar
    text, then of the text.
    """
    stored, query = sides = _Skeleton(similar.source), _Skeleton(text)
    shown = [similar.target.strip()]
    matcher = SequenceMatcher(None, stored.words, query.words, autojunk=False)
    for kind, *bounds in matcher.get_opcodes():
        if kind != "equal":
            for side, begin, end in zip(sides, bounds[::2], bounds[1::2], strict=True):
                words = [word for word in side.written[begin:end] if word != _PART]
                shown.append(" ".join(words))
    return "".join(
        f"{MEMORY_TOKEN}{' ' if is_spaced_script_at(words, 0) else ''}{words}" for words in shown
    )
