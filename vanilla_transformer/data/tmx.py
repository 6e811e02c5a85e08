"""Reads translation memories in the format TMX, as a stream."""

import codecs
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO
from xml.parsers import expat

from transformers.utils import logging

from vanilla_transformer.data.text_files import open_bytes
from vanilla_transformer.languages import variant_of

logger = logging.get_logger(__name__)

_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")  # of XML: a no-break space is a part of the text
_BYTES_PER_STEP = 1 << 16
_DECLARED_ENCODING = re.compile(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_REFERENCE = re.compile(r"&#(?:x([0-9a-fA-F]+)|([0-9]+));")
_MARKS_OF_UTF16 = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LOST = "\ufdd0"  # a character that no text has stands for one that XML forbids
_DOCUMENT_PROPERTIES = ("document", "filename", "file")  # of `<prop>`, perhaps after "x-"

TmxPair = tuple[str, str, int, str]
"""Two segments of a unit, "" if it lacks one; the line on which it begins; its document, or ""."""


def read_tmx(path: str, languages: Sequence[str], inline: str = "keep") -> Iterator[TmxPair]:
    """Yields a pair for each unit of a file, plain or packed, in constant memory.

    A language matches its variants, unless these are the other language, in any spelling: "en"
    also takes `en-US` and `eng`.
    Of several segments of a language in a unit the first counts. Spaces, tabs and line breaks
    become single spaces. Units with a character that XML forbids are left out; a warning counts
    them.

    Args:
        languages: The codes of source and target.
        inline: "keep" or "drop": what becomes of the codes of inline elements.
    """
    reader = _Reader(path, languages, inline)
    with open_bytes(path) as stream:
        try:
            for text in _decode_xml(stream):
                reader.parser.Parse(text)
                pairs, reader.pairs = reader.pairs, []
                yield from pairs
            reader.parser.Parse("", True)
        except (expat.ExpatError, UnicodeDecodeError, LookupError) as error:
            raise ValueError(f"{path} is no intact TMX file: {error}. Export it again.") from None
    if reader.damaged_lines:
        logger.warning(
            f"{path}: {len(reader.damaged_lines):,} units hold characters that XML forbids and are "
            f"left out. The first begins on line {reader.damaged_lines[0]:,}."
        )
    for wanted in languages:
        if wanted not in reader.matched:
            known = ", ".join(sorted(reader.known)) or "none"
            raise ValueError(
                f"{path} has no text in {wanted!r}: its languages are {known}. Set `languages`."
            )


def _decode_xml(stream: BinaryIO) -> Iterator[str]:
    """Yields a document in parts, with a sign in the place of each character that XML forbids.

    Its encoding is that of its byte order mark, or the one that it declares, or UTF-8.
    """
    block = stream.read(_BYTES_PER_STEP)
    declared = _DECLARED_ENCODING.match(block)
    encoding = declared[1].decode() if declared else "utf-8"
    for mark, name in ((codecs.BOM_UTF8, "utf-8-sig"), *_MARKS_OF_UTF16):
        if block.startswith(mark):
            encoding = name
    decoder, rest = codecs.getincrementaldecoder(encoding)(), ""
    while block:
        text = rest + decoder.decode(block)
        end = text.find("&", max(len(text) - 20, 0))  # a reference may go on in the next block
        text, rest = (text, "") if end < 0 else (text[:end], text[end:])
        yield _mark_forbidden(text)
        block = stream.read(_BYTES_PER_STEP)
    yield _mark_forbidden(rest + decoder.decode(b"", True))


def _mark_forbidden(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        number = int(match[1], 16) if match[1] else int(match[2])
        is_character = number <= 0x10FFFF and not 0xD800 <= number < 0xE000
        return match[0] if is_character and not _FORBIDDEN.match(chr(number)) else _LOST

    return _FORBIDDEN.sub(_LOST, _REFERENCE.sub(replaced, text))


class _Reader:
    """Collects the pairs that a parser has found since they were last taken."""

    def __init__(self, path: str, languages: Sequence[str], inline: str) -> None:
        self.path, self.languages, self.inline = path, languages, inline
        self.known: set[str] = set()
        self.matched: set[str | None] = set()
        self.pairs: list[TmxPair] = []
        self._open: list[str] = []
        self._language: str | None = None
        self._unit: dict[str, str] = {}
        self._line = 0
        self._document = ""
        self._names_document = False
        self._parts: list[str] | None = None
        self.damaged_lines: list[int] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text
        self.parser.SkippedEntityHandler = self._refuse_entity

    def _refuse_entity(self, name: str, _: bool) -> None:
        """Refuses what a DTD in another file declares: its text would be lost without a word."""
        raise ValueError(
            f"{self.path}, line {self.parser.CurrentLineNumber}: the entity {name!r} is not "
            "declared in the file: write the character itself."
        )

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(name)
        if name == "tu":
            self._unit, self._line = {}, self.parser.CurrentLineNumber
            self._document = ""
        elif name == "prop":
            kind = attributes.get("type", "").lower().removeprefix("x-")
            self._names_document = kind in _DOCUMENT_PROPERTIES and self._open[-2] == "tu"
        elif name == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._language = variant_of(language, self.languages)
            self.known.add(language or "(none given)")
            self.matched.add(self._language)
        elif name == "seg":
            self._parts = []

    def _is_in_code(self) -> bool:
        """Returns whether the innermost of codes and the texts in them (`<sub>`) is a code."""
        inline = (name for name in reversed(self._open) if name in _CODES or name == "sub")
        return next(inline, "") in _CODES

    def _add_text(self, text: str) -> None:
        if self._names_document:
            self._document += text
        if self._parts is not None and not (self.inline == "drop" and self._is_in_code()):
            self._parts.append(text)

    def _end_element(self, name: str) -> None:
        self._open.pop()
        if name == "seg":
            if self._language is not None and self._parts is not None:
                self._unit.setdefault(self._language, _on_one_line("".join(self._parts)))
            self._parts = None
        elif name == "prop":
            self._names_document = False
        elif name == "tu":
            source, target = (self._unit.get(language, "") for language in self.languages)
            if _LOST in source + target:
                self.damaged_lines.append(self._line)
                return
            document = _on_one_line(self._document)
            self.pairs.append((source, target, self._line, document))


def _on_one_line(text: str) -> str:
    return _WHITE_SPACE.sub(" ", text).strip(" ")
