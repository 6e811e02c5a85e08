"""Inline markup: tags leave a text for its translation, and return where the alignment puts them.

A pair of tags goes around what is linked with the text that it encloses, an empty tag between what
is linked with the text before it and behind it. Pairs stay nested, and no tag breaks up a word.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import regex
from numpy.typing import NDArray

from vanilla_transformer.documents.kept import Span, TokenLinks, kept_spans, stripped
from vanilla_transformer.languages import is_spaced_script_at, word_borders

_SIGNS = regex.compile(r"[\p{P}\s]*")
_CLOSING = regex.compile(r"[\s\p{Pe}\p{Pf}\p{Po}]")
_SPACED_SIGNS = frozenset("!?:;\u00ab\u00bb")  # French puts a space between these and a word
# The four costs of `_in_sequence` were found on English and German captions of Multi30k, where
# scripts/experiments/markup_places.py has 86.3% of the tags at the right place (docs/terms.md).
# No measurement of the other numbers is on record.
_REACH = 12
"""Words on each side of a linked one that may be meant, which bounds the time of long sentences."""
_ALONE = 2.0
"""Cost of leaving the link of a word that no other word is linked with; 1 for other words."""
_FAR = 0.1
"""What each word between a link and what is taken for it costs besides."""
_JUMP, _LONGEST = 0.7, 3
"""Cost of each word that a step leaves out, and of how many it counts at most."""
_NEAR = 16
"""Tokens on each side of an empty tag that decide its place, which bounds the time, too."""
_BESIDE = 1.0
"""What a place beside the word that a tag goes with counts: as much as the nearest word's order."""


Kind = Literal["begin", "end", "empty"]


@dataclass(frozen=True)
class Tag:
    """A piece of markup in a text.

    Attributes:
        position: Number of the text's characters before it.
        text: The markup, as it is written.
        kind: Each "begin" has an "end".
        name: What a tag that opens and the one that closes it have in common.
        span: Where the file has it, if there may be other texts in it.
        is_spaced: Whether the source has white space before it, and behind it.
    """

    position: int
    text: str
    kind: Kind = "empty"
    name: str = ""
    span: Span | None = None
    is_spaced: tuple[bool, bool] = field(default=(False, False), kw_only=True)


@dataclass(frozen=True)
class MarkedText:
    """A text and its tags, in their order. Pairs are nested.

    Attributes:
        is_doubtful: Whether a person should check it, which PO and XLIFF can say.
    """

    text: str
    tags: tuple[Tag, ...] = ()
    is_doubtful: bool = False

    def parts(self) -> Iterator[str | Tag]:
        """Yields what is between the tags, and the tags, in order."""
        position = 0
        for tag in self.tags:
            yield self.text[position : tag.position]
            yield tag
            position = tag.position
        yield self.text[position:]

    def with_spaces(self) -> "MarkedText":
        """Returns a text with the spaces that its source has between tags and words."""
        text, tags, needs_space = "", list[Tag](), False
        for part in self.parts():
            if isinstance(part, str):
                is_letter = part[:1].isalnum() and is_spaced_script_at(part, 0)
                text += f" {part}" if needs_space and is_letter else part
                needs_space = needs_space and not part
                continue
            if part.kind == "empty":
                is_letter = text[-1:].isalnum() and is_spaced_script_at(text, len(text) - 1)
                touches = bool(tags) and (tags[-1].kind, tags[-1].position) == ("empty", len(text))
                spaced = part.is_spaced[0] or (touches and tags[-1].is_spaced[1])
                spaced |= touches and tags[-1].text[-1:] == part.text[:1] == "`"
                text += " " if spaced and (is_letter or touches) else ""
                needs_space = part.is_spaced[1] and not part.text.endswith(" ")
            tags.append(replace(part, position=len(text)))
        return MarkedText(text, tuple(tags))

    def write(self, escape: Callable[[str], str] = str) -> str:
        """Returns the text with its tags.

        Args:
            escape: Writes text so that it is no markup.
        """
        return "".join(
            escape(part) if isinstance(part, str) else part.text for part in self.parts()
        )


def place_tags(marked: MarkedText, output: str, links: TokenLinks) -> MarkedText:
    """Puts the tags of a source into its output, each of them once.

    Args:
        links: Which parts of the source and the output belong together.
    """
    if not marked.tags:
        return MarkedText(output)
    root = _tree(marked)
    root.start, root.stop = stripped(output, (0, len(output)))
    _Placement(marked.text, output, links).place(root)
    tags = [replace(marked.tags[old], position=position) for old, position in _in_order(root)]
    return MarkedText(output, tuple(tags))


