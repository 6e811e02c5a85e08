"""Aligns the words of an output with the words of its source.

A word that both texts have is known. Attention is noisy (an article points at its noun), so the
other words get the cheapest sequence of source words (Viterbi).
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, pairwise

import numpy as np
import regex

from vanilla_transformer.text.edits import Span, SpanPair, inner_positions, stripped
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import word_borders

_PUNCTUATION = regex.compile(r"[\p{P}\s]*")
_REACH = 12
"""Words on each side of a linked one that are considered; this bounds the time of long texts."""
# Two costs beside that of a word without a link, which is 1. Chosen with
# scripts/experiments/markup_places.py: with these costs it places most tags of English program
# strings rightly in German.
_FAR = 0.1
"""Cost of each word between a link and the word that is chosen for it."""
_JUMP = 0.7
"""Cost of a step that is not to the next word."""


class AlignedWords:
    """The units of an output (words, punctuation, kept parts) and the words of its source.

    Args:
        others: Further spans of the source that may stand in both texts.

    Attributes:
        units: The span of each unit, in order.
        unit_begins, unit_ends: The begin and the end of each unit.
        texts: The text of each unit.
        is_word: Whether each unit is a word or a kept part, and no punctuation.
        word_begins, word_ends: The begin and the end of each word of the source.
        source_words: For each unit that is a word, the index of its source word.
        is_known: Whether each unit is a word that both texts have.
        may_count: Whether each unit is known, or a word whose source word has no known unit.
    """

    def __init__(self, source: str, output: str, links: TokenLinks, others: Iterable[Span]) -> None:
        units = [*_units(output, {*kept_spans(output)}, links.in_output)]
        self.units = [span for span, _ in units]
        self.unit_begins = [begin for begin, _ in self.units]
        self.unit_ends = [end for _, end in self.units]
        self.texts = [output[slice(*span)] for span in self.units]
        self.is_word = np.array([is_word for _, is_word in units], bool)
        kept = kept_spans(source)
        words = [span for span, is_word in _units(source, kept, links.in_source) if is_word]
        self.word_begins = [begin for begin, _ in words]
        self.word_ends = [end for _, end in words]
        same = [
            *self._standing_once(source, output, [*words, *others]),
            *Copies.find(source, kept, output).pairs,
        ]
        known = {unit: word for pair in same for unit, word in self._known_words(*pair)}
        linked = self._linked_words(source, links) | {unit: [known[unit]] for unit in known}
        self.source_words = np.zeros(len(self.units), int)
        if words:
            self.source_words[[*linked]] = _best_sequence(linked, len(words), known)
        self.is_known = np.isin(range(len(self.units)), [*known])
        is_taken = np.isin(self.source_words, [*known.values()])
        self.may_count = self.is_known | (self.is_word & ~is_taken)

    def units_within(self, span: Span) -> slice:
        """Returns the units that lie within a span of the output."""
        return slice(bisect_left(self.unit_begins, span[0]), bisect_right(self.unit_ends, span[1]))

    def units_touching(self, span: Span) -> slice:
        """Returns the units that lie at least in part within a span of the output."""
        return slice(bisect_right(self.unit_ends, span[0]), bisect_left(self.unit_begins, span[1]))

    def _standing_once(self, source: str, output: str, spans: Iterable[Span]) -> Iterator[SpanPair]:
        """Yields the spans of texts that stand once in the source and once in the output."""
        for span in spans:
            text = source[slice(*span)]
            begin = output.find(text)
            end = begin + len(text)
            is_once = all(side.find(text) == side.rfind(text) for side in (source, output))
            if is_once and begin in self.unit_begins and end in self.unit_ends:
                yield span, (begin, end)

    def _known_words(self, in_source: Span, in_output: Span) -> Iterator[tuple[int, int]]:
        """Yields the units of a part that both texts have, with their source words."""
        begin, end = (bisect_left(self.unit_begins, position) for position in in_output)
        shift = in_source[0] - in_output[0]
        for unit in range(begin, end):
            word = bisect_right(self.word_ends, self.unit_begins[unit] + shift)
            if self.is_word[unit] and word < bisect_left(self.word_begins, in_source[1]):
                yield unit, word

    def _linked_words(self, source: str, links: TokenLinks) -> dict[int, list[int]]:
        """Returns the source words that each word of the output is linked with."""
        linked: dict[int, list[int]] = {int(unit): [] for unit in np.flatnonzero(self.is_word)}
        for span, index in links.pairs():
            begin, end = stripped(source, links.in_source[index])
            if not _PUNCTUATION.fullmatch(source[begin:end]):
                word = bisect_right(self.word_begins, begin) - 1
                for unit in range(len(self.units))[self.units_touching(span)]:
                    if self.is_word[unit]:
                        linked[unit].append(word)
        return linked


def _units(
    text: str, kept: Collection[Span], tokens: Collection[Span]
) -> Iterator[tuple[Span, bool]]:
    """Yields the units of a text: words, kept parts (True) and punctuation (False)."""
    inside = inner_positions(kept)
    borders = {*chain(*kept), *word_borders(text, {*chain(*tokens)})} - inside
    for span in pairwise(sorted(borders)):
        if not text[slice(*span)].isspace():
            yield span, span in kept or not _PUNCTUATION.fullmatch(text[slice(*span)])


def _best_sequence(linked: dict[int, list[int]], count: int, known: Collection[int]) -> list[int]:
    """Chooses a source word for each word of the output, by the algorithm of Viterbi.

    A source word that is not linked has a cost, and so has a step that is not to the next word.

    Args:
        linked: The source words that each word of the output is linked with.
        count: Number of source words.
        known: The units whose source words are certain.
    """
    center = -1
    states = np.array([center])
    totals = np.zeros(1)
    steps = []
    for unit, words in linked.items():
        center = min(Counter(words).most_common(1)[0][0] if words else center + 1, count - 1)
        reach = 0 if unit in known else _REACH
        before, states = states, np.arange(max(center - reach, 0), min(center + reach + 1, count))
        costs = np.zeros(len(states))
        if words:
            costs = (states != center) + _FAR * abs(states - center)
        jumps = states[:, None] != before + 1  # (states, before)
        of_steps = totals + _JUMP * jumps
        steps.append((states, of_steps.argmin(1)))
        totals = costs + of_steps.min(1)
    chosen = []
    state = int(totals.argmin())
    for states, origins in reversed(steps):
        chosen.append(int(states[state]))
        state = int(origins[state])
    return chosen[::-1]
