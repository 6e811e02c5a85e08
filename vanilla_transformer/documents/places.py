"""Files with places for their texts: everything around the places stays as it is."""

import codecs
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    TextTranslation,
    Translations,
    has_letters,
    split_edges,
)
from vanilla_transformer.text.edits import Edit, Span, apply_edits
from vanilla_transformer.text.memory import Pair

LINE_BREAK = re.compile(r"\r\n?|\n")
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(
    rb"""<(?:\?xml[^>]*?\sencoding|meta[^>]+charset)\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE
)


@dataclass(frozen=True)
class FileText:
    """A text of a file.

    Attributes:
        marked: The text with its tags.
        location: Its location for a person, such as "line 3".
        file_part: The part of the file that its output replaces. None: it differs between files.
        name: Its name, if its format names texts.
        context: The context that tells it from equal texts. "": it needs none. None: it is unknown.
        flags: Flags of gettext, such as `c-format`; `numbered-format`: it may have numbers (%1$s).
        begins_message: Whether it is the first text of its message.
    """

    marked: MarkedText
    location: str = ""
    file_part: str | None = None
    name: object = None
    context: str | None = None
    flags: frozenset[str] = frozenset()
    begins_message: bool = True


@dataclass(frozen=True)
class Place(FileText):
    """A text of a file, and the part of the file that its output replaces.

    Attributes:
        begin, end: The span of this part in the file.
        offset: Number of characters of this part before the text, such as those of comments.
        rewrites: Whether an output that equals the text is written, too.
        escape: Escapes text, so that it is not read as markup.
        encode: Writes text with its tags as a string of the format, such as one in quotes.
    """

    begin: int = 0
    end: int = 0
    offset: int = 0
    rewrites: bool = False
    escape: Callable[[str], str] = str
    encode: Callable[[str], str] = str

    @classmethod
    def find(cls, span: Span, items: Sequence[Item], **fields: Any) -> Iterator[Self]:
        """Yields the place of a text with further attributes if it has letters, or nothing."""
        text = split_edges(items)
        if has_letters(text.plain):
            yield cls(text, begin=span[0], end=span[1], **fields)

    def write(self, whole: TextTranslation) -> str:
        """Returns the part of the file for an output with its edges, as the format writes it."""
        return self.encode(whole.write(self.escape))


class Document(ABC):
    """A file with texts.

    Attributes:
        texts: The texts to translate.
        language: The language of the translations, as the file names it. "": it does not.
        pairs: The finished translations of the file with their sources, for a memory.
        marks_doubt: Whether the file can mark a translation as doubtful.
        untranslatable: The locations of texts that stay, each with the reason.
        lowered_source: The file in lower case, if its texts may have accelerators.
    """

    texts: Sequence[FileText]
    language = ""
    pairs: Sequence[Pair] = ()
    marks_doubt = False
    untranslatable: Sequence[str] = ()
    lowered_source: str | None = None

    @abstractmethod
    def write(self, outputs: Translations, language: str | None = None) -> bytes:
        """Returns the file with the outputs of its texts. An output of None keeps the text.

        Args:
            language: The language of the outputs, which the file names if its format can.
        """


class FileTemplate(Document):
    """A file whose texts can be replaced.

    Args:
        source: The content of the file.
        places: The places of its texts, in the order of their ends. One may be in a tag of another.
        encoding: The encoding of the file. Characters that it lacks become references of XML.
    """

    def __init__(self, source: str, places: Iterable[Place], encoding: str = "utf-8") -> None:
        self._source = source
        self._encoding = encoding
        breaks = [match.end() for match in LINE_BREAK.finditer(source)]
        self.texts = self._places = [
            replace(
                place,
                location=f"line {bisect_right(breaks, place.begin + place.offset) + 1}",
                file_part=source[place.begin : place.end],
            )
            for place in places
        ]

    def write(self, outputs: Translations, language: str | None = None) -> bytes:
        """As for `Document`."""
        return self.join(outputs, language).encode(self._encoding, "xmlcharrefreplace")

    def join(self, outputs: Translations, language: str | None = None) -> str:
        """Returns the file as a text; see `write`."""
        edits: list[Edit] = []
        for place, output in zip(self._places, outputs, strict=True):
            inner = list[Edit]()  # of places that lie within a tag of this one
            while edits and edits[-1].end > place.begin:
                inner.insert(0, edits.pop())
            edits.append(Edit(place.begin, place.end, self._written(place, output, inner)))
        return apply_edits(self._source, edits)

    def _written(self, place: Place, output: TextTranslation | None, inner: Sequence[Edit]) -> str:
        """Returns the part of the file at a place for its output and the edits within tags."""
        if output and output.file_part is not None:
            return output.file_part
        if output is None or (output.repeats(place.marked) and not place.rewrites):
            return self._edited((place.begin, place.end), inner)
        # A stored translation keeps its spaces.
        whole = output.whole if output.is_known else output.whole.without_spaces()
        tags = (self._edited(tag.span, inner) if tag.span else tag.text for tag in whole.tags)
        return place.write(whole.with_tag_texts(tags))

    def _edited(self, span: Span, edits: Sequence[Edit]) -> str:
        """Returns a part of the file with those of the edits that lie within it."""
        begin, end = span
        inner = [edit for edit in edits if begin <= edit.begin and edit.end <= end]
        return apply_edits(self._source, inner, begin, end)


def decode_text(content: bytes, encoding: str = "utf-8") -> str:
    """Decodes a file of text."""
    try:
        source = content.decode(encoding)
    except LookupError:
        line = content.count(b"\n", 0, content.find(encoding.encode())) + 1
        raise ValueError(f"line {line}: unknown encoding {encoding}.") from None
    if "\0" in source:
        raise ValueError("no file of text: it has zeros.")
    return source


def decode_markup(content: bytes) -> tuple[str, str]:
    """Decodes a file of XML or HTML; returns its text, and the encoding to write it again.

    A byte order mark counts more than a declaration.
    """
    declared = _DECLARED.search(content, 0, 2048)
    encoding = declared[1].decode() if declared else "utf-8"
    for mark, name in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            encoding = name
    source = decode_text(content, encoding)
    # A file of ASCII alone may name any encoding by mistake: other characters become references.
    is_utf_8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    return source, "ascii" if content.isascii() and not is_utf_8 else encoding
