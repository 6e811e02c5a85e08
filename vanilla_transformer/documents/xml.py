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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from xml.parsers import expat

from vanilla_transformer.documents.markup import Kind, MarkedText, Tag
from vanilla_transformer.documents.places import (
    FileTemplate,
    Item,
    Place,
    decode_text,
    is_translated,
    split_edges,
    split_text,
)
from vanilla_transformer.documents.tags import XML, read_attributes, split_tags

_DECLARED = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""")
_LINE_BREAK = re.compile(r"[\r\n]")
_TARGET_LANGUAGE = re.compile(r"""\s(?:trgLang|target-language)\s*=\s*["']([^"']*)""")
_VERSION_2 = re.compile(r"""<(?:\w+:)?xliff(?=\s[^>]*\bversion\s*=\s*["']2)""")
_FILE = re.compile(r"<(?:\w+:)?file(?=[\s>])")
_STATE = re.compile(r"""\sstate(?:-qualifier)?\s*=\s*("[^"]*"|'[^']*')""")


@dataclass(frozen=True)
class XmlFormat:
    """Which elements of a kind of file hold texts, by their names without prefixes.

    Attributes:
        members: Pattern of the names of the XML files in a zip file. "": the file is one itself.
        main: Pattern of the one that such a file cannot lack.
        blocks: Those that hold a text each.
        inline: Those that hold a part of it. All others in a block are tags without text.
        breaks: Those that part a text, as line breaks and tabs do.
        run: The one around characters of the same properties `rPr`, which are in its `t`.
        kept: Those in which nothing is translated.
    """

    members: str
    main: str
    blocks: frozenset[str]
    inline: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    run: str = ""
    kept: frozenset[str] = frozenset()


DOCX = XmlFormat(
    members=r"word/(?:document\d*|header\d*|footer\d*|footnotes|endnotes)\.xml",
    main=r"word/document\d*\.xml",
    blocks=frozenset({"p"}),
    inline=frozenset({"hyperlink", "ins", "moveTo", "sdt", "sdtContent", "smartTag"}),
    breaks=frozenset({"br", "cr", "tab"}),
    run="r",
)
PPTX = XmlFormat(
    members=r"ppt/(?:slides|notesSlides|diagrams|charts)/[^/]+\.xml",
    main=r"ppt/slides/[^/]+\.xml",
    blocks=frozenset({"p"}),
    breaks=frozenset({"br"}),
    run="r",
)
ODT = XmlFormat(
    members=r"content\.xml|styles\.xml",
    main=r"content\.xml",
    blocks=frozenset({"h", "p"}),
    inline=frozenset({"a", "meta", "span"}),
    breaks=frozenset({"line-break", "tab"}),
    kept=frozenset({"annotation", "tracked-changes"}),
)
XLIFF = XmlFormat(
    members="",
    main="",
    blocks=frozenset({"segment", "trans-unit"}),
    inline=frozenset({"g", "mrk", "pc"}),
)
_KINDS_OF_TAGS: dict[str, Kind] = {  # elements of XLIFF, and values of Word's `fldCharType`
    **dict.fromkeys(("bpt", "bx", "sc", "sm", "begin"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec", "em", "end"), "end"),
}


@dataclass
class _Element:
    """An element, a comment or the like, or text, and where it stands in the file.

    Attributes:
        tag: That which opens it.
        attributes: What the tag has behind its name.
        inside: Where its content begins.
        close: Where its content ends.
        text: What a text says. None: it is none.
        is_kept: Whether nothing in it is translated.
    """

    name: str = ""
    prefix: str = ""
    tag: str = ""
    attributes: str = ""
    begin: int = 0
    inside: int = 0
    close: int = 0
    end: int = 0
    text: str | None = None
    is_kept: bool = False
    children: list["_Element"] = field(default_factory=list)

    def attribute(self, name: str) -> str:
        """Returns the value of an attribute by its name without a prefix, or an empty text."""
        pairs = read_attributes(self.attributes)
        return next((value for key, value in pairs if key.rpartition(":")[2] == name), "")

    def child(self, name: str) -> "_Element | None":
        return next((child for child in self.children if child.name == name), None)


@dataclass(frozen=True)
class _XmlTag(Tag):
    """An element within a text; or, if its text is empty, where another kind of run begins or ends.

    Attributes:
        run: What opens the run, with its properties. Empty: it is in no run.
    """

    run: str = ""


@dataclass(frozen=True, kw_only=True)
class _XmlPlace(Place):
    """A place in XML.

    Attributes:
        form: The kind of file.
        prefix: That of the names of its elements, such as "w:".
        run: What opens the runs outside of its pairs of tags.
        breaks: What the file has for each line break of the text.
        head: What is written before all of it.
        head_of_doubtful: The same before a doubtful output.
        tail: What is written behind all of it.
    """

    form: XmlFormat
    prefix: str
    run: str
    breaks: Sequence[str]
    head: str = ""
    head_of_doubtful: str = ""
    tail: str = ""

    def write(self, output: MarkedText) -> str:
        space = ' xml:space="preserve"' if self.form is DOCX else ""
        begin = f"<{self.prefix}t{space}>"
        written = [self.head_of_doubtful if output.is_doubtful else self.head]
        for run, parts in groupby(self._parts(output), key=itemgetter(0)):
            content = "".join(part for _, part in parts)
            if run:
                content = f"{run}{begin}{content}</{self.prefix}t></{self.prefix}{self.form.run}>"
            written.append(content)
        return "".join([*written, self.tail])

    def _parts(self, output: MarkedText) -> Iterator[tuple[str, str]]:
        """Yields what an output is written of, and what opens the run of each text."""
        breaks, runs = iter(self.breaks), [self.run]
        for item in (*self.before, *output.parts(), *self.after):
            if isinstance(item, str):
                for number, line in enumerate(item.split("\n")):
                    if number:
                        yield "", next(breaks, "\n")
                    if line:
                        yield runs[-1], html.escape(line, quote=False)
                continue
            assert isinstance(item, _XmlTag)
            if item.text:
                end = f"</{self.prefix}{self.form.run}>" if item.run else ""
                yield "", f"{item.run}{item.text}{end}"
            elif item.kind == "begin":
                runs.append(item.run)
            else:
                runs.pop()


def read_xml(content: bytes, form: XmlFormat) -> FileTemplate:
    """Reads a file of XML.

    Raises:
        ValueError: If it is not well-formed; the error names the line.
    """
    declared = _DECLARED.match(content)
    encoding = declared[1].decode() if declared else "utf-8"
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(content[:2], encoding)
    source = decode_text(content, encoding)
    try:
        expat.ParserCreate("utf-8").Parse(source.removeprefix("\ufeff").encode(), True)
    except expat.ExpatError as error:
        raise ValueError(f"no well-formed XML: {error}") from error
    make = _XliffTemplate if form is XLIFF else FileTemplate
    return make(source, list(_Reader(source, form).places()), encoding)


class _XliffTemplate(FileTemplate):
    @cached_property
    def language(self) -> str:  # type: ignore[override]  # of other files, it is a constant
        named = _TARGET_LANGUAGE.search(self._source)
        return named[1] if named else ""

    def join(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> str:
        text = super().join(outputs)
        if not language or self.language:
            return text
        if _VERSION_2.search(text):
            return _VERSION_2.sub(rf'\g<0> trgLang="{language}"', text, 1)
        return _FILE.sub(rf'\g<0> target-language="{language}"', text)


class PackedDocument:
    """A zip file, of which some members are documents.

    Raises:
        ValueError: If the file is damaged; the error names the member.
    """

    language = ""

    def __init__(self, content: bytes, form: XmlFormat) -> None:
        self._content = content
        self._members: dict[str, FileTemplate] = {}
        name = "no intact zip file of this kind"
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                for name in filter(re.compile(form.members).fullmatch, packed.namelist()):
                    self._members[name] = read_xml(packed.read(name), form)
        except (ValueError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # a password
            raise ValueError(f"{name}: {error}") from error
        if not any(map(re.compile(form.main).fullmatch, self._members)):
            part = form.main.replace("\\d*", "").replace("[^/]+", "*").replace("\\", "")
            raise ValueError(f"this zip file has no part {part}, where the texts are.")
        self.texts = [text for member in self._members.values() for text in member.texts]
        self.places = [
            f"{name}, text {number}"
            for name, member in self._members.items()
            for number, _ in enumerate(member.texts, start=1)
        ]

    def write(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> bytes:
        """Returns the file with an output in the place of each of `texts`.

        Args:
            outputs: None: the text stays.
            language: That of the outputs, which these files do not name.
        """
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


@dataclass(frozen=True)
class _Reader:
    """Finds the places of the texts of a well-formed file."""

    source: str
    form: XmlFormat

    def places(self) -> Iterator[Place]:
        """Yields the places, in the order of their ends."""
        path = [_Element()]
        for begin, tag, kind, name, attributes in split_tags(self.source, XML):
            end = begin + len(tag)
            if kind == "end":
                element = path.pop()
                element.close, element.end = begin, end
                if element.name in self.form.blocks and not element.is_kept:
                    yield from self._unit(element) if self.form is XLIFF else self._block(element)
                continue
            prefix, colon, name = name.rpartition(":")
            element = _Element(name, prefix + colon, tag, attributes, begin, end, end, end)
            if kind == "text":
                element.text = html.unescape(tag)
            elif tag.startswith("<![CDATA["):
                element.text = tag.removeprefix("<![CDATA[").removesuffix("]]>")
            asked = element.attribute("translate") if self.form is XLIFF else ""
            element.is_kept = (
                name in self.form.kept or asked == "no" or (path[-1].is_kept and asked != "yes")
            )
            path[-1].children.append(element)
            if kind == "begin" and not tag.endswith("/>"):
                path.append(element)

    def _unit(self, unit: _Element) -> Iterator[Place]:
        """Yields the place of a unit of XLIFF, from its begin to the end of its target."""
        source, target = unit.child("source"), unit.child("target")
        if source is None or unit.attribute("approved") == "yes":
            return
        name = f"{source.prefix}target"
        if target is None:
            end = (unit.child("seg-source") or source).end
            indent = self.source[unit.inside : source.begin]
            before = self.source[unit.inside : end] + indent[len(indent.rstrip()) :]
            tag = f"<{name}>"
        else:
            end, before, tag = target.end, self.source[unit.inside : target.begin], target.tag
            state = target.attribute("state") or unit.attribute("state")
            is_asked = state in ("new", "initial") or state.startswith("needs-")
            if target.inside < target.close and not is_asked:
                return

        def head(state: str, state_of_version_1: str) -> str:
            if unit.name == "segment":  # version 2
                return f"{_with_state(unit.tag, state)}{before}{tag}"
            return f"{unit.tag}{before}{_with_state(tag, state_of_version_1)}"

        qualifier = '" state-qualifier="mt-suggestion'
        for place in self._block(source):
            yield replace(
                place,
                begin=unit.begin,
                end=end,
                stays=False,
                head=head("translated", f"translated{qualifier}"),
                head_of_doubtful=head("initial", f"needs-review-translation{qualifier}"),
                tail=f"</{name}>",
            )

    def _block(self, block: _Element) -> Iterator[_XmlPlace]:
        """Yields the place of the content of a block, if it has a text."""
        breaks: list[str] = []
        items = list(self._items(block, breaks, block.begin))
        sizes = Counter[str]()
        plain = f"<{block.prefix}{self.form.run}>" if self.form.run else ""
        for run, item in items:
            sizes[run or plain] += len(item) if isinstance(item, str) else 0
        usual = max(sizes, key=sizes.__getitem__, default="")
        before, text, after = split_edges(list(_with_runs(items, usual)))
        if is_translated(text.text):
            yield _XmlPlace(
                *(block.inside, block.close, text, before, after),
                form=self.form,
                prefix=block.prefix,
                run=usual,
                breaks=breaks,
            )

    def _items(self, parent: _Element, breaks: list[str], place: int) -> Iterator[tuple[str, Item]]:
        """Yields texts and tags, each with what opens its run.

        Args:
            breaks: Gets what the file has where it parts the text, for a line break each.
            place: That of the element around `parent`, if that is a run: tags of two elements are
                no pair.
        """
        form, run = self.form, ""
        if form.run and parent.name == form.run:
            own = parent.child("rPr")
            run = f"<{parent.prefix}{form.run}>{self._source_of(own) if own else ''}"
        end = f"</{parent.prefix}{form.run}>" if run else ""
        for element in parent.children:
            if element.text is not None:
                if form is XLIFF:  # tags in it are written as text
                    yield from (("", _as_text(item, place)) for item in split_text(element.text))
                elif not form.run:
                    yield "", _LINE_BREAK.sub(" ", element.text)
            elif run and element.name == "t":
                text = "".join(part.text or "" for part in element.children)
                tab = f"{run}{element.tag}\t</{element.prefix}t>{end}"
                breaks += [tab] * text.count("\t")
                yield run, _LINE_BREAK.sub(" ", text).replace("\t", "\n")
            elif element.name in form.breaks:
                breaks.append(f"{run}{self._source_of(element)}{end}")
                yield run, "\n"
            elif form.run and element.name == form.run:
                yield from self._items(element, breaks, place)
            elif element.name in form.inline and element.children and not element.is_kept:
                name = str(element.begin)
                yield "", _XmlTag(0, element.tag, "begin", name)
                yield from self._items(element, breaks, element.begin)
                yield "", _XmlTag(0, self.source[element.close : element.end], "end", name)
            elif element.name != "rPr":
                kind = _KINDS_OF_TAGS.get(element.attribute("fldCharType") or element.name, "empty")
                names = map(element.attribute, ("startRef", "rid", "id"))
                name = f"{place} {next(filter(None, names), '')}"
                span = element.begin, element.end
                yield run, _XmlTag(0, self._source_of(element), kind, name, span, run)

    def _source_of(self, element: _Element) -> str:
        return self.source[element.begin : element.end]


def _with_runs(items: Sequence[tuple[str, Item]], usual: str) -> Iterator[Item]:
    """Yields texts and tags, with a pair of tags around texts whose runs are not the usual ones."""
    current, name = usual, ""
    for number, (run, item) in enumerate(items):
        if isinstance(item, Tag):  # the runs of a pair of tags are within it
            run = current if item.kind == "empty" else usual
        elif not item.strip():
            run = current
        if run != current:
            if current != usual:
                yield _XmlTag(0, "", "end", name)
            name = f"run {number}"
            if run != usual:
                yield _XmlTag(0, "", "begin", name, run=run)
            current = run
        yield item
    if current != usual:
        yield _XmlTag(0, "", "end", name)


def _as_text(item: Item, parent: int) -> Item:
    """Returns a text, or a tag that XML holds as text, so that it is no tag of the XML itself."""
    if isinstance(item, str):
        return item
    text = html.escape(item.text, quote=False)
    return _XmlTag(0, text, item.kind, f"{parent} {item.name}")


def _with_state(tag: str, state: str) -> str:
    """Returns a start tag with a state."""
    return re.sub(r"\s*/?>$", f' state="{state}">', _STATE.sub("", tag))
