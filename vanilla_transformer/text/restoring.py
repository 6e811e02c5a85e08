"""Puts kept parts that an output lacks back into it; the alignment tells the place of each."""

import html
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import chain, product

import regex

from vanilla_transformer.text.edits import Edit, OutputSpan, SourceSpan, meets, stripped
from vanilla_transformer.text.kept import Copies
from vanilla_transformer.text.languages import is_spaced_script_at
from vanilla_transformer.text.patterns import is_part_at, pattern_of
from vanilla_transformer.text.token_links import TokenLinks

OutputSpans = Sequence[OutputSpan]
_ADDRESS_PART = regex.compile(r"[\w.@/:+-]*", regex.ASCII)
_ADDRESS_END = regex.compile(rf"{_ADDRESS_PART.pattern}$", regex.ASCII)
SIMILAR = 0.4
"""Smallest similarity of a damaged copy to the kept part that it replaces.

All examples of tests/text/test_kept.py come out right from 0.3 to 0.5. At 0.2 the output loses
letters that are no copy ("v" of "v%d" for "%.1f"), at 0.6 damaged copies stay beside the part.
"""


def edits_to_restore(copies: Copies, links: TokenLinks, protected: OutputSpans = ()) -> list[Edit]:
    """Returns the edits that give an output each kept part as often as its source has it.

    The edits are in order and do not overlap. Protected parts of the output, such as terms, stay.
    """
    output = copies.output
    edits: list[Edit] = []
    taken = [*copies.in_output, *protected]
    spare = [extra.span for extra in copies.spare]
    for span in _missing_parts(copies, links):
        edit = replace(_edit_for(span, copies, links, spare, taken), in_source=span)
        spare = [other for other in spare if not meets(other, [edit.span])]
        part = edit.text.strip()
        left, _, right = edit.text.partition(part)
        # Parts that earlier edits put into the same gap stand before this one.
        others = "".join(other.text for other in edits if other.span == (edit.begin, edit.begin))
        before, after = output[: edit.begin] + others + left, right + output[edit.end :]
        edits.append(replace(edit, text=left + with_needed_spaces(part, before, after) + right))
        taken.append(edit.span)
    edits += [
        Edit(len(output[: extra.span[0]].rstrip()), extra.span[1], "")  # with the space before it
        for extra in copies.spare
        if extra.must_go and extra.span in spare
    ]
    return sorted(edits, key=lambda edit: edit.span)


def _missing_parts(copies: Copies, links: TokenLinks) -> list[SourceSpan]:
    """Returns the parts that an output lacks; of equal ones, first those without a linked copy."""

    def has_linked_copy(span: SourceSpan) -> bool:
        return any(meets(linked, copies.in_output) for linked in links.linked_with(span))

    missing = (sorted(alike, key=has_linked_copy)[:count] for alike, count in copies.missing)
    return sorted(chain.from_iterable(missing))


def _edit_for(
    span: SourceSpan, copies: Copies, links: TokenLinks, spare: OutputSpans, taken: OutputSpans
) -> Edit:
    """Returns the edit that puts a kept part over a copy, over another part, or into a gap."""
    source, output = copies.source, copies.output
    text = source[slice(*span)]
    linked = [own for own in links.linked_with(span) if not meets(own, taken)]
    copy = _exact_copy(text, output, [*taken, *spare])
    copy = copy or _damaged_copy(text, output, linked, spare, taken)
    if copy is None and spare:  # the linked spare part, or else the first one, is in its place
        copy = min(spare, key=lambda other: (not meets(other, linked), other))
    if copy is not None:
        return Edit(*copy, text)
    before, after = source[: span[0]][-1:] or " ", source[span[1] :][:1]
    gap = _gap(span, output, links, taken, before.isspace() and bool(after.strip()))
    left, right = output[:gap][-1:], output[gap:][:1]
    follows_text = bool(left.strip() or (taken and not output))  # or a part put into nothing
    space_before = " " if before.isspace() and follows_text else ""
    space_after = " " if right.isalnum() and not after.isalnum() else ""
    return Edit(gap, gap, space_before + text + space_after)


def _exact_copy(text: str, output: str, others: OutputSpans) -> OutputSpan | None:
    """Returns a copy that is no kept part, since it touches a letter or another copy."""
    written = f"(?:{regex.escape(text)})+"
    if text.startswith("&"):  # or the sign that a reference stands for
        written += rf"|{regex.escape(html.unescape(text))}(?![#\w])"
    found = (match.span() for match in regex.finditer(written, output))
    return next((span for span in found if not meets(span, others)), None)


def _damaged_copy(
    text: str, output: str, linked: OutputSpans, spare: OutputSpans, taken: OutputSpans
) -> OutputSpan | None:
    """Returns the span of the text that is linked with a part, if it is similar to the part."""
    if not linked:
        return None
    begin, end = stripped(output, (linked[0][0], linked[-1][1]))
    for other in [other for other in spare if meets(other, [(begin, end)])]:
        begin, end = min(begin, other[0]), max(end, other[1])
    pattern = pattern_of(text)
    if pattern and pattern.kind in ("address", "path", "option"):
        # Some parts of the damaged copy may be linked with other words: it is taken whole.
        begin = _ADDRESS_END.search(output, endpos=begin).start()
        end = _ADDRESS_PART.match(output, end).end()
    elif "{" in text:  # its braces may be tokens without a link
        begin = len(output[:begin].rstrip(f"{text[0]}{{"))
        end = len(output) - len(output[end:].lstrip("}"))
    letters = "".join(output[begin:end].split())  # tokens of a damaged copy often stand apart
    is_similar = SequenceMatcher(None, letters, text).ratio() >= SIMILAR
    return (begin, end) if is_similar and not meets((begin, end), taken) else None


def _gap(
    span: SourceSpan, output: str, links: TokenLinks, taken: OutputSpans, touches_next: bool
) -> int:
    """Returns the position for a kept part: after the translation of the text before it.

    A part that touches only the text after it goes directly before the translation of that text.
    """
    ends = [(n, end) for (_, end), n in links.pairs() if links.in_source[n][1] <= span[0]]
    begins = [(n, begin) for (begin, _), n in links.pairs() if links.in_source[n][0] >= span[1]]
    nearest = [max(ends, default=None), min(begins, default=None)]  # by the tokens of the source
    if touches_next:
        nearest.reverse()
    gap = next((position for _, position in filter(None, nearest)), len(output))
    while 0 < gap < len(output) and output[gap - 1 : gap + 1].isalnum():
        if not is_spaced_script_at(output, gap):
            break
        gap += 1  # no word is divided
    return next((end for begin, end in taken if begin < gap < end), gap)


def with_needed_spaces(part: str, before: str, after: str) -> str:
    """Returns a kept part with the spaces that it needs to be recognised between two texts.

    `%d` before a letter is no placeholder, and `/tmp` after one is no path.
    """
    for left, right in product(("", " "), repeat=2):
        if is_part_at(part, before + left + part + right + after, len(before + left)):
            return left + part + right
    return part
