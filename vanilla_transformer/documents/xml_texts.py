"""Reads the text of an XML element with its tags and runs, and writes its translation."""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    TagKind,
    TextTranslation,
    split_text,
)
from vanilla_transformer.documents.places import LINE_BREAK, Place
from vanilla_transformer.documents.xml_elements import Element
from vanilla_transformer.documents.xml_schemas import XmlSchema
from vanilla_transformer.text.edits import Span

_ESCAPE = re.compile(r"((?:\\u[dD][89abAB][0-9a-fA-F]{2})?\\u[0-9a-fA-F]{4}|\\.|\")")
_EDGES = re.compile(r"((?:\s|\\u0020)*)(.*?)((?:\s|\\u0020)*)", re.DOTALL)
_KINDS_OF_TAGS: dict[str, TagKind] = {  # elements of XLIFF, and values of Word's `fldCharType`
    **dict.fromkeys(("bpt", "bx", "sc", "sm", "begin"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec", "em", "end"), "end"),
}


@dataclass(frozen=True)
class _XmlTag(Tag):
    """An element within a text.

    Without a text of its own, it marks where other properties of characters begin or end.

    Attributes:
        run_start: The start tag of the run around it, with its properties. Empty: it is in no run.
    """

    run_start: str = ""


class _Piece(NamedTuple):
    """A piece of a text, and the part of the file for each line break in it (`breaks`)."""

    item: Item
    run_start: str = ""
    breaks: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class XmlPlace(Place):
    """A place in XML.

    Attributes:
        prefix: The prefix of the names of its elements, such as "w:".
        run_start: The start tag of the runs outside of its pairs of tags.
        breaks: The part of the file for each line break of the text.
        frame: Returns parts of the file; the output is written between each part and the next.
    """

    schema: XmlSchema
    prefix: str
    run_start: str
    breaks: Sequence[str]
    frame: Callable[[TextTranslation], Sequence[str]] = lambda _: ("", "")

    def write(self, whole: TextTranslation) -> str:
        """As for `Place`, with runs around the texts and the frame around the output."""
        begin = f"<{self.prefix}{self.schema.run_text}>"
        written = []
        for run_start, parts in groupby(self._parts(whole), key=itemgetter(0)):
            content = "".join(part for _, part in parts)
            if run_start:
                end = f"</{self.prefix}t></{self.prefix}{self.schema.run}>"
                content = f"{run_start}{begin}{content}{end}"
            written.append(content)
        return "".join(written).join(self.frame(whole))

    def _parts(self, whole: MarkedText) -> Iterator[tuple[str, str]]:
        """Yields each text with the start tag of its run, and each tag with ""."""
        breaks = iter(self.breaks)
        run_starts = [self.run_start]
        for item in whole.items():
            if not isinstance(item, _XmlTag):  # a tag that only a stored translation has is text
                text = item if isinstance(item, str) else html.unescape(item.text)
                for index, line in enumerate(text.split("\n")):
                    if index:
                        yield "", next(breaks, r"\n" if self.schema.escapes else "\n")
                    if self.schema.escapes:
                        line = re.sub(r"""[\\'"]|\A[@?]""", r"\\\g<0>", line)
                    if line:
                        yield run_starts[-1], html.escape(line, quote=False)
            elif item.text:
                end = f"</{self.prefix}{self.schema.run}>" if item.run_start else ""
                yield "", f"{item.run_start}{item.text}{end}"
            elif item.kind == "begin":
                run_starts.append(item.run_start)
            else:
                run_starts.pop()


@dataclass(frozen=True)
class BlockReader:
    """Reads the texts of elements of a file."""

    source: str
    schema: XmlSchema

    def source_of(self, element: Element) -> str:
        """Returns an element as the file has it."""
        return self.source[element.begin : element.end]

    def places_of(self, block: Element, span: Span | None = None, **more: Any) -> Iterator[Place]:
        """Yields the place of the content of an element, if it has a text.

        Args:
            span: The part of the file that an output replaces. None: it is this content.
            more: Further fields of the place.
        """
        pieces = list(self._pieces(block, block.begin))
        has_runs = self.schema.run and block.name != "t"
        plain = f"<{block.prefix}{self.schema.run}>" if has_runs else ""
        sizes = Counter[str]()
        for item, run_start, _ in pieces:
            sizes[run_start or plain] += len(item) if isinstance(item, str) else 0
        usual = max(sizes, key=sizes.__getitem__, default="")  # most of the text needs no tags
        yield from XmlPlace.find(
            span or (block.inside, block.close),
            list(_with_runs(pieces, usual)),
            schema=self.schema,
            prefix=block.prefix,
            run_start=usual,
            breaks=[part for piece in pieces for part in piece.breaks],
            flags=self.schema.flags,
            **more,
        )

    def _pieces(self, parent: Element, begin: int) -> Iterator[_Piece]:
        """Yields the pieces of the text in an element.

        Args:
            begin: The position of `parent`, or of the element around a run, for the names of pairs.
        """
        schema, run_start = self.schema, self._run_start_of(parent)
        end = f"</{parent.prefix}{schema.run}>" if run_start else ""
        for element in parent.children:
            if element.text is not None:
                yield from self._split_text(element, parent, begin)
            elif run_start and element.name == "t":
                text = "".join(part.text or "" for part in element.children)
                frame = f"{run_start}{element.tag}", f"</{element.prefix}t>{end}"
                yield self._lines(text, run_start, frame)
            elif schema.breaks & {element.name, *map(element.attribute, ("ctype", "subType"))}:
                yield _Piece("\n", run_start, [f"{run_start}{self.source_of(element)}{end}"])
            elif element.name in schema.characters:
                yield _Piece(schema.characters[element.name], run_start)
            elif schema.run and element.name == schema.run:
                yield from self._pieces(element, begin)
            elif element.name in schema.inline and element.children and not element.is_fixed:
                name = str(element.begin)
                yield _Piece(_XmlTag(0, element.tag, "begin", name))
                yield from self._pieces(element, element.begin)
                yield _Piece(_XmlTag(0, self.source[element.close : element.end], "end", name))
            elif element.name != "rPr":
                kind = _KINDS_OF_TAGS.get(element.attribute("fldCharType") or element.name, "empty")
                numbers = filter(None, map(element.attribute, ("startRef", "rid", "id")))
                name = f"{begin} {next(numbers, '')}"
                span = (element.begin, element.end)
                tag = _XmlTag(0, self.source_of(element), kind, name, span, run_start=run_start)
                yield _Piece(tag, run_start)

    def _run_start_of(self, element: Element) -> str:
        """Returns the start tag of a run with its properties, or "" for another element."""
        if not self.schema.run or element.name != self.schema.run:
            return ""
        properties = element.child("rPr")
        written = self.source_of(properties) if properties else ""
        return f"<{element.prefix}{self.schema.run}>{written}"

    def _split_text(self, text: Element, parent: Element, begin: int) -> Iterator[_Piece]:
        """Yields the pieces of the text between two tags. In a run, only its `t` has text."""
        content, schema = text.text or "", self.schema
        if text.tag[0] == "&" and not content.strip("\r\n"):  # a reference to a line break
            if re.fullmatch(schema.lines, "\n"):
                yield _Piece("\n", self._run_start_of(parent), [text.tag])
            else:  # programs read a space
                yield from (_Piece(" ", self._run_start_of(parent)), _Piece(_XmlTag(0, text.tag)))
        elif schema.escapes:
            yield from _unescaped(text, parent)
        elif schema.root:  # tags in it are written as text
            for item in split_text(content):
                yield self._lines(item) if isinstance(item, str) else _as_text(item, begin)
        elif not schema.run or parent.name == "t":
            yield self._lines(content)

    def _lines(self, text: str, run_start: str = "", frame: tuple[str, str] = ("", "")) -> _Piece:
        """Returns a text with a line break for each match of `schema.lines`; others become spaces.

        In the file, `frame` is around each match.
        """
        parts = re.split(f"({self.schema.lines})", text)
        breaks = [sign.join(frame) for sign in parts[1::2]]
        lines = "\n".join(LINE_BREAK.sub(" ", part) for part in parts[::2])
        return _Piece(lines, run_start, breaks)


def _with_runs(pieces: Sequence[_Piece], usual: str) -> Iterator[Item]:
    """Yields texts and tags, with a pair of tags around texts whose run is not the usual one."""
    current, name = usual, ""  # no run is open
    for index, (item, run_start, _) in enumerate(pieces):
        if isinstance(item, Tag):  # the runs of a pair of tags are within it
            run_start = current if item.kind == "empty" else usual
        elif not item.strip():
            run_start = current
        if run_start != current:
            if current != usual:
                yield _XmlTag(0, "", "end", name)
            name = f"run {index}"
            if run_start != usual:
                yield _XmlTag(0, "", "begin", name, run_start=run_start)
            current = run_start
        yield item
    if current != usual:
        yield _XmlTag(0, "", "end", name)


def _as_text(tag: Tag, parent: int) -> _Piece:
    """Returns a tag that XML holds as text: it is escaped, and pairs within `parent`."""
    text = html.escape(tag.text, quote=False)
    return _Piece(_XmlTag(0, text, tag.kind, f"{parent} {tag.name}"))


def _unescaped(element: Element, block: Element) -> Iterator[_Piece]:
    r"""Yields the content of a text of Android; `\n` parts it, and quotes around it are tags.

    White space at an edge of a string is a tag, too: it may be an escape.
    """
    before, text, behind = _EDGES.fullmatch(element.text or "").groups()  # type: ignore[union-attr]  # it matches any text
    if not (block.is_block and element is block.children[0]):
        before, text = "", before + text
    if not (block.is_block and element is block.children[-1]):
        text, behind = text + behind, ""
    if before:
        yield _Piece(_XmlTag(0, before))
    for item in split_text(text):
        if isinstance(item, Tag):
            yield _as_text(item, block.begin)
            continue
        for index, part in enumerate(_ESCAPE.split(item)):  # texts and escapes by turns
            if index % 2 == 0:
                yield _Piece(LINE_BREAK.sub(" ", part))
            elif part == '"':
                yield _Piece(_XmlTag(0, part))
            elif part in (r"\n", r"\t"):
                yield _Piece("\n", breaks=[part])
            elif len(part) == 2:
                yield _Piece(part[1])
            else:
                code = bytes.fromhex(part.replace(r"\u", ""))
                yield _Piece(code.decode("utf-16-be", "replace"))
    if behind:
        yield _Piece(_XmlTag(0, behind))
