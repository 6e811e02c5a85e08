"""Reads translation memories in the format TMX, as a stream."""

import codecs
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from transformers.utils import logging

from vanilla_transformer.files.text_files import open_bytes
from vanilla_transformer.language_tags import variant_of

logger = logging.get_logger(__name__)

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
EMPTY_CODE = re.compile(r" (?:<ph\d+>)+(?= )|<ph\d+>")
"""A numbered code, and a space before it if there is one behind it, too."""
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")  # of XML: a no-break space is a part of the text
_BYTES_PER_STEP = 1 << 16
_DECLARED_ENCODING = re.compile(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_REFERENCE = re.compile(r"&#(?:x([0-9a-fA-F]+)|([0-9]+));")
_MARKS_OF_UTF16 = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LOST = "\ufdd0"  # a character that no text has stands for one that XML forbids
_DOCUMENT_PROPERTIES = ("document", "filename", "file")  # of `<prop>`, perhaps after "x-"

TmxPair = tuple[str, str, int, str]
"""Two segments of a unit, "" if it lacks one; the number of the unit; its document, or ""."""


def read_tmx(path: str, languages: Sequence[str], inline: str = "keep") -> Iterator[TmxPair]:
    """Yields a pair for each unit of a file, plain or packed, in constant memory.

    A language matches its variants, unless these are the other language, in any spelling: "en"
    also takes `en-US` and `eng`.
    Of several segments of a language in a unit the first counts. Spaces, tabs and line breaks
    become single spaces. Units with a character that XML forbids are left out; a warning counts
    them.

    Args:
        languages: The codes of source and target.
        inline: "keep" or "drop" the codes of inline elements; "number": keep them, and read an
            empty one as `<ph1>`, with the same number in source and target.
    """
    known, damaged = dict[str, str | None](), list[int]()
    with open_bytes(path) as stream:
        try:
            for number, unit in enumerate(_read_units(stream), start=1):
                texts, numbers = dict[str | None, str](), dict[str, int]()
                for variant in unit.iterfind("tuv"):
                    language = variant.get(_XML_LANG) or variant.get("lang") or ""
                    known[language] = variant_of(language, languages)
                    if (segment := variant.find("seg")) is not None:
                        if inline == "number":
                            _number_codes(segment, numbers)
                        text = _on_one_line("".join(_texts(segment, inline == "drop")))
                        texts.setdefault(known[language], text)
                source, target = (texts.get(language, "") for language in languages)
                if _LOST in source + target:
                    damaged.append(number)
                else:
                    yield source, target, number, _document_of(unit)
        except (ParseError, UnicodeDecodeError, LookupError) as error:
            raise ValueError(f"{path} is no intact TMX file: {error}. Export it again.") from None
    if damaged:
        logger.warning(
            f"{path}: {len(damaged):,} units hold characters that XML forbids and are left out. "
            f"The first is unit {damaged[0]:,}."
        )
    for wanted in languages:
        if wanted not in known.values():
            names = ", ".join(sorted(name or "(none given)" for name in known)) or "none"
            raise ValueError(
                f"{path} has no text in {wanted!r}: its languages are {names}. Set `languages`."
            )


def _decode_xml(stream: BinaryIO) -> Iterator[str]:
    """Yields a document in parts, with a sign for each character that XML forbids.

    Its byte order mark tells its encoding, or else its declaration; otherwise it is UTF-8.
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


def _read_units(stream: BinaryIO) -> Iterator[Element]:
    """Yields the units of a document, whose elements have names without a namespace."""
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    parents = list[Element]()
    for text in _decode_xml(stream):
        parser.feed(text)
        for event, element in cast(Iterator[tuple[str, Element]], parser.read_events()):
            if event == "start":
                parents.append(element)
                continue
            parents.pop()
            element.tag = element.tag.rpartition("}")[2]
            if element.tag == "tu":
                yield element
                parents[-1].remove(element)
    parser.close()


def _number_codes(segment: Element, numbers: dict[str, int]) -> None:
    """Writes a number into each empty code, by its `x` or `i`, or else by its order.

    The numbers of the segments of its unit before it count, and new ones are added.
    """
    codes = (code for code in segment.iter() if code.tag in _CODES and not (len(code) or code.text))
    begun = dict[str, str]()  # the last code of a pair has only the `i` of the first one
    for order, code in enumerate(codes):
        pair = code.get("i", str(order))
        key = f"x{number}" if (number := code.get("x")) else f"i{pair}"
        if code.tag == "ept":
            key = f"end of {begun.get(pair)}"
        elif code.tag == "bpt":
            begun[pair] = key
        code.text = f"<ph{numbers.setdefault(key, len(numbers) + 1)}>"


def _texts(element: Element, drops_codes: bool, is_in_code: bool = False) -> Iterator[str]:
    """Yields the parts of a segment's text. A text within a code (`<sub>`) is none of its codes."""
    is_in_code = element.tag in _CODES or (is_in_code and element.tag != "sub")
    keeps = not (drops_codes and is_in_code)
    if keeps:
        yield element.text or ""
    for child in element:
        yield from _texts(child, drops_codes, is_in_code)
        if keeps:
            yield child.tail or ""


def _document_of(unit: Element) -> str:
    for prop in unit.iterfind("prop"):
        if prop.get("type", "").lower().removeprefix("x-") in _DOCUMENT_PROPERTIES:
            return _on_one_line(prop.text or "")
    return ""


def _on_one_line(text: str) -> str:
    return _WHITE_SPACE.sub(" ", text).strip(" ")
