"""Files of XML, of which a schema tells which elements hold a text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.parsers import expat

from vanilla_transformer.documents.marked_text import Translations
from vanilla_transformer.documents.places import FileTemplate, Place, decode_markup
from vanilla_transformer.documents.xml_elements import find_blocks
from vanilla_transformer.documents.xml_schemas import ATTRIBUTES, XmlSchema
from vanilla_transformer.documents.xml_texts import BlockReader
from vanilla_transformer.documents.xml_units import UnitReader

_NO_TAGS = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", re.DOTALL)


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
        self._named: tuple[int, int, str] | None = None
        tags_alone = _NO_TAGS.sub(lambda found: " " * len(found[0]), source)
        for tag, attribute in schema.languages:
            named = rf"""{tag}(?:{ATTRIBUTES}(\s{attribute}\s*=\s*["']([^"']*)["']))?"""
            tags = list(re.finditer(named, tags_alone))
            several = dict.fromkeys(tag[2] for tag in tags if tag[2])
            if len(several) > 1:
                raise ValueError(f"translations into {' and '.join(several)}: make a file of each.")
            self.language = self.language or "".join(several)
            if tags and not self._named:
                begin = tags[0].start(1) if tags[0][1] else tags[0].end()
                self._named = begin, tags[0].end(), attribute

    def join(self, outputs: Translations, language: str | None = None) -> str:
        """As for `FileTemplate`."""
        text = super().join(outputs)
        if not language or self.language or not self._named:
            return text
        begin, end, attribute = self._named  # before all texts
        return f'{text[:begin]} {attribute}="{language}"{text[end:]}'
