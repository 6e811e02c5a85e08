"""Files of XML, of which a schema tells which elements hold a text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.parsers import expat

from vanilla_transformer.documents.marked_text import MarkedText
from vanilla_transformer.documents.places import FileTemplate, Place, decode_markup
from vanilla_transformer.documents.xml_elements import find_blocks
from vanilla_transformer.documents.xml_schemas import ATTRIBUTES, XmlSchema
from vanilla_transformer.documents.xml_texts import BlockReader
from vanilla_transformer.documents.xml_units import UnitReader


class XmlFile(FileTemplate):
    """A file of well-formed XML.

    Args:
        names: Patterns of texts that stay, since the file compares with them.
    """

    def __init__(self, content: bytes, schema: XmlSchema, names: Sequence[str] = ()) -> None:
        source, encoding = decode_markup(content)
        try:
            expat.ParserCreate("utf-8").Parse(source.removeprefix("\ufeff").encode(), True)
        except expat.ExpatError as error:
            raise ValueError(f"no well-formed XML: {error}") from error
        is_name = re.compile("|".join(names) or "(?!)", re.IGNORECASE | re.DOTALL).fullmatch
        is_fixed = re.compile(schema.fixed_texts).fullmatch
        reader = BlockReader(source, schema)
        units = UnitReader(reader)
        self.compared, places = list[str](), list[Place]()
        for block in find_blocks(source, schema):
            for place in (units if schema.target else reader).places_of(block):
                if is_name(place.text.text):
                    self.compared.append(place.text.text)
                elif not is_fixed(place.text.text):
                    places.append(replace(place, name=block.text_name))
        super().__init__(source, places, encoding)
        self.pairs, self.marks_doubt = units.pairs, bool(schema.target)
        self.lowered_source = source.lower() if schema.has_keys else None
        self._languages = schema.languages
        for tag, attribute in schema.languages:
            named = re.findall(rf"""{tag}{ATTRIBUTES}\s{attribute}\s*=\s*["']([^"']*)""", source)
            if len(several := dict.fromkeys(named)) > 1:
                raise ValueError(f"translations into {' and '.join(several)}: make a file of each.")
            self.language = self.language or "".join(several)

    def join(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> str:
        """As for `FileTemplate`."""
        text, named = super().join(outputs), 0
        for tag, attribute in self._languages if language and not self.language else ():
            if not named:
                text, named = re.subn(tag, rf'\g<0> {attribute}="{language}"', text)
        return text
