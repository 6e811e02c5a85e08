"""Parts of a text that its translation keeps: placeholders, addresses, paths, options, emoji.

A model often copies them; `restoring` puts back those that an output lacks. A browser has the same
rules in `web/kept.js`, and `tests/browser` compares both.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import regex

from vanilla_transformer.text.edits import (
    OutputSpan,
    SourceSpan,
    Span,
    SpanPair,
    longest_spans,
    stripped,
)
from vanilla_transformer.text.patterns import Pattern, find_patterns, is_written_out, pattern_of
from vanilla_transformer.text.printf import (
    BY_NUMBER,
    have_numbers,
    normalized_part,
    without_percent,
    written_number,
)

_TIMEOUT = 1.0
"""Seconds that a pattern of the user may take for a text. Chosen without a measurement."""


def kept_spans(
    text: str,
    unknown: Sequence[Span] = (),
    patterns: Sequence[Any] = (),
    source_parts: Collection[str] | None = None,
    flags: frozenset[str] = frozenset(),
) -> list[Span]:
    """Finds the parts of a text that stay as they are in its translation, in order.

    Args:
        unknown: The parts that the vocabulary of the model lacks.
        patterns: Compiled expressions of further parts. Of parts that overlap, the longest counts.
        source_parts: As for `find_patterns`, like `flags`.
    """
    spans = [span for span, _ in find_patterns(text, source_parts, flags=flags)]
    for pattern in patterns:
        try:
            # Concurrent: other threads of a server go on meanwhile.
            matches = list(pattern.finditer(text, timeout=_TIMEOUT, concurrent=True))
        except TimeoutError as error:
            raise ValueError(
                f"The pattern {pattern.pattern!r} takes too long on a text of {len(text):,} "
                "characters: write it without a repetition of repetitions."
            ) from error
        spans += [stripped(text, match.span()) for match in matches if match[0].strip()]
    return with_unknown(text, longest_spans(spans) if patterns else spans, unknown)


def with_unknown(text: str, spans: Sequence[Span], unknown: Sequence[Span]) -> list[Span]:
    """Returns kept parts, and the unknown characters outside of them as further parts, in order."""
    kept = {index for span in spans for index in range(*span)}
    outside = {index for span in unknown for index in range(*span)} - kept
    runs: list[Span] = []
    for index in sorted(index for index in outside if not text[index].isspace()):
        begin = runs.pop()[0] if runs and runs[-1][1] == index else index
        runs.append((begin, index + 1))
    return sorted([*spans, *runs])


class _Part(NamedTuple):
    """A kept part of a source, or of its output.

    Attributes:
        span: Where it is in its own text.
        normalized: The text by which parts are compared.
    """

    span: Span
    text: str
    normalized: str

    @property
    def order(self) -> tuple[int, Span]:
        """The key by which equal parts are paired: their numbers, then their places."""
        return written_number(self.text), self.span


class Spare(NamedTuple):
    """A part of an output that its source does not have, or not so often.

    Attributes:
        must_go: Whether it may not stay: the output has invented it, or may not repeat it.
    """

    span: OutputSpan
    must_go: bool


@dataclass(frozen=True)
class Copies:
    """The kept parts of a source, and the same parts in its output.

    Attributes:
        in_output: The spans of these parts in the output, in order.
        pairs: The span in the source and the span in the output of each part that both have equally
            often. Equal parts of an unknown origin are paired in their order.
        missing: The spans of equal parts in the source, and how many of them the output lacks.
        spare: Other parts of the output.
        origins: The parts of the source that parts of the output come from, where known.
    """

    source: str
    output: str
    in_output: Sequence[OutputSpan]
    pairs: Sequence[SpanPair]
    missing: Sequence[tuple[Sequence[SourceSpan], int]]
    spare: Sequence[Spare]
    origins: Mapping[OutputSpan, SourceSpan]

    @classmethod
    def find(
        cls,
        source: str,
        kept: Sequence[SourceSpan],
        output: str,
        flags: frozenset[str] = frozenset(),
        origins: Mapping[OutputSpan, SourceSpan] = MappingProxyType({}),
    ) -> "Copies":
        """Compares the kept parts of a source, which may have flags, and of an output."""
        texts = [source[slice(*span)] for span in kept]
        matches = find_patterns(output, texts, flags=flags)
        spans = _spans_in_output(texts, output, [span for span, _ in matches], flags)
        written = [output[slice(*span)] for span in spans]
        # Where one side writes %s for each %1$s of the other side, numbers do not count.
        sides = have_numbers(texts), have_numbers(written)
        is_numbered = None in sides or sides[0] == sides[1]  # None: some placeholders have one
        parts = _parts_of(kept, texts, is_numbered)
        output_parts = _parts_of(spans, written, is_numbered)
        found, spare = _divide(output_parts, output, dict(matches), parts, source, flags)
        lacking = _count(parts) - _count(found)
        complete = [part for part in parts if part.normalized not in lacking]
        missing = [
            ([part.span for part in parts if part.normalized == text], count)
            for text, count in lacking.items()
            if not is_written_out(text, output)
        ]
        pairs = _pairs(complete, found, origins)
        return cls(source, output, [part.span for part in found], pairs, missing, spare, origins)

    @property
    def are_right(self) -> bool:
        """Whether the output has each span as often as the source, and no other placeholder."""
        return not self.missing and not any(part.must_go for part in self.spare)


def _count(parts: Iterable[_Part]) -> Counter[str]:
    return Counter(part.normalized for part in parts)


def _pairs(
    parts: Sequence[_Part], copies: Sequence[_Part], origins: Mapping[OutputSpan, SourceSpan]
) -> list[SpanPair]:
    """Returns the spans of parts of a source and of their copies; known origins count first."""
    # Of equal parts, the first one or a known one is taken out in constant time.
    unpaired = defaultdict[str, OrderedDict[SourceSpan, SourceSpan]](OrderedDict)
    for part in sorted(parts, key=lambda part: part.order):
        unpaired[part.normalized][part.span] = part.span
    pairs: list[SpanPair] = []
    for copy in sorted(copies, key=lambda copy: (copy.span not in origins, copy.order)):
        if alike := unpaired[copy.normalized]:
            first = next(iter(alike))
            span = alike.pop(origins.get(copy.span, first), None) or alike.pop(first)
            pairs.append((span, copy.span))
    return sorted(pairs)


def _parts_of(spans: Sequence[Span], texts: Sequence[str], is_numbered: bool) -> list[_Part]:
    return list(map(_Part, spans, texts, (normalized_part(text, is_numbered) for text in texts)))


def _spans_in_output(
    parts: Sequence[str], output: str, code: Sequence[Span], flags: frozenset[str]
) -> list[Span]:
    """Returns the parts of an output that look like code, and those that its source has, too."""
    # Unknown characters, and matches of patterns of the user.
    others = [part for part in dict.fromkeys(parts) if not pattern_of(part, flags)]
    copies = (regex.finditer(regex.escape(part), output, overlapped=True) for part in others)
    spans = [*code, *(copy.span() for copy in chain.from_iterable(copies))]
    # A percent sign beside a placeholder is a part of it only where it is one in the source.
    shapes = {normalized_part(part, is_numbered=False) for part in parts}
    return [
        span
        if normalized_part(output[slice(*span)], is_numbered=False) in shapes
        else without_percent(output, span)
        for span in (longest_spans(spans) if others else spans)
    ]


def _divide(
    parts: Sequence[_Part],
    output: str,
    patterns: Mapping[Span, Pattern],
    source_parts: Sequence[_Part],
    source: str,
    flags: frozenset[str],
) -> tuple[list[_Part], list[Spare]]:
    """Divides the parts of an output into those that the source has and spare ones.

    For each part in order, the first rule that fits decides:
    1. The source has it once more: it is found. Of two equal parts side by side, the second one is
       passed over if one is too many.
    2. It is the `%%` of a number, or of a part before it that may stand for one: it is text.
    3. It is a copy too many: it is spare, and must go if it is repeated or may not repeat.
    4. The output has invented it: it is spare and must go.
    5. The source has a part of its pattern: it is spare, perhaps another spelling of it.

    Args:
        patterns: The patterns of those parts of the output that look like code.
    """
    of_source = {pattern for part in source_parts if (pattern := pattern_of(part.text, flags))}
    remaining = _count(source_parts)
    surplus = _count(part for part in parts if part.normalized in remaining) - remaining
    found: list[_Part] = []
    spare: list[Spare] = []
    for part in parts:
        span, text, normalized = part
        pattern = patterns.get(span)
        follows_part = found and not output[found[-1].span[1] : span[0]].strip()
        before = found[-1].text if follows_part else ""
        is_repeated = text == before
        if remaining[normalized] and not (is_repeated and surplus[normalized]):
            remaining[normalized] -= 1
            found.append(part)
        elif text == "%%" and (BY_NUMBER.match(output, span[0]) or before[-1:] not in ("", "%")):
            continue
        elif surplus[normalized]:
            surplus[normalized] -= 1
            own = pattern_of(text, flags)
            spare.append(Spare(span, is_repeated or (own is not None and own.may_not_repeat)))
        elif pattern and pattern.is_invented(text, source, of_source):
            spare.append(Spare(span, must_go=True))
        elif pattern in of_source:
            spare.append(Spare(span, must_go=False))
    return found, spare
