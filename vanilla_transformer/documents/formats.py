"""Kinds of files whose texts are translated, by the ends of their names."""

import html
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from vanilla_transformer.documents.html import read_html
from vanilla_transformer.documents.markdown import read_markdown
from vanilla_transformer.documents.marked_text import MarkedText, Tag, split_text
from vanilla_transformer.documents.messages import MessageDocument
from vanilla_transformer.documents.places import (
    Document,
    FileTemplate,
    Place,
    decode_markup,
    decode_text,
    find_place,
)
from vanilla_transformer.documents.po import PoFile
from vanilla_transformer.documents.tags import HTML, XHTML, Dialect
from vanilla_transformer.documents.xml import PackedDocument, read_xml
from vanilla_transformer.documents.xml_schemas import SCHEMAS
from vanilla_transformer.text.languages import JOINED_LINES, is_spaced_script_at

_TIMES = re.compile(r"[ \t]*[\d:.,]+[ \t]*-->[ \t]*[\d:.,]+")
_NUMBER = re.compile(r"[ \t]*\d+[ \t]*")
_LINE = re.compile(r"[^\r\n]+")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_DASH = re.compile(r"(?:<[^<>]*>|\s)*[-\u2013\u2014]")
_SPACE_OF_LINE = re.compile(r"([\r\n]) ")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[\[\]{},]')


def read_document(name: str, content: bytes, front_matter: Collection[str] = ()) -> MessageDocument:
    """Takes the texts out of a file.

    Args:
        name: Name of the file, whose end tells its kind.
        front_matter: The keys of the front matter of Markdown whose values are texts, too.

    Raises:
        ValueError: If the kind is not known, or the content is of another kind; it names the file
            and the line.
    """
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"{name}: no kind of document; the kinds are {', '.join(FORMATS)}.")
    read = FORMATS[suffix]
    if front_matter and read is not read_markdown:
        raise ValueError(f"{name}: only Markdown has front matter.")
    try:
        return MessageDocument(read(content, front_matter) if front_matter else read(content))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name}, line {line}: not {error.encoding.upper()} ({error.reason})."
        ) from error
    except (ValueError, RecursionError) as error:  # the latter: nested in a thousand levels
        raise ValueError(f"{name}: {error}") from error


def _read_html(content: bytes, dialect: Dialect = HTML) -> FileTemplate:
    return read_html(*decode_markup(content), dialect)


@dataclass(frozen=True, kw_only=True)
class _Cue(Place):
    """A text of subtitles.

    Attributes:
        sizes: Number of characters of each of its lines.
        breaks: The line breaks between them.
    """

    sizes: Sequence[int]
    breaks: Sequence[str]

    def write(self, output: MarkedText) -> str:
        """Breaks an output into as many lines as its source has, with nearly the same shares."""
        text, tags, last = output.text, list(output.tags), 0
        borders = [index for index, character in enumerate(text) if character == " "] or [
            index
            for index, character in enumerate(text)
            if character.isalnum() and not is_spaced_script_at(text, index)
        ]
        for number, line_break in enumerate(self.breaks, start=1):
            ideal = len(text) * sum(self.sizes[:number]) / sum(self.sizes)
            behind = [border for border in borders if border > last]
            if behind:
                last = min(behind, key=lambda border: abs(border - ideal))
                tags.append(Tag(last, line_break))
        tags.sort(key=lambda tag: tag.position)
        written = self.with_edges(replace(output, tags=tuple(tags))).write(self.escape)
        return _SPACE_OF_LINE.sub(r"\1", written)


def _read_lines(content: bytes) -> FileTemplate:
    source = decode_text(content)
    places = [
        place
        for line in _LINE.finditer(source, source.startswith("\ufeff"))
        for place in find_place(line.span(), [line[0]])
    ]
    return FileTemplate(source, places)


