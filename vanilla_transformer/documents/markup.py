"""Inline markup: tags leave a text for its translation, and return where the alignment puts them.

A pair of tags goes around what is linked with the text that it encloses, an empty tag between what
is linked with the text before it and behind it. What certainly stands in both texts needs no link.
Pairs stay nested, and no tag breaks up a word.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, takewhile
from typing import Literal
from unicodedata import normalize

import numpy as np
import regex
from numpy.typing import NDArray

from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE, ZERO_WIDTH
from vanilla_transformer.text.kept import (
    Copies,
    Edit,
    Span,
    TokenLinks,
    apply_edits,
    kept_spans,
    moved,
    stripped,
)
from vanilla_transformer.text.languages import is_spaced_script_at, word_borders

_SIGNS = regex.compile(r"[\p{P}\s]*")
_OTHER_SPACE = regex.compile(rf"(?<![{WHITE_SPACE}])(?! (?![{WHITE_SPACE}]))[{WHITE_SPACE}]+")
_CLOSING = regex.compile(r"[\s\p{Pe}\p{Pf}\p{Po}]")
_SPACED_SIGNS = frozenset("!?:;\u00ab\u00bb")  # French puts a space between these and a word
_REACH = 12
"""Words on each side of a linked one that may be meant, which bounds the time of long sentences."""
# Two costs beside that of a word that is not linked, which is 1. Of the tags in English strings of
# programs, scripts/experiments/markup_places.py has most at the right place in German with these.
_FAR = 0.1
"""Cost of each word between a link and what is taken for it."""
_JUMP = 0.7
"""Cost of a step that is not to the next word."""


TagKind = Literal["begin", "end", "empty"]


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
    kind: TagKind = "empty"
    name: str = ""
    span: Span | None = None
    is_spaced: tuple[bool, bool] = field(default=(False, False), kw_only=True)


@dataclass(frozen=True)
class MarkedText:
    """A text and its tags, in their order. Pairs are nested.

    Attributes:
        is_doubtful: Whether a person should check it, which PO and XLIFF can say.
        is_known: Whether it is from a memory, which XLIFF can say.
        part: What its file has in its place, if that is to be written as it is.
    """

    text: str
    tags: tuple[Tag, ...] = ()
    is_doubtful: bool = False
    is_known: bool = False
    part: str | None = None

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
                if needs_space and part[:1].isalnum() and is_spaced_script_at(part, 0):
                    opened = list(takewhile(lambda tag: tag.kind == "begin", reversed(tags)))
                    shifted = [replace(tag, position=len(text) + 1) for tag in reversed(opened)]
                    tags[len(tags) - len(opened) :] = shifted
                    text += " "
                text += part
                needs_space = needs_space and not part
                continue
            if part.kind == "empty":
                is_letter = text[-1:].isalnum() and is_spaced_script_at(text, len(text))
                touches = bool(tags) and (tags[-1].kind, tags[-1].position) == ("empty", len(text))
                spaced = part.is_spaced[0] or (touches and tags[-1].is_spaced[1])
                spaced |= touches and tags[-1].text[-1:] == part.text[:1] == "`"
                text += " " if spaced and (is_letter or touches) else ""
                needs_space = part.is_spaced[1] and not part.text.endswith(" ")
            tags.append(replace(part, position=len(text)))
        return MarkedText(text, tuple(tags))

    def write(self, escape: Callable[[str], str] = str) -> str:
        """Returns the text with its tags; `escape` writes text so that it is no markup."""
        return "".join(
            escape(part) if isinstance(part, str) else part.text for part in self.parts()
        )


def place_tags(marked: MarkedText, output: str, links: TokenLinks) -> MarkedText:
    """Puts the tags of a source into its output, each of them once.

    White space that is more than a space, such as a no-break space, is in the output where the
    words on its two sides are side by side there.
    """
    if not marked.tags and not _OTHER_SPACE.search(marked.text):  # the usual case
        return MarkedText(output)
    root = _tree(marked)
    root.start, root.stop = stripped(output, (0, len(output)))
    placement = _Placement(marked, output, links)
    placement.place(root)
    spaces = sorted(placement.edits_of_spaces(marked.text), key=lambda edit: edit.begin)
    tags = [
        replace(marked.tags[old], position=moved((position, position), spaces)[0])
        for old, position in _in_order(root)
    ]
    return MarkedText(apply_edits(output, spaces), tuple(tags))


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


def _parts(
    text: str, kept: Collection[Span], tokens: Collection[Span]
) -> Iterator[tuple[Span, bool]]:
    """Yields the words, signs and kept spans of a text, each with whether it is no sign."""
    inside = {place for begin, end in kept for place in range(begin + 1, end)}
    borders = {*chain(*kept), *word_borders(text, {*chain(*tokens)})} - inside
    for span in pairwise(sorted(borders)):
        if not text[slice(*span)].isspace():
            yield span, span in kept or not _SIGNS.fullmatch(text[slice(*span)])


def _in_sequence(
    linked: Mapping[int, Sequence[int]], count: int, known: Collection[int]
) -> list[int]:
    """Chooses a word of the source for each word of the output.

    Attention links an article with its noun, and now and then a word with one far away. The chosen
    words cost least: one that is not linked costs, and each step that is not to the next word.

    Args:
        linked: The words that each word of the output is linked with; it is certain for `known`.
        count: Number of words of the source.
    """
    center, totals, steps = -1, np.zeros(1), []
    states = np.array([-1])
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

    def __init__(self, marked: MarkedText, output: str, links: TokenLinks) -> None:
        source = marked.text.translate(dict.fromkeys(map(ord, ZERO_WIDTH), " "))
        self.source, self.output = source, output
        self.tag_places = [tag.position for tag in marked.tags]
        self.source_words = sorted({0, *word_borders(source)})
        self.kept = {*kept_spans(output)}
        parts = [*_parts(output, self.kept, links.targets)]
        self.units = [span for span, _ in parts]
        self.texts = [output[slice(*span)] for span in self.units]
        self.starts = [start for start, _ in self.units]
        self.stops = [stop for _, stop in self.units]
        self.is_word = np.array([is_word for _, is_word in parts], bool)
        self.copies: dict[int, int] = {}  # the unit that is the word at a place of the source
        kept = kept_spans(source)
        words = [span for span, is_word in _parts(source, kept, links.sources) if is_word]
        begins, ends = [begin for begin, _ in words], [end for _, end in words]
        # Each word of the output stands for one of the source: one that both sides have, ...
        known: dict[int, int] = {}  # the word of the source for a word that stands in both
        between = (stripped(source, span) for span in pairwise(self.tag_places))
        same = [*self._verbatim([*words, *between]), *Copies.find(source, kept, output).pairs]
        for (begin, end), (start, stop) in same:
            for unit in range(bisect_left(self.starts, start), bisect_left(self.starts, stop)):
                word = bisect_right(ends, begin + self.starts[unit] - start)
                if self.is_word[unit] and word < bisect_left(begins, end):
                    known[unit] = word
        # ... or one of those that the alignment links with it.
        linked: dict[int, list[int]] = {int(unit): [] for unit in np.flatnonzero(self.is_word)}
        for (start, stop), number in links.pairs():
            begin, end = stripped(source, links.sources[number])
            if not _SIGNS.fullmatch(source[begin:end]):
                for unit in range(bisect_right(self.stops, start), bisect_left(self.starts, stop)):
                    if self.is_word[unit]:
                        linked[unit].append(bisect_right(begins, begin) - 1)
        linked |= {unit: [word] for unit, word in known.items()}
        self.words = np.zeros(len(self.units), int)  # of the source, for each word of the output
        if words:
            self.words[[*linked]] = _in_sequence(linked, len(words), known)
        self.is_known = np.isin(range(len(self.units)), [*known])
        self.is_linked = self.is_known | self.is_word & ~np.isin(self.words, [*known.values()])
        self.begins, self.ends = np.array(begins, int), np.array(ends, int)

    def _verbatim(self, spans: Iterable[Span]) -> Iterator[tuple[Span, Span]]:
        """Yields spans of the source whose text each side has once, with its places in both."""
        for span in spans:
            text = self.source[slice(*span)]
            if self.source.count(text) == self.output.count(text) == 1:
                start = self.output.index(text)
                if start in self.starts and start + len(text) in self.stops:
                    yield span, (start, start + len(text))

    def place(self, root: _Node) -> None:
        """Finds the places of all nodes below one that has its place."""
        todo = [root]
        while todo:
            parent = todo.pop()
            is_free = np.zeros(len(self.units), bool)
            low = bisect_left(self.starts, parent.start)
            is_free[low : bisect_right(self.stops, parent.stop)] = True
            taken: list[Span] = []
            pairs = [node for node in parent.children if node.last]
            for find in (self._span, self._nearest):
                for node in pairs:
                    if not node.stop and (span := find(node, parent, is_free)):
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
            todo += pairs
            parent.children.sort(key=lambda node: (node.start, node.stop))

    def edits_of_spaces(self, source: str) -> Iterator[Edit]:
        """Yields what puts white space of the source between the same words of the output."""

        def is_same(unit: int, word: int, sign: str) -> bool:
            if self.is_word[unit]:
                return bool(self.words[unit] == word)
            return self.texts[unit] == sign

        gaps = list(zip(self.stops, self.starts[1:], strict=False))
        for match in _OTHER_SPACE.finditer(source):
            begin, end = match.span()
            borders = {begin, *(place for place in self.tag_places if begin < place < end), end}
            if all(source[slice(*span)] == " " for span in pairwise(sorted(borders))):
                continue  # single spaces, which stand on both sides of tags
            before = bisect_left(self.ends, begin), self.source[:begin][-1:]
            behind = bisect_left(self.begins, end), self.source[end:][:1]
            for unit, gap in enumerate(gaps):
                is_space = gap[0] < gap[1] and not self.output[slice(*gap)].strip(WHITE_SPACE)
                if is_space and is_same(unit, *before) and is_same(unit + 1, *behind):
                    yield Edit(*gap, match[0])
                    gaps[unit] = 0, 0
                    break

    def _span(self, node: _Node, parent: _Node, is_free: NDArray[np.bool_]) -> Span | None:
        """Returns the part of the output that a pair encloses; None: nothing is linked with it."""
        if (node.begin, node.end) == (parent.begin, parent.end):
            return (parent.start, parent.stop) if parent.start < parent.stop else None
        if (copy := self._copy(node, is_free)) is not None:
            return copy if parent.start <= copy[0] and copy[1] <= parent.stop else None
        text = self.source[node.begin : node.end]
        low, high = bisect_right(self.ends, node.begin), bisect_left(self.begins, node.end)
        if low == high:  # only signs
            same = (unit for unit in np.flatnonzero(is_free) if self.texts[unit] == text)
            return next((self.units[unit] for unit in same), None)
        begins, ends = self.begins[self.words], self.ends[self.words]
        overlap = np.minimum(ends, node.end) - np.maximum(begins, node.begin)
        shares = np.maximum(overlap, 0) / (ends - begins) * (is_free & self.is_linked)
        if not shares.any():
            return None
        gains = np.where(self.is_word, 2 * shares - 1, 0.0)
        gains[self.is_known] *= len(gains)  # what stands in both, and nothing else that does
        gains[~is_free] = -(len(gains) ** 2)
        # The part with the largest sum: the sum up to its end, less the smallest before it.
        sums = np.concatenate([[0.0], np.cumsum(gains)])
        ranges = sums[1:] - np.minimum.accumulate(sums)[:-1]
        last = len(gains) - 1 - int(np.argmax(ranges[::-1]))
        first = int(np.argmin(sums[: last + 1]))
        positive = first + np.flatnonzero(gains[first : last + 1] > 0)
        if not len(positive):  # no word is linked with what it encloses alone
            positive = np.array([np.argmax(shares)])
        first, last = int(positive[0]), int(positive[-1])
        for _ in self.source[node.begin : self.begins[low]]:  # as many signs at its edges
            if first and is_free[first - 1] and self._is_sign_beside(first - 1, first - 1):
                first -= 1
        for _ in self.source[self.ends[high - 1] : node.end]:
            if last + 1 < len(is_free) and is_free[last + 1]:
                last += self._is_sign_beside(last + 1, last)
        return self.starts[first], self.stops[last]

    def _nearest(self, node: _Node, parent: _Node, is_free: NDArray[np.bool_]) -> Span | None:
        """Returns the free word that is nearest to where nothing is linked with a pair."""
        place = self._gap(node.begin, parent)
        free = np.flatnonzero(is_free & self.is_word)
        distances = [(self.is_known[unit], abs(self.starts[unit] - place)) for unit in free]
        return self.units[free[distances.index(min(distances))]] if distances else None

    def _copy(self, node: _Node, is_free: NDArray[np.bool_]) -> Span | None:
        """Returns where a part of a word of the source is in the same word of the output."""
        after = bisect_right(self.source_words, node.begin)
        begin = self.source_words[after - 1]
        end = self.source_words[after] if after < len(self.source_words) else begin
        if node.end > end or (node.begin, node.end) == (begin, end) or node.end == begin:
            return None
        if begin not in self.copies:
            word = self.source[begin:end]
            for unit in np.flatnonzero(is_free):
                if self.texts[unit] == word and self.units[unit] not in self.kept:
                    self.copies[begin] = int(unit)
                    break
            else:
                return None
        shift = self.starts[self.copies[begin]] - begin
        return node.begin + shift, node.end + shift

    def _is_sign_beside(self, unit: int, before: int) -> bool:
        """Returns whether a unit is a sign of the word beside it; `before` is the first of both."""
        space = self.output[self.stops[before] : self.starts[before + 1]]
        return not self.is_word[unit] and (not space or self.texts[unit] in _SPACED_SIGNS)

    def _gap(self, place: int, parent: _Node) -> int:
        """Returns where what is linked with the text before a place ends, and the rest begins."""
        if place <= parent.begin or place >= parent.end or parent.start == parent.stop:
            return parent.start if place <= parent.begin else parent.stop
        before, behind = self.source[:place][-1:], self.source[place:][:1]
        goes_with_next = before.isspace() and not _CLOSING.match(behind)
        low, high = bisect_left(self.starts, parent.start), bisect_right(self.stops, parent.stop)
        next_word = bisect_left(self.begins, place)
        order = self.words[low:high] - next_word  # -1: the word before the place
        votes = np.where(self.is_word[low:high], -1.0 / (order + (order >= 0)), 0.0)
        scores = np.concatenate([[0.0], np.cumsum(votes)])
        beside = self.is_word[low:high] & (order == (0 if goes_with_next else -1))
        scores[np.flatnonzero(beside) + (not goes_with_next)] += 1
        unit = low + int(np.argmax(scores))
        if goes_with_next:
            return self.starts[unit] if unit < high else parent.stop
        last = max(self.ends[next_word - 1] if next_word else 0, parent.begin)
        for sign in self.source[last:place]:  # what is between the word and the place stays so
            unit += unit < high and normalize("NFKC", self.texts[unit]) == sign
        return self.stops[unit - 1] if unit > low else parent.start