@dataclass
class _Node:
    """A pair of tags with what it encloses, or a row of tags that enclose no text.

    Attributes:
        first: The indices of its tags before its children.
        last: The indices of its tags behind them.
        begin, end: What it encloses in the source, without white space around it.
        start, stop: What it encloses in the output.
    """

    first: list[int]
    begin: int
    end: int = 0
    last: list[int] = field(default_factory=list)
    children: list["_Node"] = field(default_factory=list)
    start: int = 0
    stop: int = 0


def _tree(marked: MarkedText) -> _Node:
    """Makes a tree of the tags of a text; pairs around no text are as one empty tag."""
    begin, end = stripped(marked.text, (0, len(marked.text)))
    stack = [_Node([], begin, end)]
    for index, tag in enumerate(marked.tags):
        if tag.kind == "begin":
            stack.append(_Node([index], tag.position))
            continue
        inner = stack[-1]
        is_first = inner.first and not inner.children and inner.begin == tag.position
        if tag.kind == "empty" and is_first:  # it stays with the tag that opens
            inner.first.append(index)
            continue
        if tag.kind == "end":
            node = stack.pop()
            node.begin, node.end = stripped(marked.text, (node.begin, tag.position))
            node.last = [index]
            if node.begin == node.end:
                node = _Node(list(range(node.first[0], index + 1)), node.begin, node.begin)
        else:
            node = _Node([index], tag.position, tag.position)
        siblings = stack[-1].children
        if siblings and not node.last and not siblings[-1].last and siblings[-1].end == node.begin:
            siblings[-1].first += node.first
        else:
            siblings.append(node)
    return stack[0]


def _in_order(root: _Node) -> Iterator[tuple[int, int]]:
    """Yields the index of each tag and its position in the output, in the order there."""
    todo: list[_Node | tuple[list[int], int]] = [root]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            yield from ((index, item[1]) for index in item[0])
            continue
        yield from ((index, item.start) for index in item.first)
        todo.append((item.last, item.stop))
        todo += reversed(item.children)


def _in_sequence(linked: Sequence[Sequence[int]], count: int) -> list[int]:
    """Chooses a word of the source for each word of the output.

    Attention links an article with its noun, and now and then a word with one far away. The chosen
    words cost least: one that is not linked costs, and each step that is not to the next word.

    Args:
        linked: The words that each word of the output is linked with.
        count: Number of words of the source.
    """
    uses = Counter(word for words in linked for word in set(words))
    center, totals, steps = -1, np.zeros(1), []
    states = np.array([-1])
    for words in linked:
        center = min(Counter(words).most_common(1)[0][0] if words else center + 1, count - 1)
        before, states = states, np.arange(max(center - _REACH, 0), min(center + _REACH + 1, count))
        costs = np.zeros(len(states))
        if words:
            unlinked = _ALONE if uses[center] == 1 else 1.0
            costs = np.where(states == center, 0.0, unlinked + _FAR * abs(states - center))
        jumps = np.minimum(abs(states[:, None] - before - 1), _LONGEST)  # (states, before)
        of_steps = totals + _JUMP * jumps
        steps.append((states, of_steps.argmin(1)))
        totals = costs + of_steps.min(1)
    chosen, state = [], int(totals.argmin())
    for states, origins in reversed(steps):
        chosen.append(int(states[state]))
        state = int(origins[state])
    return chosen[::-1]


