"""Parts of a text that its translation keeps: placeholders, addresses, paths, options, emoji.

A model often copies them. Those that an output lacks are put back; see `put_back`. A browser has
the same rules in `web/kept.js`; `tests/browser` compares both.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import regex

from vanilla_transformer.text.edits import Span, meets, stripped
from vanilla_transformer.text.patterns import (
    find_patterns,
    is_invented,
    is_written_out,
    may_not_repeat,
    pattern_of,
)
from vanilla_transformer.text.printf import (
    comparable_form,
    have_numbers,
    is_by_number,
    without_percent,
    written_number,
)

_PATIENCE = 1.0
"""Seconds that a pattern of the user may take for a text. Chosen without a measurement."""


def kept_spans(
    text: str,
    unknown: Sequence[Span] = (),
    patterns: Sequence[Any] = (),
    sure_parts: Collection[str] | None = None,
    flags: frozenset[str] = frozenset(),
) -> list[Span]:
    """Finds the parts of a text that stay as they are in its translation, in order.

    Args:
        unknown: The parts that the vocabulary of the model lacks.
        patterns: Compiled regular expressions of further parts. Of two parts that overlap, the
            longer one is kept.
        sure_parts: As for `find_patterns`, like `flags`.
    """
    spans = [span for span, _ in find_patterns(text, sure_parts, flags=flags)]
    for pattern in patterns:
        try:
            # Concurrent: other threads of a server go on meanwhile.
            matches = list(pattern.finditer(text, timeout=_PATIENCE, concurrent=True))
        except TimeoutError as error:
            raise ValueError(
                f"The pattern {pattern.pattern!r} takes too long on a text of {len(text):,} "
                "characters: write it without a repetition of repetitions."
            ) from error
        spans += [stripped(text, match.span()) for match in matches]
    if patterns:
        longest: list[Span] = []
        for span in sorted(spans, key=lambda span: span[0] - span[1]):
            if span[0] < span[1] and not meets(span, longest):
                longest.append(span)
        spans = longest
    return with_unknown(text, spans, unknown)


def with_unknown(text: str, spans: Sequence[Span], unknown: Sequence[Span]) -> list[Span]:
    """Returns kept parts with the parts outside of these that the vocabulary lacks, in order."""
    in_patterns = {index for span in spans for index in range(*span)}
    rest = {index for span in unknown for index in range(*span)} - in_patterns
    words: list[Span] = []
    for index in sorted(index for index in rest if not text[index].isspace()):
        begin = words.pop()[0] if words and words[-1][1] == index else index
        words.append((begin, index + 1))
    return sorted([*spans, *words])


class _Part(NamedTuple):
    """A kept part of a text.

    Attributes:
        form: The text as parts are compared; see `comparable_form`.
    """

    span: Span
    text: str
    form: str


class Spare(NamedTuple):
    """A part of an output that its source does not have, or not so often.

    Attributes:
        must_go: Whether it may not stay: it is a placeholder that the source lacks, or a copy too
            many of a part that no translation repeats.
    """

    span: Span
    must_go: bool


@dataclass(frozen=True)
class Copies:
    """The kept parts of a source, and the same parts in its output.

    Attributes:
        found: The spans of these parts in the output, in order.
        pairs: A span of the source and its span in the output, for parts that both have equally
            often. Equal parts are paired in their order.
        missing: Spans of one text, and how many of them the output lacks.
        spare: Other parts of the output.
    """

    source: str
    output: str
    found: Sequence[Span]
    pairs: Sequence[tuple[Span, Span]]
    missing: Sequence[tuple[Sequence[Span], int]]
    spare: Sequence[Spare]

    @classmethod
    def find(
        cls,
        source: str,
        spans: Sequence[Span],
        output: str,
        flags: frozenset[str] = frozenset(),
        origins: Mapping[Span, Span] = MappingProxyType({}),
    ) -> "Copies":
        """Compares the kept parts of a source, which may have flags, and of an output.

        Args:
            origins: The part of the source of some parts of the output.
        """
        texts = [source[slice(*span)] for span in spans]
        in_output = _spans_in_output(texts, output, flags)
        written = [output[slice(*span)] for span in in_output]
        # Where one side writes %s for the %1$s of the other side, numbers do not count.
        is_numbered = {have_numbers(texts), have_numbers(written)} != {False, True}

        def as_parts(spans: Sequence[Span], texts: Sequence[str]) -> list[_Part]:
            forms = (comparable_form(text, is_numbered) for text in texts)
            return list(map(_Part, spans, texts, forms))

        parts = as_parts(spans, texts)
        found, spare = _shared_out(source, parts, output, as_parts(in_output, written), flags)
        missing = Counter(part.form for part in parts) - Counter(part.form for part in found)

        def in_order(parts: Sequence[_Part], origins: Mapping[Span, Span]) -> list[Span]:
            def order(part: _Part) -> tuple[str, int, Span]:
                return part.form, written_number(part.text), origins.get(part.span, part.span)

            return [part.span for part in sorted(parts, key=order) if part.form not in missing]

        return cls(
            source,
            output,
            [part.span for part in found],
            [*zip(in_order(parts, {}), in_order(found, origins), strict=True)],
            [
                ([part.span for part in parts if part.form == form], count)
                for form, count in missing.items()
                if not is_written_out(form, output)
            ],
            spare,
        )

    @property
    def are_right(self) -> bool:
        """Whether the output has each span as often as the source, and no other placeholder."""
        return not self.missing and not any(part.must_go for part in self.spare)


def _spans_in_output(parts: Sequence[str], output: str, flags: frozenset[str]) -> list[Span]:
    """Finds the parts of an output that its source has too, or that look like code."""
    # Unknown characters, and matches of patterns of the user.
    others = sorted({part for part in parts if not pattern_of(part)}, key=len, reverse=True)
    of_others = [regex.compile("|".join(map(regex.escape, others)))] if others else []
    # A percent sign beside a placeholder is a part of it only where it is one in the source.
    shapes = {comparable_form(part, is_numbered=False) for part in parts}
    return [
        span
        if comparable_form(output[slice(*span)], is_numbered=False) in shapes
        else without_percent(output, *span)
        for span in kept_spans(output, patterns=of_others, sure_parts=parts, flags=flags)
    ]


def _shared_out(
    source: str,
    parts: Sequence[_Part],
    output: str,
    in_output: Sequence[_Part],
    flags: frozenset[str],
) -> tuple[list[_Part], list[Spare]]:
    """Divides the parts of an output into those that the source has and spare ones."""
    texts = [part.text for part in parts]
    patterns = dict(find_patterns(output, texts, flags=flags))
    of_source = {pattern for text in texts if (pattern := pattern_of(text))}
    remaining = Counter(part.form for part in parts)
    extra = Counter(part.form for part in in_output if part.form in remaining) - remaining
    found, spare = list[_Part](), list[Spare]()
    for part in in_output:
        span, text, form = part
        pattern = patterns.get(span)
        is_repeated, is_percent_sign = _beside(found[-1] if found else None, part, output)
        # Of two equal parts side by side the second is too many, if one is.
        if remaining[form] and not (is_repeated and extra[form]):
            remaining[form] -= 1
            found.append(part)
        elif is_percent_sign:  # an ordinary one: a further one is no error
            continue
        elif extra[form]:
            extra[form] -= 1
            spare.append(Spare(span, is_repeated or may_not_repeat(text)))
        elif pattern and is_invented(text, pattern, source, of_source):
            spare.append(Spare(span, must_go=True))
        elif pattern in of_source:
            spare.append(Spare(span, must_go=False))
    return found, spare


def _beside(last: _Part | None, part: _Part, output: str) -> tuple[bool, bool]:
    """Returns whether a part repeats the last one, and whether it is a percent sign of a number.

    The first holds only directly behind that part. The second holds for a `%%` beside a number, or
    directly behind a part that may stand for one.
    """
    is_behind = last and not output[last.span[1] : part.span[0]].strip()
    before = last.text if last and is_behind else ""
    by_number = is_by_number(output, part.span[0]) or before[-1:] not in ("", "%")
    return part.text == before, part.text == "%%" and by_number
