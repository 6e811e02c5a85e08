"""The texts of XML: files of office programs, which pack it in zip files, and files of messages.

A schema tells for each kind of file which elements hold a text.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from xml.parsers import expat

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    TagKind,
    split_text,
    without_equal_edges,
)
from vanilla_transformer.documents.places import (
    FileTemplate,
    Place,
    decode_markup,
    find_place,
)
from vanilla_transformer.documents.tags import XML, read_attributes, split_tags
from vanilla_transformer.documents.xml_schemas import ATTRIBUTES, XmlSchema
from vanilla_transformer.text.memory import Pair

_LINE_BREAK = re.compile(r"[\r\n]")
_STATE = re.compile(r"""\s(?:state(?:-qualifier)?|type)\s*=\s*("[^"]*"|'[^']*')""")
_MEANING = re.compile(r"""<(?:\w+:)?note\s[^>]*?(?:from|category)=["']meaning["'][^>]*>([^<]*)""")
_PLURAL = re.compile(r"<numerusform[^>]*>(?:[^<]*</numerusform>)?")  # of Qt
_IN_PLURAL = re.compile("(?<=<numerusform>)(?=</numerusform>)")
_READ, _OF_MACHINES = ("", "exact-match", "id-match"), ("leveraged-mt", "mt-suggestion")
"""Qualifiers of states of XLIFF: of what a person has read, and of outputs of a model."""
_ESCAPE = re.compile(r"\\((?:u[dD][89abAB][0-9a-fA-F]{2}\\)?u[0-9a-fA-F]{4}|.)|\"")
_BEGIN, _END = re.compile(r"(?:\s|\\u0020)*"), re.compile(r"(?:\s|\\u0020)*\Z")
_KINDS_OF_TAGS: dict[str, TagKind] = {  # elements of XLIFF, and values of Word's `fldCharType`
    **dict.fromkeys(("bpt", "bx", "sc", "sm", "begin"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec", "em", "end"), "end"),
}


@dataclass
class _Element:
    """An element, a comment or the like, or text, with its positions in the file.

    Attributes:
        tag: Its start tag.
        attributes: The part of the tag behind its name.
        begin, end: The begin of the start tag, and the end of the end tag.
        inside, close: The begin and the end of the content.
        text: The content of a text, without escapes. None: it is no text.
        is_block: Whether it holds a text to translate.
        is_in_block: Whether an element around it holds a text.
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
    is_block: bool = False
    is_in_block: bool = False
    is_kept: bool = False
    children: list["_Element"] = field(default_factory=list)

    def attribute(self, name: str) -> str:
        """Returns the value of an attribute by its name without a prefix, or an empty text."""
        pairs = read_attributes(self.attributes)
        return next((value for key, value in pairs if key.rpartition(":")[2] == name), "")

    @property
    def has_content(self) -> bool:
        """Whether there is more in it than white space and empty segments `mrk`."""
        return any(
            child.has_content if child.name == "mrk" else not (child.text or "x").isspace()
            for child in self.children
        )

    def child(self, name: str) -> "_Element | None":
        return next((child for child in self.children if child.name == name), None)


@dataclass(frozen=True)
class _XmlTag(Tag):
    """An element within a text; or, if its text is empty, the begin or end of other runs.

    Attributes:
        run: The start of the run around it, with its properties. Empty: it is in no run.
    """

    run: str = ""


@dataclass(frozen=True, kw_only=True)
class _XmlPlace(Place):
    """A place in XML.

    Attributes:
        prefix: The prefix of the names of its elements, such as "w:".
        run: The start of the runs outside of its pairs of tags.
        breaks: The part of the file for each line break of the text.
        frame: Returns the texts around an output, which is written between each two of them.
    """

    schema: XmlSchema
    prefix: str
    run: str
    breaks: Sequence[str]
    frame: Callable[[MarkedText], Sequence[str]] = lambda _: ("", "")

    def write(self, output: MarkedText) -> str:
        begin = f"<{self.prefix}{self.schema.run_text}>"
        written = []
        for run, parts in groupby(self._parts(output), key=itemgetter(0)):
            content = "".join(part for _, part in parts)
            if run:
                content = f"{run}{begin}{content}</{self.prefix}t></{self.prefix}{self.schema.run}>"
            written.append(content)
        return "".join(written).join(self.frame(output))

    def _parts(self, output: MarkedText) -> Iterator[tuple[str, str]]:
        """Yields the start of the run of each text, or "" for a tag, and the text or tag."""
        breaks, runs = iter(self.breaks), [self.run]
        for item in self.with_edges(output).parts():
            if not isinstance(item, _XmlTag):  # a tag that is none here is a text
                text = item if isinstance(item, str) else html.unescape(item.text)
                for number, line in enumerate(text.split("\n")):
                    if number:
                        yield "", next(breaks, r"\n" if self.schema.escapes else "\n")
                    if self.schema.escapes:
                        line = re.sub(r"""[\\'"]|\A[@?]""", r"\\\g<0>", line)
                    if line:
                        yield runs[-1], html.escape(line, quote=False)
                continue
            if item.text:
                end = f"</{self.prefix}{self.schema.run}>" if item.run else ""
                yield "", f"{item.run}{item.text}{end}"
            elif item.kind == "begin":
                runs.append(item.run)
            else:
                runs.pop()


def _with_spaced_tags(marked: MarkedText) -> MarkedText:
    """Returns a text in which tags between two spaces are marked as spaced.

    A tag with one space may be a tag that nobody sees, such as a bookmark.
    """
    tags: list[Tag] = []
    for position, row in groupby(marked.tags, key=attrgetter("position")):
        same = list(row)
        if marked.text[max(position - 1, 0) : position + 1] == "  ":
            same[0] = replace(same[0], is_spaced=(True, False))
            same[-1] = replace(same[-1], is_spaced=(same[-1].is_spaced[0], True))
        tags += same
    return replace(marked, tags=tuple(tags))


def read_xml(content: bytes, schema: XmlSchema, names: Sequence[str] = ()) -> FileTemplate:
    """Reads a file of well-formed XML; texts stay that match one of `names`."""
    source, encoding = decode_markup(content)
    try:
        expat.ParserCreate("utf-8").Parse(source.removeprefix("\ufeff").encode(), True)
    except expat.ExpatError as error:
        raise ValueError(f"no well-formed XML: {error}") from error
    return _XmlFile(source, encoding, schema, names)


class _XmlFile(FileTemplate):
    """A file of XML."""

    def __init__(self, source: str, encoding: str, schema: XmlSchema, names: Sequence[str]) -> None:
        pattern = "|".join(names) or "(?!)"
        reader = _Reader(source, schema, re.compile(pattern, re.IGNORECASE | re.DOTALL))
        super().__init__(source, list(reader.places()), encoding)
        self._languages, self.pairs, self.kept = schema.languages, reader.pairs, reader.kept
        self.marks_doubt = bool(schema.target)
        self.words = source.lower() if schema.has_keys else None
        for tag, attribute in schema.languages:
            named = re.findall(rf"""{tag}{ATTRIBUTES}\s{attribute}\s*=\s*["']([^"']*)""", source)
            if len(several := dict.fromkeys(named)) > 1:
                raise ValueError(f"translations into {' and '.join(several)}: make a file of each.")
            self.language = self.language or "".join(several)

    def join(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> str:
        text = super().join(outputs)
        named = 0
        for tag, attribute in self._languages if language and not self.language else ():
            if not named:
                text, named = re.subn(tag, rf'\g<0> {attribute}="{language}"', text)
        return text


@dataclass(frozen=True)
class _Reader:
    """Finds the places of the texts of a well-formed file.

    Attributes:
        pairs: Is filled with the texts that are translated already.
        kept: Is filled with the texts that are `names`.
    """

    source: str
    schema: XmlSchema
    names: re.Pattern[str]
    kept: list[str] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def places(self) -> Iterator[Place]:
        """Yields the places, in the order of their ends."""
        path = [_Element()]  # the elements around the current one
        for begin, tag, kind, name, attributes in split_tags(self.source, XML):
            end = begin + len(tag)
            if kind == "end":
                element = path.pop()
                element.close, element.end = begin, end
                if element.is_block and not element.is_kept:
                    around = path[-1], element
                    key = tuple(e.attribute("name") + e.attribute("quantity") for e in around)
                    find = self._unit if self.schema.target else self._block
                    for place in find(element):
                        yield replace(place, key=key if any(key) else None)
                continue
            prefix, colon, name = name.rpartition(":")
            element = _Element(name, prefix + colon, tag, attributes, begin, end, end, end)
            if kind == "text":
                element.text = html.unescape(tag)
            elif tag.startswith("<![CDATA["):
                element.text = tag.removeprefix("<![CDATA[").removesuffix("]]>")
            parent, schema = path[-1], self.schema
            if len(path) == 1 and name and schema.root not in ("", name):
                raise ValueError(f"<{name}> is no <{schema.root}>, which such a file has.")
            element.is_block = name in schema.blocks or f"{parent.name}/{name}" in schema.blocks
            values = ((element.attribute(key), kept) for key, kept in schema.kept_if.items())
            element.is_kept = (
                name in schema.kept
                or any(re.fullmatch(kept, value) for value, kept in values)
                or (parent.is_kept and element.attribute("translate") != "yes")
            )
            element.is_in_block = parent.is_block or parent.is_in_block
            if element.is_in_block:
                parent.children.append(element)
            if kind == "begin":
                path.append(element)

    def _unit(self, unit: _Element) -> Iterator[Place]:
        """Yields the place of a source and its target, from the begin of the unit around them."""
        name = self.schema.target
        source, target, segments = map(unit.child, ("source", name, "seg-source"))
        if source is None:
            return
        if segments and (target is None or target.child("mrk") or not target.has_content):
            source = segments
        comment, is_approved = unit.child("comment"), unit.attribute("approved") == "yes"
        context = self._source_of(comment) if comment else self._meaning_of(unit)
        name = f"{source.prefix}{name}"
        if target is None and is_approved:  # its empty translation is on purpose
            return
        if target is None:
            end = (segments or source).end
            indent = self.source[unit.inside : source.begin]
            before = self.source[unit.inside : end] + indent[len(indent.rstrip()) :]
            tag = f"<{name}>"
        else:
            end, before, tag = target.end, self.source[unit.inside : target.begin], target.tag
            states = target.attribute("state"), unit.attribute("state"), target.attribute("type")
            state = next(filter(None, states), "")
            is_asked = state in ("new", "initial", "unfinished") or state.startswith("needs-")
            is_gone = state in ("vanished", "obsolete")
            if is_approved or is_gone or (target.has_content and not is_asked):
                origin = target.attribute("state-qualifier")
                is_read = is_approved or state in ("final", "signed-off") or origin in _READ
                if is_read or origin not in _OF_MACHINES:  # which nobody has read
                    self.pairs.extend(self._pair(source, target, context, not is_read))
                return
        old = self.source[target.inside : target.close] if target else ""
        plurals, count = _PLURAL.subn("<numerusform></numerusform>", old)

        def frame(output: MarkedText) -> Sequence[str]:
            state = _state_of(unit.name, output.is_known, output.is_doubtful)
            if unit.name == "segment":  # XLIFF 2 tells the state of the unit
                head = f"{_with_state(unit.tag, state)}{before}{_with_state(tag, '')}"
            else:
                head = f"{unit.tag}{before}{_with_state(tag, state)}"
            plural = _IN_PLURAL.split(f"{head}{plurals}</{name}>")
            return plural if count else [head, f"</{name}>"]

        for place in self._block(source, context):
            yield replace(place, begin=unit.begin, end=end, stays=False, frame=frame)  # type: ignore[call-arg]

    def _meaning_of(self, unit: _Element) -> str:
        """Returns a note by which Angular tells a unit from others of the same source."""
        begin = unit.begin
        if unit.name == "segment":  # notes of XLIFF 2 are before the segments of a unit
            begin = self.source.rfind(f"<{unit.prefix}unit", 0, begin)
        meaning = _MEANING.search(self.source, begin, unit.end)
        return html.unescape(meaning[1]) if meaning else ""

    def _pair(
        self, source: _Element, target: _Element, context: str, is_doubtful: bool
    ) -> Iterator[Pair]:
        """Yields the pair of a unit that is translated."""
        texts = [place.text for side in (source, target) for place in self._block(side)]
        if len(texts) == 2:
            yield Pair(*without_equal_edges(*texts), context, is_doubtful)

    def _block(self, block: _Element, context: str | None = None) -> Iterator[Place]:
        """Yields the place of the content of a block, if it has a text."""
        breaks: list[str] = []
        items = list(self._items(block, breaks, block.begin))
        sizes = Counter[str]()
        has_runs = self.schema.run and block.name != "t"
        plain = f"<{block.prefix}{self.schema.run}>" if has_runs else ""
        for run, item in items:
            sizes[run or plain] += len(item) if isinstance(item, str) else 0
        usual = max(sizes, key=sizes.__getitem__, default="")  # most of the text needs no tags
        make = partial(_XmlPlace, schema=self.schema, prefix=block.prefix, run=usual, breaks=breaks)
        span = block.inside, block.close
        for place in find_place(span, list(_with_runs(items, usual)), make):
            text = replace(_with_spaced_tags(place.text), context=context, flags=self.schema.flags)
            if self.names.fullmatch(text.text):
                self.kept.append(text.text)
            elif not re.fullmatch(self.schema.kept_texts, text.text):
                yield replace(place, text=text)

    def _items(self, parent: _Element, breaks: list[str], begin: int) -> Iterator[tuple[str, Item]]:
        """Yields texts and tags, each with the start of its run.

        Args:
            breaks: Is filled with the part of the file for each line break of the text.
            begin: The begin of the element whose tags may be pairs: `parent`, or the element around
                it if `parent` is a run.
        """
        schema, run = self.schema, ""
        if schema.run and parent.name == schema.run:
            own = parent.child("rPr")
            run = f"<{parent.prefix}{schema.run}>{self._source_of(own) if own else ''}"
        end = f"</{parent.prefix}{schema.run}>" if run else ""
        for element in parent.children:
            if element.text is not None:
                if schema.escapes:
                    yield from (("", item) for item in _read_escapes(element, parent, breaks))
                elif schema.root:  # tags in it are written as text
                    text = _with_breaks(element.text, schema.lines, breaks)
                    yield from (("", _as_text(item, begin)) for item in split_text(text))
                elif not schema.run or parent.name == "t":
                    yield "", _with_breaks(element.text, schema.lines, breaks)
            elif run and element.name == "t":
                text = "".join(part.text or "" for part in element.children)
                frame = f"{run}{element.tag}", f"</{element.prefix}t>{end}"
                yield run, _with_breaks(text, schema.lines, breaks, frame)
            elif element.name in schema.breaks:
                breaks.append(f"{run}{self._source_of(element)}{end}")
                yield run, "\n"
            elif schema.run and element.name == schema.run:
                yield from self._items(element, breaks, begin)
            elif element.name in schema.inline and element.children and not element.is_kept:
                name = str(element.begin)
                yield "", _XmlTag(0, element.tag, "begin", name)
                yield from self._items(element, breaks, element.begin)
                yield "", _XmlTag(0, self.source[element.close : element.end], "end", name)
            elif element.name != "rPr":
                kind = _KINDS_OF_TAGS.get(element.attribute("fldCharType") or element.name, "empty")
                names = map(element.attribute, ("startRef", "rid", "id"))
                name = f"{begin} {next(filter(None, names), '')}"
                span = element.begin, element.end
                yield run, _XmlTag(0, self._source_of(element), kind, name, span, run)

    def _source_of(self, element: _Element) -> str:
        return self.source[element.begin : element.end]


def _with_runs(items: Sequence[tuple[str, Item]], usual: str) -> Iterator[Item]:
    """Yields texts and tags, with a pair of tags around texts whose run is not the usual one."""
    current, name = usual, ""  # no run is open
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
    """Returns a text, or a tag that XML holds as text: it is escaped, and pairs within `parent`."""
    if isinstance(item, str):
        return item
    text = html.escape(item.text, quote=False)
    return _XmlTag(0, text, item.kind, f"{parent} {item.name}")


def _with_breaks(
    text: str, lines: str, breaks: list[str], frame: tuple[str, str] = ("", "")
) -> str:
    """Returns a text with a line break for each sign that parts it; other line breaks are spaces.

    `breaks` is filled with these signs, each in a frame.
    """
    parts = re.split(f"({lines})", text)
    breaks += [sign.join(frame) for sign in parts[1::2]]
    return "\n".join(_LINE_BREAK.sub(" ", part) for part in parts[::2])


def _read_escapes(element: _Element, block: _Element, breaks: list[str]) -> Iterator[Item]:
    r"""Yields the content of a text of Android; `\n` parts it, and quotes around it are tags.

    White space at an edge of a string is a tag, too: it may be an escape.
    """
    text, is_first, is_last = element.text or "", False, False
    if block.is_block:
        is_first, is_last = (element is block.children[index] for index in (0, -1))
    begin = _BEGIN.match(text).end() if is_first else 0  # type: ignore[union-attr]  # it matches nothing, too
    end = _END.search(text, begin).start() if is_last else len(text)  # type: ignore[union-attr]
    if begin:
        yield _XmlTag(0, text[:begin])
    for item in split_text(text[begin:end]):
        if isinstance(item, Tag):
            yield _as_text(item, block.begin)
            continue
        position = 0
        for match in _ESCAPE.finditer(item):
            yield _LINE_BREAK.sub(" ", item[position : match.start()])
            position, sign = match.end(), match[1]
            if not sign:
                yield _XmlTag(0, match[0])
            elif sign in "nt":
                breaks.append(match[0])
                yield "\n"
            else:
                code = bytes.fromhex(re.sub(r"\\?u", "", sign)) if sign[1:] else None
                yield sign if code is None else code.decode("utf-16-be", "replace")
        yield _LINE_BREAK.sub(" ", item[position:])
    if text[end:]:
        yield _XmlTag(0, text[end:])


def _state_of(unit: str, is_known: bool, is_doubtful: bool) -> str:
    """Returns the attributes of a unit of XLIFF 2 or 1.2, or of Qt, with such a translation."""
    if unit == "message":
        return ' type="unfinished"' if is_doubtful else ""
    if unit == "segment":
        return f' state="{"initial" if is_doubtful else "translated"}"'
    state = "needs-review-translation" if is_doubtful else "translated"
    match = "fuzzy-match" if is_doubtful else "exact-match"
    return f' state="{state}" state-qualifier="{match if is_known else "mt-suggestion"}"'


def _with_state(tag: str, state: str) -> str:
    """Returns a start tag with another state of its translation."""
    return re.sub(r"\s*/?>$", f"{state}>", _STATE.sub("", tag))