def _read_json(content: bytes, has_notes: bool = False) -> FileTemplate:
    """Reads JSON: all strings but names of fields, and but notes: fields with @, as in `.arb`."""
    source = decode_text(content)
    json.loads(source.removeprefix("\ufeff"))
    is_ascii = source.isascii() and "\\u" in source  # outputs are written like it
    encode = partial(json.dumps, ensure_ascii=is_ascii)
    places: list[Place] = []
    path: list[str | int] = []
    end = 0
    for token in _TOKEN.finditer(source):
        if token.start() < end:  # within a note
            continue
        if not token[1]:
            if token[0] in "[{":
                path.append(0)
            elif token[0] in "]}":
                path.pop()
            elif isinstance(path[-1], int):
                path[-1] += 1  # a comma of an array
            continue
        if token[2]:
            path[-1] = token[1]
            if has_notes and token[0].startswith('"@'):
                value = re.compile(r"\s*").match(source, token.end()).end()  # type: ignore[union-attr]  # it matches nothing, too
                _, end = json.JSONDecoder().raw_decode(source, value)
            continue
        text = json.loads(token[0])
        if _SURROGATE.search(text):
            line = source.count("\n", 0, token.start()) + 1
            raise ValueError(f"line {line}: one half of a pair of surrogates is no character.")
        make = partial(Place, encode=encode, key=tuple(path))
        places += find_place(token.span(), split_text(text), make)
    return FileTemplate(source, places)


def _cues(source: str, has_names: bool) -> Iterator[list[re.Match[str]]]:
    """Yields the lines of each text: the lines below times, up to a blank line or the next cue.

    In WebVTT, cues may have names, and notes stand between them.
    """
    lines = list(_LINE.finditer(source))
    times = [number for number, line in enumerate(lines) if _TIMES.match(line[0])]
    for first, last in pairwise([*times, len(lines)]):
        if last < len(lines) and _NUMBER.fullmatch(lines[last - 1][0]):
            last -= 1  # the number of the next cue
        rows: list[list[re.Match[str]]] = [[]]
        for before, line in pairwise(lines[first:last]):
            is_next = len(_LINE_BREAK.findall(source, before.end(), line.start())) == 1
            if not (is_next and line[0].strip()):
                rows.append([])
            if line[0].strip():
                rows[-1].append(line)
        yield from filter(None, rows[:1] if has_names else rows)


def _read_subtitles(content: bytes, has_references: bool = False) -> FileTemplate:
    """Reads SubRip, or WebVTT, which has references such as `&amp;`.

    The lines of a cue are one text, but for lines of several speakers.
    """
    source = decode_text(content)
    unescape = html.unescape if has_references else str
    places: list[Place] = []
    for lines in _cues(source, has_references):
        has_speakers = _DASH.match(lines[0][0])  # each of their lines begins with a dash
        groups: list[list[re.Match[str]]] = []
        for line in lines:
            if not groups or (has_speakers and _DASH.match(line[0])):
                groups.append([])
            groups[-1].append(line)
        for group in groups:
            begin, end = group[0].start(), group[-1].end()
            dash = _DASH.match(source, begin, end)
            after = dash.end() if dash else begin
            text = JOINED_LINES.sub("", _LINE_BREAK.sub("\n", source[after:end]))
            rest = split_text(text.replace("\n", " "))
            items = [unescape(item) if isinstance(item, str) else item for item in rest]
            make = partial(
                _Cue,
                sizes=[len(line[0]) for line in group],
                breaks=_LINE_BREAK.findall(source, begin, end),
                escape=partial(html.escape, quote=False) if has_references else str,
            )
            places += find_place((begin, end), [Tag(0, source[begin:after]), *items], make)
    return FileTemplate(source, places)


_READ_XHTML = partial(_read_html, dialect=XHTML)
FORMATS: dict[str, Callable[..., Document]] = {
    **{
        suffix: partial(PackedDocument if schema.members else read_xml, schema=schema)
        for suffix, schema in SCHEMAS.items()
    },
    ".arb": partial(_read_json, has_notes=True),
    ".epub": partial(PackedDocument, schema=SCHEMAS[".epub"], read=_READ_XHTML),
    ".htm": _read_html,
    ".html": _read_html,
    ".json": _read_json,
    ".markdown": read_markdown,
    ".md": read_markdown,
    ".po": PoFile,
    ".pot": PoFile,
    ".srt": _read_subtitles,
    ".txt": _read_lines,
    ".vtt": partial(_read_subtitles, has_references=True),
    ".xhtml": _READ_XHTML,
}
FORMATS = dict(sorted(FORMATS.items()))
