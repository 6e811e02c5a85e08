"""Placeholders of printf, such as `%s` and `%2$d`, and their numbers."""

from collections.abc import Collection, Iterable
from itertools import count

import regex

from vanilla_transformer.text.edits import Edit, Span, SpanPair

# A conversion is %, flags, a width, a precision, the size of the value, and a letter.
_STAR_WIDTH = r"\*(?:\d+\$)?"
_VECTOR = rf"(?:(?:{_STAR_WIDTH})?v(?=[\d.*]))?"  # of Perl, as in `%*v02x`
SIZE = rf"{_VECTOR}(?:\d+|{_STAR_WIDTH})?(?:\.(?:\d+|\*))?(?:hh?|ll?|w(?:f?\d+)?|[zjtLqv])?"
FLAGS = r"[-+#0]*(?:'(?=[\d.]*[diufg]))?"
# The formats of gettext with whose placeholders numbers are allowed.
_WITH_NUMBERS = (
    "awk boost c elisp gcc-internal java-printf javascript librep numbered objc perl php ruby tcl"
)
_POSITION = regex.compile(r"%(\d+)\$")
_STAR = regex.compile(r"\*(?!\d)")  # a width that is a value, unlike PHP's `%'*10s`
BY_NUMBER = regex.compile(r"(?<=\p{Nd}\s?)%%|%%(?=\p{Nd})")  # the percent sign of any text
# `{}`, `{:x}` and Lisp's `~A` also stand for the next one of several values.
PRINTF_PART = regex.compile(
    rf"(?:%%)?(%(?:\d+\$)?(?:[-+#0'Iq,(]*|'.| ){SIZE}(?:[a-zA-Z@]|<\w+>))(?:\s?%%)?"
    r"|\{(?::[^{}]*)?\}|~(?!/)[^~%&]+"
)


def normalized_part(part: str, is_numbered: bool = True) -> str:
    """Returns the form by which parts are compared: `%d%%` for `%d %%` and `%%%d`.

    The numbers of `%1$s` and `%2$s` count only if `is_numbered`.
    """
    if not is_numbered:
        part = _POSITION.sub("%", part)
    is_share = "%%" in part and PRINTF_PART.fullmatch(part)
    return f"{''.join(part.split()).replace('%%', '', 1)}%%" if is_share else part


def without_percent(text: str, span: Span) -> Span:
    """Returns the span of a part without the percent signs beside a placeholder of printf."""
    match = PRINTF_PART.fullmatch(text, *span)
    return match.span(1) if match and match[1] else span


def written_number(part: str) -> int:
    """Returns the number of a placeholder such as `%2$s`, or 0 if it has none."""
    match = _POSITION.match(part)
    return int(match[1]) if match else 0


def have_numbers(parts: Iterable[str]) -> bool | None:
    """Returns whether placeholders such as `%s` have numbers, or None if only some have."""
    found = {bool(_POSITION.search(part)) for part in parts if PRINTF_PART.fullmatch(part)}
    return None if len(found) > 1 else True in found


def takes_next_value(part: str) -> bool:
    """Returns whether a part is a placeholder such as `%s`, for the next one of several values."""
    return bool(PRINTF_PART.fullmatch(part)) and not _POSITION.search(part)


def value_numbers(parts: Iterable[str]) -> list[int]:
    """Returns the number of the value of each placeholder; `%*d` has its width before it."""
    numbers: list[int] = []
    last = 0
    for part in parts:
        if number := _POSITION.search(part):
            numbers.append(int(number[1]))
        else:
            last += 1 + len(_STAR.findall(part))
            numbers.append(last)
    return numbers


def with_number(part: str, number: int) -> str:
    """Returns a placeholder with the number of its value: `%2$s`, `%3$*2$d`."""
    widths = count(number - len(_STAR.findall(part)))
    numbered = _STAR.sub(lambda _: f"*{next(widths)}$", part)
    return str(regex.sub(r"%(?:\d+\$)?(?=[^%])", f"%{number}$", numbered, count=1))


def may_be_numbered(flags: Collection[str]) -> bool:
    """Returns whether a message with these flags may number its placeholders, as `%2$s`."""
    names = {flag.removesuffix("-format") for flag in flags}
    return not names.isdisjoint(_WITH_NUMBERS.split()) and "python" not in names


def edits_to_number(source: str, output: str, pairs: Iterable[SpanPair]) -> list[Edit]:
    """Returns the edits that number the placeholders of an output whose order differs."""
    values = [  # but for `%m`, the message of errno, and `%n`, the line break of Java
        (in_source, in_output)
        for in_source, in_output in sorted(pairs)
        if PRINTF_PART.fullmatch(part := output[slice(*in_output)]) and part not in ("%m", "%n")
    ]
    source_parts = [source[slice(*in_source)] for in_source, _ in values]
    if have_numbers(source_parts) is None:  # only some have: no program can parse them
        return []
    wanted = zip(values, value_numbers(source_parts), strict=True)
    in_order = sorted((in_output, in_source, number) for (in_source, in_output), number in wanted)
    parts = [output[slice(*in_output)] for in_output, _, _ in in_order]
    if value_numbers(parts) == [number for _, _, number in in_order]:
        return []
    return [
        Edit(*in_output, with_number(part, number), in_source)
        for part, (in_output, in_source, number) in zip(parts, in_order, strict=True)
    ]
