"""Subtitles of SubRip and WebVTT: a cue is a text, or several if it has several speakers."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from vanilla_transformer.documents.marked_text import Item, MarkedText, Tag, split_text
from vanilla_transformer.documents.places import LINE_BREAK, Place
from vanilla_transformer.text.languages import JOINED_LINES, is_spaced_script_at

_BREAK = r"(?:\r\n?|\n|\Z)"
_TIME = r"[ \t]*[\d:.,]+[ \t]*"
_NUMBER = rf"(?:[ \t]*\d+[ \t]*{_BREAK})?"
_HEAD = re.compile(rf"(?<![^\r\n]){_NUMBER}{_TIME}-->{_TIME}[^\r\n]*{_BREAK}")
_TIMES = re.compile(r"\d+:\d\d[^\r\n]*-[^\r\n]*\d:\d\d[\d.,]*")
_LINE = re.compile(r"[^\r\n]+")
_LINES = re.compile(rf"(?<![^\r\n])(?:[^\S\r\n]*+\S[^\r\n]*+{_BREAK})+")  # none of them is blank
_DASH = re.compile(r"(?:<[^<>]*>|\s)*[-\u2013\u2014]")
_WRITTEN_BREAK = re.compile(r"(&lt;br\s*/?&gt;)", re.IGNORECASE)
_SPACE_OF_LINE = re.compile(r"([\r\n]) ")


def places_of_subtitles(source: str, is_web_vtt: bool = False) -> Iterator[Place]:
    """Yields the places of texts of SubRip, or of WebVTT, which has references such as `&amp;`."""
    for lines in _texts(source, is_web_vtt):
        begin, end = lines[0].start(), lines[-1].end()
        dash = _DASH.match(source, begin, end)
        text_begin = dash.end() if dash else begin
        text = LINE_BREAK.sub("\n", source[text_begin:end])
        items = split_text(JOINED_LINES.sub("", text).replace("\n", " "))
        if is_web_vtt:
            items = [*chain.from_iterable(map(_unescaped, items))]
        yield from _Cue.find(
            (begin, end),
            [Tag(0, source[begin:text_begin]), *items],
            lengths=[len(line[0]) for line in lines],
            breaks=LINE_BREAK.findall(source, begin, end),
            escape=_escaped if is_web_vtt else str,
        )


def _unescaped(item: Item) -> Iterator[Item]:
    """Yields an item of WebVTT without references; a `<br>` that is written with them is a tag."""
    if isinstance(item, Tag):
        yield item
        return
    for index, part in enumerate(_WRITTEN_BREAK.split(item)):
        yield Tag(0, part) if index % 2 else html.unescape(part)


def _escaped(text: str) -> str:
    """Returns a text of WebVTT, in which line breaks may be tags."""
    return _WRITTEN_BREAK.sub(lambda found: html.unescape(found[0]), html.escape(text, quote=False))


def _texts(source: str, is_web_vtt: bool) -> Iterator[list[re.Match[str]]]:
    """Yields the lines of each text: a cue, or the part of one speaker in it.

    A cue is the lines below its times, up to a blank line or the next cue. In SubRip, the lines
    behind a blank line are texts, too; in WebVTT, they may be names and notes.
    """
    heads = [head.span() for head in _HEAD.finditer(source)]
    if not heads and (times := _TIMES.search(source)):
        raise ValueError(f"{times[0]!r} are no times, such as 00:00:01.000 --> 00:00:02.000.")
    for (_, begin), (end, _) in pairwise([*heads, (len(source), 0)]):
        first = _LINES.match(source, begin, end)
        found = [first] if is_web_vtt else _LINES.finditer(source, begin, end)
        for lines in filter(None, found):
            cue = list(_LINE.finditer(source, *lines.span()))
            has_speakers = _DASH.match(cue[0][0])  # each of their lines begins with a dash
            starts = [n for n, line in enumerate(cue) if n and _DASH.match(line[0])]
            for start, stop in pairwise([0, *(starts if has_speakers else []), len(cue)]):
                yield cue[start:stop]


@dataclass(frozen=True, kw_only=True)
class _Cue(Place):
    """A text of subtitles.

    Attributes:
        lengths: Number of characters of each of its lines.
        breaks: The line breaks between them.
    """

    lengths: Sequence[int]
    breaks: Sequence[str]

    def write(self, whole: MarkedText) -> str:
        """Writes an output in as many lines as its source has, in nearly the same proportions."""
        text = whole.plain
        borders = [n for n, sign in enumerate(text) if sign == " "] or [
            n for n, sign in enumerate(text) if sign.isalnum() and not is_spaced_script_at(text, n)
        ]
        tags = list(whole.tags)
        last = 0
        for number, line_break in enumerate(self.breaks, start=1):
            ideal = len(text) * sum(self.lengths[:number]) / sum(self.lengths)
            if following := [border for border in borders if border > last]:
                last = min(following, key=lambda border: abs(border - ideal))
                tags.append(Tag(last, line_break))
        tags.sort(key=lambda tag: tag.position)
        written = replace(whole, tags=tuple(tags)).write(self.escape)
        return _SPACE_OF_LINE.sub(r"\1", written)
