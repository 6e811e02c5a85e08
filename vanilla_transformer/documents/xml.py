"""Files of XML; a schema tells which elements hold texts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.parsers import expat

from vanilla_transformer.documents.marked_text import Translations
from vanilla_transformer.documents.places import FileTemplate, Place, decode_markup
from vanilla_transformer.documents.xml_elements import Element, find_elements
from vanilla_transformer.documents.xml_schemas import XmlSchema
from vanilla_transformer.documents.xml_texts import BlockReader
from vanilla_transformer.documents.xml_units import UnitReader


class XmlFile(FileTemplate):
    """A file of well-formed XML.

    Args:
        names: Patterns of texts that stay, since the file compares with them.
    """

    def __init__(self, content: bytes, schema: XmlSchema, names: Sequence[str] = ()) -> None:
        source, encoding = decode_markup(content)
        _check_well_formed(source)
        blocks = BlockReader(source, schema)
        units = UnitReader(blocks)
        read = units.places_of if schema.target else blocks.places_of
        places = list[Place]()
        naming = list[tuple[Element, str]]()
        for element in find_elements(source, schema):
            attribute, version = schema.languages.get(element.name, ("", ""))
            if attribute and element.attribute("version").startswith(version):
                naming.append((element, attribute))
            if element.is_block and not element.is_fixed:
                places += (replace(place, name=element.text_name) for place in read(element))
        texts = [place.marked.plain for place in places]
        is_name = re.compile("|".join(names) or "(?!)", re.IGNORECASE | re.DOTALL).fullmatch
        compared = dict.fromkeys(filter(is_name, texts))
        fixed = {*compared, *filter(re.compile(schema.fixed_texts).fullmatch, texts)}
        translated = (place for place in places if place.marked.plain not in fixed)
        super().__init__(source, translated, encoding)
        with_reasons = (f'"{text}", with which the file compares' for text in compared)
        self.untranslatable = [*with_reasons, *units.left]
        self.pairs = units.pairs
        self.marks_doubt = bool(schema.target)
        self.lowered_source = source.lower() if schema.has_accelerators else None
        self.language = _language_in(naming)
        self._naming = min(naming, key=lambda pair: pair[0].begin, default=None)

    def join(self, outputs: Translations, language: str | None = None) -> str:
        """As for `FileTemplate`."""
        text = super().join(outputs)
        if not language or self.language or not self._naming:
            return text
        element, attribute = self._naming  # before all texts
        begin = end = element.begin + len(f"<{element.prefix}{element.name}")
        if empty := re.search(rf"""\s{attribute}\s*=\s*(?:""|'')""", element.tag):
            begin, end = (element.begin + position for position in empty.span())
        return f'{text[:begin]} {attribute}="{language}"{text[end:]}'


def _check_well_formed(source: str) -> None:
    try:
        expat.ParserCreate("utf-8").Parse(source.removeprefix("\ufeff").encode(), True)
    except expat.ExpatError as error:
        raise ValueError(f"no well-formed XML: {error}") from error


def _language_in(naming: Sequence[tuple[Element, str]]) -> str:
    """Returns the language that a file names for its translations. "": it names none."""
    languages = dict.fromkeys(filter(None, (element.attribute(key) for element, key in naming)))
    if len(languages) > 1:
        raise ValueError(f"translations into {' and '.join(languages)}: make a file of each.")
    return "".join(languages)
