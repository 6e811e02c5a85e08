"""The percent signs of an output: doubled as its source doubles them, and beside its numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import regex

from vanilla_transformer.text.edits import Edit, OutputSpan, SourceSpan, Span, apply_edits
from vanilla_transformer.text.patterns import find_patterns
from vanilla_transformer.text.printf import PRINTF_PART

_DOUBLES = regex.compile(rf".*%%|%[(<]|(?=%)(?:{PRINTF_PART.pattern})\Z")
"""A part of a text in which a percent sign is written as `%%`."""
SHARE = regex.compile(r"(?:(?<=\d\s?)%|%(?=\s))(?!%)")
"""A percent sign after a number, or before a space."""
_SIGN = r"[%\uff05\u066a\ufe6a]"  # also full-width, Arabic, and small
_WORD = (  # for "percent", in most languages of Europe and some of Asia
    r"\s?(?:[Pp](?:er ?c|ersen|or c|our c|ro(?:[cszť]|ts)en)|v\. ?H|[Пп]роц|[Вв]ідс|száz|odst|"
    r"パーセント|퍼센트|프로|प्रतिशत|เปอร์)"
)
NUMBER = regex.compile(
    rf"({_SIGN}\s?)?(?<![\p{{L}}\p{{N}}_.,])(\d+(?:[.,]\d+)*)(?![\p{{Latin}}\d_])"
    rf"(?:(\s?{_SIGN})|(?=({_WORD}))|)"
)
"""A number (group 2) with the sign before it (1) or after it (3), or a word for the sign (4)."""


class _Number(NamedTuple):
    """A number in a text, whether a percent sign or a word for it follows, and the end."""

    value: str
    has_sign: bool
    has_word: bool
    end: int


def edits_to_double_percents(
    source: str, kept: Sequence[SourceSpan], output: str, flags: frozenset[str] = frozenset()
) -> list[Edit]:
    """Returns the edits that double the percent signs of an output as its source doubles them."""
    parts = [source[slice(*span)] for span in kept]
    if "%" not in output or not any(map(_DOUBLES.match, parts)) or _signs_outside(source, kept):
        return []
    others = [
        (begin, end)
        for (begin, end), _ in find_patterns(output, parts, flags=flags)
        if output[begin:end] in parts or not SHARE.match(output, begin)
    ]
    # Of two signs side by side, the first one becomes both.
    signs = _signs_outside(output, others)
    return [Edit(at, at + 1, "" if output[at - 1 : at] == "%" else "%%") for at in signs]


def _signs_outside(text: str, parts: Iterable[Span]) -> list[int]:
    """Returns the positions of the percent signs of a text that are in none of its parts."""
    inside = {position for part in parts for position in range(*part)}
    return [at for at, sign in enumerate(text) if sign == "%" and at not in inside]


def edits_to_add_percents(
    source: str, kept: Sequence[SourceSpan], output: str, copies: Sequence[OutputSpan]
) -> list[Edit]:
    """Returns the edits that add the percent signs of a source to the numbers of its output.

    No sign is added to a number that the source also has without one, or before "percent".

    Args:
        kept: The kept parts of the source, in which numbers do not count.
        copies: The kept parts of the output.
    """
    in_source, in_output = _numbers(source, kept), _numbers(output, copies)
    lost = Counter(number.value for number in in_source if number.has_sign)
    lost -= Counter(number.value for number in in_output if number.has_sign or number.has_word)
    bare = {number.value for number in in_source if not number.has_sign}
    edits: list[Edit] = []
    for value, has_sign, has_word, end in in_output:
        if lost[value] > 0 and not (has_sign or has_word or value in bare):
            lost[value] -= 1
            edits.append(Edit(end, end, "% " if output[end : end + 1] == "%" else "%"))
    return edits


def _numbers(text: str, kept: Sequence[Span]) -> list[_Number]:
    """Returns the numbers of a text outside of kept parts, in order."""
    others = apply_edits(text, [Edit(begin, end, "\0" * (end - begin)) for begin, end in kept])
    return [
        _Number(value.replace(",", "."), bool(before or after), bool(word), match.end(2))
        for match in NUMBER.finditer(others)
        for before, value, after, word in [match.groups()]
    ]
