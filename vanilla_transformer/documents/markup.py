"""Inline markup: tags leave a text for its translation, and return where the alignment puts them.

A pair of tags goes around the translation of its text, an empty tag between the translations of
the texts beside it. Pairs stay nested, and no tag breaks up a word or leaves its line.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from unicodedata import normalize

import numpy as np
import regex
from numpy.typing import NDArray

from vanilla_transformer.documents.aligned_words import AlignedWords
from vanilla_transformer.documents.marked_text import MarkedText, TextTranslation
from vanilla_transformer.model.tokenization_vanilla_transformer import ZERO_WIDTH
from vanilla_transformer.text.edits import Span, stripped
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import word_borders

_Units = NDArray[np.bool_]  # some of the units of an output
_BREAK = regex.compile(r"[\t\n\r]|<[bB][rR]\s*/?>|\Z")
_CLOSING = regex.compile(r"[\s\p{Pe}\p{Pf}\p{Po}]")
_NOWHERE: Span = (-1, -1)
_SPACED_PUNCTUATION = frozenset("!?:;\u00ab\u00bb")  # French puts a space between these and a word


def place_tags(marked: MarkedText, output: str, links: TokenLinks) -> TextTranslation:
    """Puts the tags of a source into its output, each of them once."""
    if not marked.tags or output == marked.plain:  # the usual case, and a text that stays
        return TextTranslation(output, marked.tags, marked.edges)
    root = _tree_of_tags(marked)
    root.placed = stripped(output, (0, len(output)))
    _Placement(marked, output, links).place(_lines_of(root, marked.plain, output))
    tags = [replace(marked.tags[old], position=position) for old, position in _placed_tags(root)]
    return TextTranslation(output, tuple(tags), marked.edges)


@dataclass
class _Node:
    """A pair of tags with the nodes in it, or adjacent tags that enclose no text.

    Attributes:
        opening, closing: The indices of its tags before its children, and after them.
        begin, end: The part of the source that it encloses, without white space around it.
        placed: The span of the output that it encloses, or `_NOWHERE` until it is placed.
    """

    opening: list[int]
    begin: int
    end: int = 0
    closing: list[int] = field(default_factory=list)
    children: list["_Node"] = field(default_factory=list)
    placed: Span = _NOWHERE


def _tree_of_tags(marked: MarkedText) -> _Node:
    """Makes a tree of the tags of a text; a pair around no text becomes one empty tag."""
    begin, end = stripped(marked.plain, (0, len(marked.plain)))
    stack = [_Node([], begin, end)]
    for index, tag in enumerate(marked.tags):
        if tag.kind == "begin":
            stack.append(_Node([index], tag.position))
            continue
        parent = stack[-1]
        is_first = parent.opening and not parent.children and parent.begin == tag.position
        if tag.kind == "empty" and is_first:  # it stays with the tag that opens
            parent.opening.append(index)
            continue
        if tag.kind == "end":
            node = stack.pop()
            node.begin, node.end = stripped(marked.plain, (node.begin, tag.position))
            node.closing = [index]
            if node.begin == node.end:
                node = _Node(list(range(node.opening[0], index + 1)), node.begin, node.begin)
        else:
            node = _Node([index], tag.position, tag.position)
        siblings = stack[-1].children
        last = siblings[-1] if siblings else None
        if last and not (last.closing or node.closing) and last.end == node.begin:
            last.opening += node.opening
        else:
            siblings.append(node)
    return stack[0]


def _lines_of(root: _Node, source: str, output: str) -> list[_Node]:
    """Returns a node for each line, with the nodes in it; the root, if a pair is around a break."""
    source_lines, output_lines = _line_spans(source), _line_spans(output)
    lines = list[_Node]()
    for (begin, end), in_output in zip(source_lines, output_lines, strict=False):
        nodes = [node for node in root.children if begin <= node.begin <= node.end <= end]
        span = stripped(source, (begin, end))
        lines.append(_Node([], *span, children=nodes, placed=stripped(output, in_output)))
    is_apart = sum(len(line.children) for line in lines) == len(root.children)
    if not is_apart or len(source_lines) != len(output_lines):
        return [root]
    root.children = lines
    return [*lines]


def _line_spans(text: str) -> list[Span]:
    breaks = [(0, 0), *(found.span() for found in _BREAK.finditer(text))]
    return [(begin, end) for (_, begin), (end, _) in pairwise(breaks)]


def _placed_tags(root: _Node) -> Iterator[tuple[int, int]]:
    """Yields the index of each tag and its position in the output, in the order there."""
    todo = [root]
    while todo:
        node = todo.pop()
        begin, end = node.placed
        yield from ((index, begin) for index in node.opening)
        if node.closing:
            todo.append(_Node(node.closing, node.end, placed=(end, end)))
        todo += reversed(node.children)


class _Placement:
    """Places tags in one output.

    A tag goes into a word only where the source has the same word with this tag in it.
    """

    def __init__(self, marked: MarkedText, output: str, links: TokenLinks) -> None:
        spaces = dict.fromkeys(map(ord, ZERO_WIDTH), " ")
        self.source, self.output = marked.plain.translate(spaces), output.translate(spaces)
        self.word_borders = sorted({0, *word_borders(self.source)})
        positions = (tag.position for tag in marked.tags)
        between = (stripped(self.source, span) for span in pairwise(positions))
        self.aligned = AlignedWords(self.source, self.output, links, between)
        self.copies: dict[int, int] = {}  # the unit that is a word of the source, by its begin

    def place(self, todo: list[_Node]) -> None:
        """Places all nodes below nodes that are placed."""
        aligned = self.aligned
        while todo:
            parent = todo.pop()
            is_free = np.zeros(len(aligned.units), bool)
            is_free[aligned.units_within(parent.placed)] = True
            pairs = [node for node in parent.children if node.closing]
            taken = self._place_pairs(pairs, parent, is_free)
            for node in (node for node in parent.children if node.placed == _NOWHERE):
                copy = None if node.closing else self._span_in_same_word(node, is_free)
                position = copy[0] if copy else self._position_of(node.begin, parent)
                if before := bisect_left(taken, (position, 0)):
                    position = max(position, taken[before - 1][1])  # in no span of a pair
                node.placed = (position, position)
            todo += pairs
            parent.children.sort(key=lambda node: node.placed)

    def _place_pairs(self, pairs: Sequence[_Node], parent: _Node, is_free: _Units) -> list[Span]:
        """Places pairs while there are free units, which it updates; returns the spans in order."""
        for find in (self._span_of_pair, self._nearest_word):
            for node in pairs:
                if node.placed == _NOWHERE and (span := find(node, parent, is_free)):
                    node.placed = span
                    is_free[self.aligned.units_touching(span)] = False
        return sorted(node.placed for node in pairs if node.placed != _NOWHERE)

    def _span_of_pair(self, node: _Node, parent: _Node, is_free: _Units) -> Span | None:
        """Returns the span of the output for a pair of tags. None: nothing is linked with the pair.

        A pair around all of the parent's text gets the parent's span, a pair in a word that both
        texts have the same part of it, and any other one the best span of units.
        """
        aligned = self.aligned
        begin, end = parent.placed
        if (node.begin, node.end) == (parent.begin, parent.end):
            return parent.placed if begin < end else None
        if (copy := self._span_in_same_word(node, is_free)) is not None:
            return copy if begin <= copy[0] and copy[1] <= end else None
        low = bisect_right(aligned.word_ends, node.begin)
        high = bisect_left(aligned.word_begins, node.end)
        if low == high:  # only punctuation
            unit = self._first_unit_with(self.source[node.begin : node.end], is_free)
            return None if unit is None else aligned.units[unit]
        if (units := self._best_units(node, is_free)) is None:
            return None
        first, last = units
        # Take as much punctuation at the edges as the pair has in the source.
        for _ in self.source[node.begin : aligned.word_begins[low]]:
            if first and is_free[first - 1] and self._is_punctuation_beside(first - 1, first - 1):
                first -= 1
        for _ in self.source[aligned.word_ends[high - 1] : node.end]:
            free = last + 1 < len(is_free) and is_free[last + 1]
            if free and self._is_punctuation_beside(last + 1, last):
                last += 1
        return aligned.unit_begins[first], aligned.unit_ends[last]

    def _best_units(self, node: _Node, is_free: _Units) -> tuple[int, int] | None:
        """Returns the first and the last unit of the best range of units. None: there is none.

        Each output word scores the share of its source word inside the pair, minus the rest. The
        range with the largest sum wins. In `<b>the red</b> dog`, the words of "der rote Hund" score
        1, 1 and -1, so that the range is "der rote".
        """
        aligned = self.aligned
        begins = np.take(aligned.word_begins, aligned.source_words)
        ends = np.take(aligned.word_ends, aligned.source_words)
        overlap = np.minimum(ends, node.end) - np.maximum(begins, node.begin)
        shares = np.maximum(overlap, 0) / (ends - begins) * (is_free & aligned.may_count)
        if not shares.any():
            return None
        gains = np.where(aligned.is_word, 2 * shares - 1, 0.0)
        gains[aligned.is_known] *= len(gains)  # a known word outweighs all others
        gains[~is_free] = -(len(gains) ** 2)
        # The sum of a range is the sum up to its end, less the sum before its begin.
        sums = np.concatenate([[0.0], np.cumsum(gains)])
        ranges = sums[1:] - np.minimum.accumulate(sums)[:-1]
        last = len(gains) - 1 - int(np.argmax(ranges[::-1]))
        first = int(np.argmin(sums[: last + 1]))
        positive = first + np.flatnonzero(gains[first : last + 1] > 0)
        if not len(positive):  # no word has more than half of its source in the pair
            first = int(np.argmax(shares))
            is_equal = shares[first:] == shares[first]  # first the words of one source word
            return first, first + int(np.cumprod(is_equal).sum()) - 1
        return int(positive[0]), int(positive[-1])

    def _nearest_word(self, node: _Node, parent: _Node, is_free: _Units) -> Span | None:
        """Returns the free word nearest to the position of a pair that nothing is linked with."""
        aligned = self.aligned
        position = self._position_of(node.begin, parent)
        free = np.flatnonzero(is_free & aligned.is_word)
        distances = [(aligned.is_known[n], abs(aligned.unit_begins[n] - position)) for n in free]
        return aligned.units[free[distances.index(min(distances))]] if distances else None

    def _span_in_same_word(self, node: _Node, is_free: _Units) -> Span | None:
        """Returns the span of a part of a word, if the output has the same word."""
        after = bisect_right(self.word_borders, node.begin)
        begin = self.word_borders[after - 1]
        end = self.word_borders[after] if after < len(self.word_borders) else begin
        if node.end > end or (node.begin, node.end) == (begin, end) or node.end == begin:
            return None
        unit = self.copies.get(begin, self._first_unit_with(self.source[begin:end], is_free))
        if unit is None:
            return None
        self.copies[begin] = unit
        shift = self.aligned.unit_begins[unit] - begin
        return node.begin + shift, node.end + shift

    def _first_unit_with(self, text: str, is_free: _Units) -> int | None:
        """Returns the first free unit with a text."""
        units = map(int, np.flatnonzero(is_free))
        return next((unit for unit in units if self.aligned.texts[unit] == text), None)

    def _is_punctuation_beside(self, unit: int, before: int) -> bool:
        """Returns whether a unit is punctuation of its neighbour; `before` is the first of both."""
        aligned = self.aligned
        space = self.output[aligned.unit_ends[before] : aligned.unit_begins[before + 1]]
        may_touch = not space or aligned.texts[unit] in _SPACED_PUNCTUATION
        return may_touch and not aligned.is_word[unit]

    def _position_of(self, begin: int, parent: _Node) -> int:
        """Returns the position in the output between the translations of both sides."""
        parent_begin, parent_end = parent.placed
        if begin <= parent.begin:
            return parent_begin
        if begin >= parent.end or parent_begin == parent_end:
            return parent_end
        aligned = self.aligned
        before, behind = self.source[:begin][-1:], self.source[begin:][:1]
        goes_with_next = before.isspace() and not _CLOSING.match(behind)
        units = aligned.units_within(parent.placed)
        low, high = units.start, units.stop
        next_word = bisect_left(aligned.word_begins, begin)
        unit = low + self._best_gap(units, next_word, goes_with_next)
        if goes_with_next:
            end = min([*aligned.word_begins[next_word : next_word + 1], parent.end])
            for character in reversed(self.source[begin:end]):
                if unit > low and normalize("NFKC", aligned.texts[unit - 1]) == character:
                    unit -= 1
            return aligned.unit_begins[unit] if unit < high else parent_end
        last = max(aligned.word_ends[next_word - 1] if next_word else 0, parent.begin)
        for character in self.source[last:begin]:  # punctuation before the position stays before it
            if unit < high and normalize("NFKC", aligned.texts[unit]) == character:
                unit += 1
        return aligned.unit_ends[unit - 1] if unit > low else parent_begin

    def _best_gap(self, units: slice, next_word: int, goes_with_next: bool) -> int:
        """Returns the number of units before the gap that the most words vote for.

        Words before a position vote for the gaps behind them, other words against these, by
        1 / distance. The gap beside the neighbour that the position goes with has one vote more.
        """
        is_word = self.aligned.is_word[units]
        order = self.aligned.source_words[units] - next_word  # -1: the word before the position
        votes = np.where(is_word, -1.0 / (order + (order >= 0)), 0.0)
        scores = np.concatenate([[0.0], np.cumsum(votes)])
        beside = np.flatnonzero(is_word & (order == (0 if goes_with_next else -1)))
        scores[beside if goes_with_next else beside + 1] += 1
        return int(np.argmax(scores))
