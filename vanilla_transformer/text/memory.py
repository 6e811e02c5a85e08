"""A memory of translations: pairs of texts, found by sources that are equal or similar.

A translation of an equal text counts as a person's decision: it is called exact. The texts are
equal to the letter, but for white space at both ends and the names of placeholders. All else is a
proposal: the translation of the most similar text, which gets the placeholders, numbers, case and
signs at the end of the text. `word_index` tells the similarity.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random
from threading import Lock
from typing import NamedTuple
from unicodedata import normalize

import regex

from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN
from vanilla_transformer.text.edits import Edit, Span, apply_edits
from vanilla_transformer.text.languages import is_spaced_script_at
from vanilla_transformer.text.patterns import find_patterns
from vanilla_transformer.text.skeletons import PART, Endings, Skeleton, adapted_target
from vanilla_transformer.text.word_index import WordIndex

LEAST_SIMILARITY = 0.6
"""Smallest similarity at which a stored translation is proposed in place of a model's.

From there on copying it has more BLEU than a model that does not read it (docs/better.md).
"""
LEAST_READ = 0.4
"""Smallest similarity at which a model reads a stored translation, and learns to read it.

From 0.4 to 0.6 a model has 0.7 to 1.4 BLEU more with it than without it (the same table).
"""
_LETTER = regex.compile(r"\p{L}")
_NAME = regex.compile(r"(?:[%$#]?[({<]+\s*\$?|\$)([\w.\[\]]+)")  # and a placeholder before it
_MOST_TRIED = 16
"""Similar texts of which one may fit: if any does, one of the first eight does."""
_LOCK = Lock()  # of all memories: one of its own would keep a memory from being pickled


class Pair(NamedTuple):
    """A text and its translation.

    Attributes:
        context: The name that tells it from equal texts (`msgctxt`). "": none. None: unknown.
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
        target: Its translation, adapted to the text.
        similarity: From 0 to 1.
        is_exact: Whether the sources are equal, but for the names of placeholders.
    """

    source: str
    target: str
    similarity: float
    is_exact: bool = False


class Memory:
    """The pairs of one direction. Several threads may add pairs."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._pairs: list[Pair] = []
        # In arrays: a million pairs take about 310 bytes each besides texts, with their words.
        self._last: dict[int, int] = {}  # by the hash of a nameless text: the last pair of it
        self._former = array("q")  # the pair before each with the same hash; -1: there is none
        self._words, self._endings = WordIndex(), Endings()
        for pair in pairs:
            self.add(pair)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pair: Pair) -> None:
        """Adds a pair that has a translation."""
        if not (pair.source.strip() and pair.target.strip()):
            return
        stored = Skeleton(pair.source)
        # Numbers are not similar to each other; a text that stays as it is translates no other one.
        is_like_others = _LETTER.search(stored.body) and pair.source != pair.target
        with _LOCK:
            hashed, index = hash(_nameless(pair.source)), len(self)
            self._pairs.append(pair)
            self._former.append(self._last.get(hashed, -1))
            self._last[hashed] = index
            self._words.add(stored.words if is_like_others else [])
            if is_like_others:
                self._endings.add(stored, pair.target)

    def exact(
        self,
        text: str,
        context: str | None = None,
        before: str | None = None,
        after: str | None = None,
    ) -> Suggestion | None:
        """Returns the translation of an equal text.

        Of several, the first of these rules decides: the same context, the same names of
        placeholders, the last correction, an equal neighbour, the same end of the file (of a text
        that has a neighbour), the most frequent translation, the last one.

        Args:
            context: Like a pair's. Pairs with another one do not count.
            before: The text before this one in its file; "": it is the first. None: it is unknown.
            after: The text after it; "": it is the last. None: it is unknown.
        """
        nameless = _nameless(text)
        found: list[tuple[tuple[int, ...], Suggestion]] = []
        for index in self._indices(hash(nameless)):
            pair = self._pairs[index]
            is_possible = None in (context, pair.context) or pair.context == context
            if pair.is_doubtful or not is_possible or _nameless(pair.source) != nameless:
                continue
            if (target := _renamed(pair, text)) is not None:
                rank = self._rank(index, text, context, before, after)
                found.append((rank, Suggestion(pair.source, target, 1.0, is_exact=True)))
        best = max((rank for rank, _ in found), default=None)
        # Later pairs come first, and `most_common` keeps this order among equally frequent ones.
        frequent = Counter(suggestion for rank, suggestion in found if rank == best).most_common(1)
        return frequent[0][0] if frequent else None

    def _rank(
        self, index: int, text: str, context: str | None, before: str | None, after: str | None
    ) -> tuple[int, ...]:
        """Returns the rank of a pair by the first rules of `exact`."""
        pair = self._pairs[index]
        above = self._pairs[index - 1].source if index else ""
        below = self._pairs[index + 1].source if index + 1 < len(self) else ""
        equal = [own for own, given in ((above, before), (below, after)) if own == given]
        return (
            (pair.context or "") == (context or ""),
            normalized(pair.source) == normalized(text),  # the same names of placeholders
            index if pair.is_correction else -1,
            any(equal),  # a neighbour that is a text
            bool(equal and (before or after)),  # or an end of the file
        )

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
        query = Skeleton(text)
        found = self._find(query, least)
        usable = [row for row in found if row[1] < 1] if excludes_equal_words else found
        for index, similarity in usable[:_MOST_TRIED]:
            pair = self._pairs[index]
            target = adapted_target(Skeleton(pair.source), pair.target, query, self._endings)
            if target is not None:
                return Suggestion(pair.source, target, similarity)
        return None

    def has_similar(self, text: str, least: float) -> bool:
        """Returns whether the memory has a text of at least a similarity."""
        return bool(self._find(Skeleton(text), least))

    def _find(self, query: Skeleton, least: float) -> list[tuple[int, float]]:
        """Returns the indices and similarities of similar pairs, the most similar first."""
        with _LOCK:
            return self._words.find(query.words, least)

    def draw(self, chance: Random) -> Suggestion:
        """Returns a random pair as a suggestion of similarity 0."""
        pair = self._pairs[chance.randrange(len(self))]
        return Suggestion(pair.source, pair.target, 0.0)


