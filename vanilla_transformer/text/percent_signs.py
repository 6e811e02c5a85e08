"""The percent signs of an output: doubled as its source doubles them, and beside its numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence

import regex

from vanilla_transformer.text.edits import Edit, OutputSpan, SourceSpan, Span, apply_edits
from vanilla_transformer.text.patterns import find_patterns
from vanilla_transformer.text.printf import PRINTF_PART

_DOUBLING = regex.compile(rf".*%%|%[(<]|(?=%)(?:{PRINTF_PART.pattern})\Z")
"""A part of a text that writes a percent sign as `%%`."""
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


def edits_to_double_percents(
    source: str, kept: Sequence[SourceSpan], output: str, flags: frozenset[str] = frozenset()
) -> list[Edit]:
    """Returns the edits that double the percent signs of an output as its source doubles them."""
    parts = [source[slice(*span)] for span in kept]
    if not ("%" in output and any(map(_DOUBLING.match, parts))):
        return []
    if _signs_outside(source, kept):
        return []
    others = [
        (begin, end)
        for (begin, end), _ in find_patterns(output, parts, flags=flags)
        if output[begin:end] in parts or not SHARE.match(output, begin)
    ]
    signs = _signs_outside(output, others)
    return [Edit(n, n + 1, "" if output[n - 1 : n] == "%" else "%%") for n in signs]


def _signs_outside(text: str, parts: Iterable[Span]) -> list[int]:
    """Returns the positions of the percent signs of a text that are in none of its parts."""
    inside = {position for part in parts for position in range(*part)}
    return [n for n, sign in enumerate(text) if sign == "%" and n not in inside]


def edits_to_add_percents(
    source: str, kept: Sequence[SourceSpan], output: str, copies: Sequence[OutputSpan]
) -> list[Edit]:
    """Returns the edits that add the percent signs of a source to the numbers of its output.

    A number that the source has without a sign, too, gets none, nor does a number before a word for
    "percent".

    Args:
        kept: The kept parts of the source, in which numbers do not count.
        copies: The kept parts of the output.
    """
    in_source, in_output = _numbers(source, kept), _numbers(output, copies)
    lost = Counter(number for number, sign, _, _ in in_source if sign)
    lost -= Counter(number for number, sign, word, _ in in_output if sign or word)
    bare, edits = {number for number, sign, _, _ in in_source if not sign}, list[Edit]()
    for number, sign, word, end in in_output:
        if lost[number] > 0 and not (sign or word or number in bare):
            lost[number] -= 1
            edits.append(Edit(end, end, "% " if output[end : end + 1] == "%" else "%"))
    return edits


def _numbers(text: str, kept: Sequence[Span]) -> list[tuple[str, str | None, str | None, int]]:
    """Returns the numbers outside of kept parts, each with its sign, the word after, its end."""
    others = apply_edits(text, [Edit(begin, end, "\0" * (end - begin)) for begin, end in kept])
    found = NUMBER.finditer(others)
    return [(n[2].replace(",", "."), n[1] or n[3], n[4], n.end(2)) for n in found]
