"""Reads translation memories in the format TMX, as a stream; standard library only."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from vanilla_transformer.data.text_files import open_bytes

INLINE = ("keep", "drop")
"""What becomes of the codes of inline elements, such as `<ph>&lt;br/&gt;</ph>`."""

_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
_BYTES_PER_STEP = 1 << 16
_DOCUMENT_PROPERTIES = ("document", "filename", "file")


class TmxPair(NamedTuple):
    """Two segments of a unit, and the line on which the unit begins; "" if it lacks one.

    `document` is the text of its `<prop type="x-document">`, or "x-filename", or "x-file".
    """

    source: str
    target: str
    line: int
    document: str


def read_tmx(path: str, languages: Sequence[str], inline: str = "keep") -> Iterator[TmxPair]:
    """Yields a pair for each unit of a file, plain or packed, in constant memory.

    A language matches its variants: "en" also takes `en-US`. Of several segments of a language in a
    unit the first counts. White space becomes single spaces.

    Args:
        languages: The codes of source and target.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is damaged, uses entities that it does not declare, or has no unit with a
            segment in one of the languages.
    """
    reader = _Reader(path, languages, inline)
    with open_bytes(path) as stream:
        while True:
            block = stream.read(_BYTES_PER_STEP)
            try:
                reader.parser.Parse(block, not block)
            except expat.ExpatError as error:
                raise ValueError(
                    f"{path} is no intact TMX file: {error}. Export it again."
                ) from None
            yield from reader.take_pairs()
            if not block:
                break
    for wanted in languages:
        if wanted not in reader.matched:
            known = ", ".join(sorted(reader.known)) or "none"
            raise ValueError(
                f"{path} has no text in {wanted!r}: its languages are {known}. Set `languages`."
            )


class _Reader:
    """Collects the pairs that a parser has found since they were last taken."""

    def __init__(self, path: str, languages: Sequence[str], inline: str) -> None:
        self.path, self.languages, self.inline = path, languages, inline
        self.known: set[str] = set()
        self.matched: set[str] = set()
        self._pairs: list[TmxPair] = []
        self._open: list[str] = []
        self._language: str | None = None
        self._unit: dict[str, str] = {}
        self._line = 0
        self._document = ""
        self._names_document = False
        self._parts: list[str] | None = None
        self._depth_of_code = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text
        self.parser.SkippedEntityHandler = self._refuse_entity

    def take_pairs(self) -> list[TmxPair]:
        """Returns the pairs since the last call."""
        pairs, self._pairs = self._pairs, []
        return pairs

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
            self._language = self._wanted_language(
                attributes.get("xml:lang") or attributes.get("lang") or ""
            )
        elif name == "seg":
            self._parts = []
        elif name in _CODES and self._parts is not None:
            self._depth_of_code += 1

    def _wanted_language(self, language: str) -> str | None:
        """Returns the wanted language that a language is, or is a variant of."""
        self.known.add(language or "(none given)")
        code = language.replace("_", "-").lower()
        for wanted in self.languages:
            plain = wanted.replace("_", "-").lower()
            if code == plain or code.startswith(f"{plain}-"):
                self.matched.add(wanted)
                return wanted
        return None

    def _add_text(self, text: str) -> None:
        if self._names_document:
            self._document += text
        if self._parts is None or (self._depth_of_code and self.inline == "drop"):
            return
        self._parts.append(text)

    def _end_element(self, name: str) -> None:
        self._open.pop()
        if name in _CODES and self._parts is not None:
            self._depth_of_code -= 1
        elif name == "seg":
            if self._language is not None and self._parts is not None:
                self._unit.setdefault(self._language, " ".join("".join(self._parts).split()))
            self._parts = None
        elif name == "prop":
            self._names_document = False
        elif name == "tu":
            source, target = (self._unit.get(language, "") for language in self.languages)
            document = " ".join(self._document.split())
            self._pairs.append(TmxPair(source, target, self._line, document))