def normalized(text: str) -> str:
    """Returns the form by which equal texts are known: without white space at the ends."""
    return normalize("NFC", text.strip())


def _names(text: str) -> list[Span]:
    """Returns the spans of the names of the placeholders of a text."""
    found = find_patterns(text, kind="placeholder") if _NAME.search(text) else []
    return [match.span(1) for span, _ in found if (match := _NAME.match(text, *span))]


def _nameless(text: str) -> str:
    """Returns a text without the names of its placeholders."""
    return normalized(apply_edits(text, [Edit(*span, PART) for span in _names(text)]))


def _renamed(pair: Pair, text: str) -> str | None:
    """Returns a translation with the names and the white space of a text equal to its source.

    Returns None if a name differs that the source and the translation do not have once each.
    """
    if pair.source == text:
        return pair.target
    target = pair.target
    sides = (pair.source, target, text)
    old, in_target, new = ([side[slice(*span)] for span in _names(side)] for side in sides)
    if old != new:
        names = dict(zip(old, new, strict=True))
        if len(names) < len(old) or sorted(in_target) != sorted(old):
            return None
        edits = [Edit(*span, names[target[slice(*span)]]) for span in _names(target)]
        target = apply_edits(target, edits)
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return f"{text[:begin]}{target.strip()}{text[end:]}"


def memory_suffix(text: str, similar: Suggestion) -> str:
    """Returns the suffix by which a model reads the translation of a similar text.

    It has the translation and, for each difference, the words of the similar text and of this one.
    """
    stored, query = Skeleton(similar.source), Skeleton(text)
    shown = [similar.target.strip()]
    matcher = SequenceMatcher(None, stored.words, query.words, autojunk=False)
    for kind, *bounds in matcher.get_opcodes():
        if kind != "equal":
            for side, begin, end in zip((stored, query), bounds[::2], bounds[1::2], strict=True):
                shown.append(" ".join(word for word in side.cased_words[begin:end] if word != PART))
    return "".join(
        f"{MEMORY_TOKEN}{' ' if is_spaced_script_at(words, 0) else ''}{words}" for words in shown
    )