class _Placement:
    """The places of tags in one output.

    Its units are words, signs and kept spans: a tag goes into a word only where the source has the
    same word with this tag in it.
    """

    def __init__(self, source: str, output: str, links: TokenLinks) -> None:
        self.source, self.output = source, output
        self.source_words = sorted({0, *word_borders(source)})
        kept = set(kept_spans(output))
        inside = {place for begin, end in kept for place in range(begin + 1, end)}
        borders = {edge for span in kept for edge in span}
        borders |= {*word_borders(output, {edge for span in links.targets for edge in span})}
        spans = pairwise(sorted(borders - inside))
        self.units = [span for span in spans if not output[slice(*span)].isspace()]
        self.texts = [output[slice(*span)] for span in self.units]
        self.starts = [start for start, _ in self.units]
        self.stops = [stop for _, stop in self.units]
        self.units_of: dict[str, list[int]] = {}
        for unit, span in enumerate(self.units):
            if span not in kept:
                self.units_of.setdefault(self.texts[unit], []).append(unit)
        self.is_word = np.array([not _SIGNS.fullmatch(text) for text in self.texts], bool)
        self.copies: dict[int, int] = {}  # the unit that is the word at a place of the source
        rows = [  # for each link of a unit: its number, and the token of the source
            (unit, begin, end)
            for (start, stop), number in links.pairs()
            for begin, end in [stripped(source, links.sources[number])]
            if begin < end
            for unit in range(bisect_right(self.stops, start), bisect_left(self.starts, stop))
        ]
        edges = {edge for span in links.sources for edge in span}
        spans = pairwise(word_borders(source, edges))
        words = [span for span in spans if not _SIGNS.fullmatch(source[slice(*span)])]
        begins = [begin for begin, _ in words]
        linked: dict[int, list[int]] = {int(unit): [] for unit in np.flatnonzero(self.is_word)}
        for unit, begin, end in rows:
            if self.is_word[unit] and not _SIGNS.fullmatch(source[begin:end]):
                linked[unit].append(bisect_right(begins, begin) - 1)
        chosen = _in_sequence(list(linked.values()), len(words)) if words else []
        of_words = [(unit, *words[word]) for unit, word in zip(linked, chosen, strict=False)]
        self.of_words = np.array(of_words, int).reshape(-1, 3)  # (units that are words, 3)
        self.of_words = self.of_words[np.argsort(self.of_words[:, 1], kind="stable")]
        of_signs = [row for row in rows if not self.is_word[row[0]]]
        self.of_signs = np.array(of_signs, int).reshape(-1, 3)  # (links of signs, 3)
        self.begins, self.ranks = np.unique(self.of_words[:, 1], return_inverse=True)

    def place(self, root: _Node) -> None:
        """Finds the places of all nodes below one that has its place."""
        todo = [root]
        while todo:
            parent = todo.pop()
            is_free = np.zeros(len(self.units), bool)
            low = bisect_left(self.starts, parent.start)
            is_free[low : bisect_right(self.stops, parent.stop)] = True
            taken: list[Span] = []
            for node in parent.children:
                if node.last and (span := self._span(node, parent, is_free)):
                    node.start, node.stop = span
                    insort(taken, span)
                    first = bisect_right(self.stops, node.start)
                    is_free[first : bisect_left(self.starts, node.stop)] = False
            for node in parent.children:
                if not node.stop:
                    copy = None if node.last else self._copy(node, is_free)
                    place = copy[0] if copy else self._gap(node.begin, parent)
                    before = bisect_left(taken, (place, 0)) - 1
                    if before >= 0 and place < taken[before][1]:
                        place = taken[before][1]
                    node.start = node.stop = place
            todo += [node for node in parent.children if node.last]
            parent.children.sort(key=lambda node: (node.start, node.stop))

    def _span(self, node: _Node, parent: _Node, is_free: NDArray[np.bool_]) -> Span | None:
        """Returns the part of the output that a pair encloses; None: nothing is linked with it."""
        if (node.begin, node.end) == (parent.begin, parent.end):
            return (parent.start, parent.stop) if parent.start < parent.stop else None
        if (copy := self._copy(node, is_free)) is not None:
            return copy if parent.start <= copy[0] and copy[1] <= parent.stop else None
        shares, is_counted = self._shares(node, parent)
        shares = np.where(is_free, shares, 0.0)
        if not shares.any():
            return None
        gains = np.where(is_counted, 2 * shares - 1, 0.0)
        gains[~is_free] = -len(gains)
        # The part with the largest sum: the sum up to its end, less the smallest before it.
        sums = np.concatenate([[0.0], np.cumsum(gains)])
        ranges = sums[1:] - np.minimum.accumulate(sums)[:-1]
        last = len(gains) - 1 - int(np.argmax(ranges[::-1]))
        first = int(np.argmin(sums[: last + 1]))
        positive = first + np.flatnonzero(gains[first : last + 1] > 0)
        if not len(positive):  # no unit is linked with what it encloses alone
            positive = np.array([np.argmax(shares)])
        return self._with_signs(node, int(positive[0]), int(positive[-1]), is_free)

    def _copy(self, node: _Node, is_free: NDArray[np.bool_]) -> Span | None:
        """Returns where a part of a word of the source is in the same word of the output."""
        after = bisect_right(self.source_words, node.begin)
        begin = self.source_words[after - 1]
        end = self.source_words[after] if after < len(self.source_words) else begin
        if node.end > end or (node.begin, node.end) == (begin, end) or node.end == begin:
            return None
        if begin not in self.copies:
            same = self.units_of.get(self.source[begin:end], ())
            copy = next((unit for unit in same if is_free[unit]), None)
            if copy is None:
                return None
            self.copies[begin] = copy
        shift = self.starts[self.copies[begin]] - begin
        return node.begin + shift, node.end + shift

    def _shares(self, node: _Node, parent: _Node) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Returns which share of the links of each unit leads into a pair, and which units count.

        Signs count only for a pair around signs.
        """
        text, count = self.source[node.begin : node.end], len(self.units)
        is_of_signs = bool(_SIGNS.fullmatch(text))
        rest = self.source[parent.begin : node.begin] + self.source[node.end : parent.end]
        if not is_of_signs and _SIGNS.fullmatch(rest):
            return self.is_word.astype(float), self.is_word
        links = self.of_signs if is_of_signs else self.of_words
        overlap = np.minimum(links[:, 2], node.end) - np.maximum(links[:, 1], node.begin)
        weights = np.maximum(overlap, 0) / (links[:, 2] - links[:, 1])
        counts = np.bincount(links[:, 0], minlength=count)
        shares = np.bincount(links[:, 0], weights, count) / np.maximum(counts, 1)
        if is_of_signs:
            shares[[unit_text == text for unit_text in self.texts]] = 1
            return shares, np.ones(count, bool)
        return shares, counts > 0

    def _with_signs(self, node: _Node, first: int, last: int, is_free: NDArray[np.bool_]) -> Span:
        """Returns the span of units, with as many signs at its edges as the pair encloses there."""
        inside = self.source[node.begin : node.end]
        if not _SIGNS.fullmatch(inside):
            for _ in _SIGNS.match(inside)[0]:
                if first and is_free[first - 1] and self._is_sign_beside(first - 1, first - 1):
                    first -= 1
            for _ in _SIGNS.match(inside[::-1])[0]:
                if last + 1 < len(is_free) and is_free[last + 1]:
                    last += self._is_sign_beside(last + 1, last)
        return self.starts[first], self.stops[last]

    def _is_sign_beside(self, unit: int, before: int) -> bool:
        """Returns whether a unit is a sign that belongs to the word beside it.

        Args:
            before: The first of the two.
        """
        space = self.output[self.stops[before] : self.starts[before + 1]]
        return not self.is_word[unit] and (not space or self.texts[unit] in _SPACED_SIGNS)

    def _gap(self, place: int, parent: _Node) -> int:
        """Returns where what is linked with the text before a place ends, and the rest begins."""
        if place <= parent.begin or place >= parent.end or parent.start == parent.stop:
            return parent.start if place <= parent.begin else parent.stop
        before, behind = self.source[:place][-1:], self.source[place:][:1]
        goes_with_next = before.isspace() and not _CLOSING.match(behind)
        # Near tokens count more; those before the place have the ranks -1, -2, ...
        rank = np.searchsorted(self.begins, place)
        near = slice(*np.searchsorted(self.ranks, [rank - _NEAR, rank + _NEAR]))
        units, ranks = self.of_words[near, 0], self.ranks[near] - rank
        ranks[ranks >= 0] += 1
        low, high = bisect_left(self.starts, parent.start), bisect_right(self.stops, parent.stop)
        votes = np.bincount(units, -1.0 / ranks, len(self.units))[low:high]
        scores = np.concatenate([[0.0], np.cumsum(votes)])
        nearest = units[ranks == (1 if goes_with_next else -1)] - low
        nearest = nearest[(nearest >= 0) & (nearest < high - low)] + (not goes_with_next)
        scores[nearest] += _BESIDE
        share = (place - parent.begin) / (parent.end - parent.begin)
        scores -= 0.01 * abs(np.linspace(0, 1, len(scores)) - share)  # where nothing else decides
        unit = low + int(np.argmax(scores))
        if goes_with_next:
            return self.starts[unit] if unit < high else parent.stop
        return self.stops[unit - 1] if unit > low else parent.start
