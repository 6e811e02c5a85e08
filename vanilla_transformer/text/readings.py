"""Readings: texts as a model reads them, with tokens or other words for some of their parts."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import regex

from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE, ZERO_WIDTH
from vanilla_transformer.text.edits import (
    Edit,
    Span,
    apply_edits,
    meets,
    moved,
    spans_after,
    without_overlaps,
)
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.languages import is_spaced_script_at
from vanilla_transformer.text.restoring import with_needed_spaces
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import words_and_signs

_TOKEN = regex.compile(r"<ph\d>|%[^\s%<]*?[a-zA-Z](?:%%)?")
"""A stand-in such as `<ph1>`, or a placeholder of printf that the model reads differently."""
OTHER_SPACE = regex.compile(
    rf"(?<=\w)\u00ad(?=\w)|(?<![{WHITE_SPACE}])(?! (?![{WHITE_SPACE}]))[{WHITE_SPACE}]+"
)
"""A soft hyphen in a word, or white space that is not exactly one space."""
INVISIBLE = regex.compile(rf"(?<=\w)(?:\u00ad|[{ZERO_WIDTH}]+)(?=\w)")
"""A soft hyphen or white space without a width, between two letters."""


@dataclass(frozen=True)
class Reading:
    """A text as a model reads it.

    Attributes:
        original: The text.
        edits: The edits that turn it into the text that the model reads, in order.
    """

    original: str
    edits: Sequence[Edit] = ()

    @property
    def text(self) -> str:
        """The text that the model reads."""
        return apply_edits(self.original, self.edits)

    @cached_property
    def undone(self) -> list[Edit]:
        """The edits that turn the text that the model reads into the original."""
        return [
            Edit(*span, self.original[slice(*edit.span)], edit.in_source)
            for edit, span in zip(self.edits, spans_after(self.edits), strict=True)
        ]

    def in_original(self, span: Span) -> Span:
        """Returns the span in the original of a part of the text."""
        return moved(span, self.undone)

    def without(self, spans: Sequence[Span]) -> "Reading":
        """Returns a reading without some spans, or this one if nothing would be left.

        The white space before a span goes too.
        """
        text = self.original
        edits: list[Edit] = []
        last = 0
        for begin, end in spans:
            if begin == last:
                end = len(text) - len(text[end:].lstrip())
            begin = max(last, len(text[:begin].rstrip()))
            edits.append(Edit(begin, end, ""))
            last = end
        reading = self.with_edits(edits)
        return reading if reading.text.strip() else self

    def with_edits(self, edits: Sequence[Edit]) -> "Reading":
        """Returns a reading with further changes; of changes that overlap, the longest counts."""
        edits = without_overlaps([*self.edits, *edits], lambda edit: edit.span)
        return Reading(self.original, edits)

    @property
    def spaces(self) -> list[Edit]:
        """The edits that replace other white space by one space, which no other edit does."""
        return [edit for edit in self.edits if edit.text == " "]

    def edits_to_restore_spaces(self, output: str, links: TokenLinks) -> list[Edit]:
        """Returns the edits that restore white space, such as a no-break space, between words."""
        edits: list[Edit] = []
        words, linked_with = words_and_signs(self.original), links.linked_with
        gaps = [
            (first, second)
            for first, second in pairwise(words_and_signs(output))
            if output[first[1] : second[0]] == " "
        ]
        for space in self.spaces:
            left = [span for word in words if word[1] == space.begin for span in linked_with(word)]
            right = [span for word in words if word[0] == space.end for span in linked_with(word)]
            linked = (gap for gap in gaps if meets(gap[0], left) and meets(gap[1], right))
            if gap := next(linked, None):
                gaps.remove(gap)  # which gets one space
                first, second = gap
                edits.append(Edit(first[1], second[0], self.original[slice(*space.span)]))
        return sorted(edits, key=lambda edit: edit.begin)

    def edits_to_replace_stand_ins(self, output: str) -> list[Edit]:
        """Returns the edits that replace stand-ins in an output by parts of the original."""
        spans: dict[str, list[Span]] = {edit.text: [] for edit in self.edits}
        for match in _TOKEN.finditer(self.text):
            span = self.in_original(match.span())
            if match[0] in spans and span[0] < span[1]:
                spans[match[0]].append(span)
        edits: list[Edit] = []
        for match in _TOKEN.finditer(output):
            if alike := spans.get(match[0]):
                span = alike.pop(0) if len(alike) > 1 else alike[0]
                begin, end = match.span()
                part = self.original[slice(*span)]
                text = with_needed_spaces(part, output[:begin], output[end:])
                edits.append(Edit(begin, end, text, span))
        return edits


def edits_to_unify_spaces(text: str) -> list[Edit]:
    """Returns the edits that replace other white space within a text by one space.

    White space without a width counts between two words of scripts with spaces. Soft hyphens go.
    """
    edits: list[Edit] = []
    for begin, end in (match.span() for match in OTHER_SPACE.finditer(text)):
        others = text[:begin] + text[end:]
        is_wide = text[begin:end].strip(ZERO_WIDTH) and 0 < begin < len(others)
        is_between = INVISIBLE.match(text, begin) and is_spaced_script_at(others, begin)
        if text[begin] == "\u00ad" or is_wide or is_between:
            edits.append(Edit(begin, end, "" if text[begin] == "\u00ad" else " "))
    return edits


@dataclass(frozen=True)
class StandIns:
    """Tokens such as `<ph1>` that stand for a kept part, as a model has learnt to copy them.

    The tokenizer calls them placeholders; a placeholder such as `%s` is a kind of kept part.

    Attributes:
        tokens: In the order in which they stand in a source.
        whole_words: Whether they stand only for parts between white space, as tokens of words do.
    """

    tokens: tuple[str, ...]
    whole_words: bool = False

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Returns the stand-ins of a tokenizer, which may have none."""
        tokens = getattr(tokenizer, "placeholders", ())
        is_word = bool(tokens) and tokenizer.training_options.get("target_kind") == "word"
        return cls(tokens, is_word)

    def reading(self, text: str, spans: Sequence[Span]) -> Reading:
        """Returns a reading with a token for each span, as long as there are tokens.

        In spans without a token, `% d` becomes `%d`, which models know.
        """
        spans = self._fitting(text, spans)
        others = (text[slice(*span)].replace("% ", "%") for span in spans[len(self.tokens) :])
        pairs = zip(spans, [*self.tokens, *others], strict=False)
        return Reading(text, [Edit(*span, to) for span, to in pairs if to != text[slice(*span)]])

    def in_pair(self, source: str, target: str, *others: str) -> tuple[str, ...]:
        """Returns a pair and other targets with tokens for the parts that the pair shares."""
        source_spans = self._fitting(source, kept_spans(source))
        target_spans = self._fitting(target, kept_spans(target)) if source_spans else []
        in_source = Counter(source[slice(*span)] for span in source_spans)
        in_target = Counter(target[slice(*span)] for span in target_spans)
        equal = {part for part, count in in_source.items() if in_target[part] == count}
        reading = self.reading(source, [s for s in source_spans if source[slice(*s)] in equal])
        written = [self.reading_of_target(target, target_spans, reading).text]
        written += (self.reading_of_target(text, kept_spans(text), reading).text for text in others)
        return reading.text, *written

    def reading_of_target(self, text: str, spans: Sequence[Span], source: Reading) -> Reading:
        """Returns the reading of a given target: equal parts have the tokens of its source.

        Args:
            spans: The kept parts of the target. Those that the source's reading lacks go, too.
        """
        parts: dict[str, deque[Edit]] = defaultdict(deque)
        for edit in source.edits:
            parts[source.original[edit.begin : edit.end].strip()].append(edit)
        pairs: list[tuple[Span, Edit]] = []
        for span in self._fitting(text, spans):
            if alike := parts[text[slice(*span)]]:
                pairs.append((span, alike.popleft()))
        tokens = [Edit(*span, edit.text) for span, edit in pairs if edit.text]
        reading = Reading(text, tokens).without([span for span, edit in pairs if not edit.text])
        edits = [
            replace(edit, in_source=source_edit.span)
            for edit in reading.edits
            for span, source_edit in pairs
            if meets(span, [edit.span])
        ]
        return Reading(text, edits)

    def _fitting(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        """Returns the spans that a token can stand for: a token that is a word needs spaces."""
        if not self.whole_words:
            return spans
        return [
            (begin, end)
            for begin, end in spans
            if not (text[:begin][-1:] + text[end : end + 1]).strip()  # no letter or sign beside it
        ]
