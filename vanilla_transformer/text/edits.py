"""Spans of a text and edits of it: other texts for some of its parts.

A list of edits is in order, and no edit begins before the end of the one before it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

Span = tuple[int, int]
"""Begin and end of a part of a text, in characters; an empty span is a position."""
SourceSpan = Span  # of a source
OutputSpan = Span  # of an output of this source
SpanPair = tuple[SourceSpan, OutputSpan]  # of a part that both have
Item = TypeVar("Item")


@dataclass(frozen=True)
class Edit:
    """Another text for a part of a text; an empty part is a position between two characters.

    Attributes:
        in_source: The part of the source that the text stands for. None: it stands for none.
    """

    begin: int
    end: int
    text: str
    in_source: SourceSpan | None = None

    @property
    def span(self) -> Span:
        """The part of the text that the edit replaces."""
        return self.begin, self.end


def apply_edits(text: str, edits: Sequence[Edit], begin: int = 0, end: int | None = None) -> str:
    """Returns a text, or its part from `begin` to `end`, with the edits of this part."""
    assert all(one.end <= other.begin for one, other in pairwise(edits))
    pieces, position = [], begin
    for edit in edits:
        pieces += [text[position : edit.begin], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:end]])


def without_overlaps(
    items: Iterable[Item], span_of: Callable[[Item], Span], others: Iterable[Span] = ()
) -> list[Item]:
    """Returns items in order, without overlaps: the longest counts, then the first given.

    None of them meets a span of `others`.
    """
    chosen, taken = list[Item](), [*others]
    for item in sorted(items, key=lambda item: span_of(item)[0] - span_of(item)[1]):
        if not meets(span_of(item), taken):
            chosen.append(item)
            taken.append(span_of(item))
    return sorted(chosen, key=span_of)


def longest_spans(spans: Iterable[Span]) -> list[Span]:
    """Returns spans without overlaps; see `without_overlaps`."""
    return without_overlaps(spans, lambda span: span)


def spans_after(edits: Sequence[Edit]) -> list[Span]:
    """Returns the spans of the inserted texts after editing."""
    spans, grown = list[Span](), 0
    for edit in edits:
        begin = edit.begin + grown
        spans.append((begin, begin + len(edit.text)))
        grown += len(edit.text) - (edit.end - edit.begin)
    return spans


def moved(span: Span, edits: Sequence[Edit]) -> Span:
    """Returns the span of a part of a text after editing; it includes edits that it meets."""
    shift_begin = shift_end = 0
    begin, end = span
    for edit in edits:
        grown = len(edit.text) - (edit.end - edit.begin)
        if edit.end <= begin:  # before the part: both ends move
            shift_begin += grown
            shift_end += grown
        elif edit.begin < end:  # it meets the part, which grows to include it
            shift_begin += min(edit.begin - begin, 0)
            shift_end += grown + max(edit.end - end, 0)
    return begin + shift_begin, end + shift_end


def meets(span: Span, others: Iterable[Span]) -> bool:
    """Returns whether a span overlaps with one of others."""
    return any(span[0] < end and begin < span[1] for begin, end in others)


def stripped(text: str, span: Span) -> Span:
    """Returns a span without the white space around it."""
    inside = text[slice(*span)]
    begin = span[0] + len(inside) - len(inside.lstrip())
    return begin, begin + len(inside.strip())


def inner_positions(spans: Iterable[Span]) -> set[int]:
    """Returns the positions inside parts of a text: a cut there would divide a part."""
    return {position for begin, end in spans for position in range(begin + 1, end)}
