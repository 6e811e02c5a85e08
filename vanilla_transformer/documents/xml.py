"""The texts of XML: of word processors and presentations, which pack it in zip files, and XLIFF.

A table tells for each format which elements hold a text, and which of those within a text hold
parts of it. All others stay as they are.
"""

import html
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from xml.parsers import expat

from vanilla_transformer.documents.markup import MarkedText
from vanilla_transformer.documents.places import (
    Code,
    Document,
    Item,
    Kind,
    Place,
    is_translated,
    split_edges,
    with_tags,
    without,
)

_DECLARED = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""")
_TOKEN = re.compile(
    r"""
    <!--.*?--> | <\?.*?\?> | <!DOCTYPE(?:[^\[>"']|"[^"]*"|'[^']*')*(?:\[.*?\]\s*)?>
    |<!\[CDATA\[(?P<literal>.*?)\]\]>
    |</(?P<closed>[^\s>]+)\s*>
    |<(?P<opened>[^\s/>]+)(?:[^>"']|"[^"]*"|'[^']*')*>
    """,
    re.DOTALL | re.VERBOSE,
)
_LINE_BREAK = re.compile(r"[\r\n]")
_STATE = re.compile(r"""\sstate(?:-qualifier)?\s*=\s*("[^"]*"|'[^']*')""")
_RUN = "\0"
"""Begins the code around characters whose properties are not the usual ones of their text."""


@dataclass(frozen=True)
class XmlFormat:
    """Which elements of a kind of file hold texts, by their names without prefixes.

    Attributes:
        members: Pattern of the names of the XML files in a zip file. "": the file is one itself.
        blocks: Those that hold a text each.
        inline: Those that hold a part of it. All others in a block are codes.
        breaks: Those that part a text, as line breaks and tabs do.
        run: The one around characters of the same properties `rPr`, which are in its `t`.
        kept: Those in which nothing is translated.
    """

    members: str
    blocks: frozenset[str]
    inline: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    run: str = ""
    kept: frozenset[str] = frozenset()


DOCX = XmlFormat(
    members=r"word/(?:document\d*|header\d*|footer\d*|footnotes|endnotes)\.xml",
    blocks=frozenset({"p"}),
    inline=frozenset({"hyperlink", "ins", "moveTo", "sdt", "sdtContent", "smartTag"}),
    breaks=frozenset({"br", "cr", "tab"}),
    run="r",
)
PPTX = XmlFormat(
    members=r"ppt/(?:slides|notesSlides|diagrams|charts)/[^/]+\.xml",
    blocks=frozenset({"p"}),
    breaks=frozenset({"br"}),
    run="r",
)
ODT = XmlFormat(
    members=r"content\.xml|styles\.xml",
    blocks=frozenset({"h", "p"}),
    inline=frozenset({"a", "meta", "span"}),
    breaks=frozenset({"line-break", "tab"}),
    kept=frozenset({"annotation", "tracked-changes"}),
)
XLIFF = XmlFormat(
    members="",
    blocks=frozenset({"segment", "trans-unit"}),
    inline=frozenset({"g", "mrk", "pc"}),
)
_KINDS_OF_CODES: dict[str, Kind] = {  # elements of XLIFF, and values of Word's `fldCharType`
    **dict.fromkeys(("bpt", "bx", "sc", "sm", "begin"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec", "em", "end"), "end"),
}


@dataclass
class _Element:
    """An element, a comment or the like, or text, and where it stands in the file.

    Attributes:
        inside: Where its content begins.
        close: Where its content ends.
        text: What a text says. None: it is none.
        is_kept: Whether nothing in it is translated.
    """

    name: str
    prefix: str
    tag: str
    begin: int
    inside: int
    close: int
    end: int
    text: str | None = None
    is_kept: bool = False
    children: list["_Element"] = field(default_factory=list)

    def attribute(self, name: str) -> str:
        match = re.search(rf"""\s(?:\w+:)?{name}\s*=\s*(?:"([^"]*)"|'([^']*)')""", self.tag)
        return match[1] or match[2] or "" if match else ""

    def child(self, name: str) -> "_Element | None":
        return next((child for child in self.children if child.name == name), None)


def read_xml(content: bytes, form: XmlFormat) -> Document:
    """Reads a file of XML.

    Raises:
        ValueError: If it is not well-formed; the error names the line.
    """
    declared = _DECLARED.match(content)
    encoding = declared[1].decode() if declared else "utf-8"
    source = content.decode(encoding)
    try:
        expat.ParserCreate("utf-8").Parse(source.removeprefix("\ufeff").encode(), True)
    except expat.ExpatError as error:
        raise ValueError(f"no well-formed XML: {error}") from error
    return Document(source, _Reader(source, form).places, encoding)


class PackedDocument:
    """A zip file, of which some members are documents.

    Raises:
        ValueError: If the file is damaged; the error names the member.
    """

    def __init__(self, content: bytes, form: XmlFormat) -> None:
        self._content = content
        self._members: dict[str, Document] = {}
        name = "no intact zip file of this kind"
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                for name in filter(re.compile(form.members).fullmatch, packed.namelist()):
                    self._members[name] = read_xml(packed.read(name), form)
        except (ValueError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # a password
            raise ValueError(f"{name}: {error}") from error
        if not self._members:
            raise ValueError(name)
        self.texts = [text for member in self._members.values() for text in member.texts]

    def write(self, outputs: Sequence[MarkedText]) -> bytes:
        """Returns the file with an output in the place of each of `texts`."""
        remaining, result = iter(outputs), io.BytesIO()
        written = {
            name: member.write(list(islice(remaining, len(member.texts))))
            for name, member in self._members.items()
        }
        with (
            zipfile.ZipFile(io.BytesIO(self._content)) as old,
            zipfile.ZipFile(result, "w") as new,
        ):
            for info in old.infolist():
                new.writestr(info, written.get(info.filename) or old.read(info))
        return result.getvalue()


class _Reader:
    """Finds the places of the texts of a well-formed file."""

    def __init__(self, source: str, form: XmlFormat) -> None:
        self.source, self.form = source, form
        self.places: list[Place] = []
        path, position = [_Element("", "", "", 0, 0, len(source), len(source))], 0
        for match in _TOKEN.finditer(source):
            begin, end = match.span()
            if position < begin:
                text = html.unescape(source[position:begin])
                path[-1].children.append(_Element("", "", "", position, 0, 0, begin, text))
            position = end
            if match["closed"]:
                element = path.pop()
                element.close, element.end = begin, end
                self._read(element)
                continue
            prefix, colon, name = (match["opened"] or "").rpartition(":")
            element = _Element(
                name, prefix + colon, match[0], begin, end, end, end, match["literal"]
            )
            asked = element.attribute("translate") if form is XLIFF else ""
            element.is_kept = (
                name in form.kept or asked == "no" or (path[-1].is_kept and asked != "yes")
            )
            path[-1].children.append(element)
            if name and not match[0].endswith("/>"):
                path.append(element)

    def _read(self, element: _Element) -> None:
        """Adds the place of an element, if it has a text."""
        if element.name not in self.form.blocks or element.is_kept:
            return
        block = element.child("source") if self.form is XLIFF else element
        if block is None:
            return
        text, written = self._text_of(block)
        if not is_translated(text.text):
            return
        if self.form is XLIFF:
            self._add_target(element, block, text, written)
            return
        begin, end = block.inside, block.close
        stays = without(self.source, self.places, begin, end)
        self.places.append(Place(begin, end, text, written, stays))

    def _add_target(
        self,
        unit: _Element,
        source: _Element,
        text: MarkedText,
        written: Callable[[MarkedText], str],
    ) -> None:
        """Adds the place of a unit of XLIFF, from its begin to the end of its target."""
        name = f"{source.prefix}target"
        target = unit.child("target")
        if target is None:
            end = (unit.child("seg-source") or source).end
            indent = self.source[unit.inside : source.begin]
            before, tag = (
                self.source[unit.inside : end] + indent[len(indent.rstrip()) :],
                f"<{name}>",
            )
        else:
            end, before, tag = target.end, self.source[unit.inside : target.begin], target.tag
            state = target.attribute("state") or unit.attribute("state")
            is_asked = state in ("new", "initial") or state.startswith("needs-")
            if target.inside < target.close and not is_asked:
                return
        unit_tag = unit.tag
        if unit.name == "segment":  # version 2
            unit_tag = _with_state(unit_tag, "")
        else:
            tag = _with_state(tag, ' state-qualifier="mt-suggestion"')

        def written_unit(output: MarkedText) -> str:
            return f"{unit_tag}{before}{tag}{written(output)}</{name}>"

        if unit.attribute("approved") != "yes":
            self.places.append(Place(unit.begin, end, text, written_unit))

    def _text_of(self, block: _Element) -> tuple[MarkedText, Callable[[MarkedText], str]]:
        """Returns the text of a block, and what writes its content with an output."""
        breaks: list[str] = []
        items = list(self._items(block, breaks, block.begin))
        sizes = Counter[str]()
        for properties, item in items:
            sizes[properties] += len(item) if isinstance(item, str) else 0
        usual = max(sizes, key=sizes.__getitem__, default="")
        before, text, after = split_edges(list(_with_runs(items, usual)))
        run, name = f"{block.prefix}{self.form.run}", f"{block.prefix}t"
        space = ' xml:space="preserve"' if self.form is DOCX else ""

        def written(output: MarkedText) -> str:
            parts: list[str] = []
            breaks_left, runs, open_run = iter(breaks), [usual], None

            def in_run(properties: str | None) -> None:
                nonlocal open_run
                if self.form.run and properties != open_run:
                    if open_run is not None:
                        parts.append(f"</{name}></{run}>")
                    if properties is not None:
                        parts.append(f"<{run}>{properties}<{name}{space}>")
                    open_run = properties

            for item in (*before, *output.parts(), *after):
                if isinstance(item, str):
                    for number, line in enumerate(item.split("\n")):
                        if number:
                            in_run(None)
                            parts.append(next(breaks_left, "\n"))
                        if line:
                            in_run(runs[-1])
                            parts.append(html.escape(line, quote=False))
                elif not item.text.startswith(_RUN):
                    in_run(None)
                    parts.append(item.text)
                elif item.kind == "begin":
                    runs.append(item.text.removeprefix(_RUN))
                else:
                    runs.pop()
            in_run(None)
            return "".join(parts)

        return text, written

    def _items(self, parent: _Element, breaks: list[str], place: int) -> Iterator[tuple[str, Item]]:
        """Yields texts and codes, each with the properties of its run.

        Args:
            breaks: Gets what the file has where it parts the text, for a line break each.
            place: That of the element around `parent`, if that is a run: codes of two elements are
                no pair.
        """
        form, properties, run = self.form, "", ("", "")
        if parent.name == form.run:
            own = parent.child("rPr")
            properties = self.source[own.begin : own.end] if own else ""
            run = f"<{parent.prefix}{form.run}>{properties}", f"</{parent.prefix}{form.run}>"
        for element in parent.children:
            raw = without(self.source, self.places, element.begin, element.end)
            if element.text is not None:
                if form is XLIFF:  # tags in it are written as text
                    yield from (("", _as_text(item, place)) for item in with_tags(element.text))
                elif not form.run:
                    yield "", _LINE_BREAK.sub(" ", element.text)
            elif run[0] and element.name == "t":
                text = "".join(part.text or "" for part in element.children)
                tab = f"{element.tag}\t</{element.prefix}t>"
                breaks += [tab.join(run)] * text.count("\t")
                yield properties, _LINE_BREAK.sub(" ", text).replace("\t", "\n")
            elif element.name in form.breaks:
                breaks.append(raw.join(run))
                yield properties, "\n"
            elif form.run and element.name == form.run:
                yield from self._items(element, breaks, place)
            elif element.name in form.inline and element.children and not element.is_kept:
                name = str(element.begin)
                yield "", Code(element.tag, "begin", name)
                yield from self._items(element, breaks, element.begin)
                yield "", Code(self.source[element.close : element.end], "end", name)
            elif element.name != "rPr":
                kind = _KINDS_OF_CODES.get(
                    element.attribute("fldCharType") or element.name, "empty"
                )
                names = map(element.attribute, ("startRef", "rid", "id"))
                yield (
                    properties,
                    Code(raw.join(run), kind, f"{place} {next(filter(None, names), '')}"),
                )


def _with_runs(items: Sequence[tuple[str, Item]], usual: str) -> Iterator[Item]:
    """Yields texts and codes, with a pair of codes around texts of other properties."""
    current, name = usual, ""
    for number, (properties, item) in enumerate(items):
        if isinstance(item, Code):  # the runs of a pair of codes are within it
            properties = current if item.kind == "empty" else usual
        elif not item.strip():
            properties = current
        if properties != current:
            if current != usual:
                yield Code(_RUN, "end", name)
            name = f"run {number}"
            if properties != usual:
                yield Code(_RUN + properties, "begin", name)
            current = properties
        yield item
    if current != usual:
        yield Code(_RUN, "end", name)


def _as_text(item: Item, parent: int) -> Item:
    """Returns a text, or a tag that XML holds as text, so that it is no tag of the XML itself."""
    if isinstance(item, str):
        return item
    return Code(html.escape(item.text, quote=False), item.kind, f"{parent} {item.name}")


def _with_state(tag: str, more: str) -> str:
    """Returns a start tag that says that there is a translation now."""
    return re.sub(r"\s*/?>$", f' state="translated"{more}>', _STATE.sub("", tag))
