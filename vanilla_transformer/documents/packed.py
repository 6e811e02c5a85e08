"""Zip files of office programs and books: some of their members are documents."""

import html
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from vanilla_transformer.documents.marked_text import Translations, has_letters
from vanilla_transformer.documents.places import Document, FileTemplate, FileText, decode_markup
from vanilla_transformer.documents.xml import XmlFile
from vanilla_transformer.documents.xml_schemas import XmlSchema

_STRING = r'"((?:[^"]|"")*)"'  # in a formula


class PackedDocument(Document):
    """A zip file, some of whose members are documents.

    Args:
        read: Reads such a member. None: it is read as an `XmlFile`.
    """

    def __init__(
        self, content: bytes, schema: XmlSchema, read: Callable[[bytes], FileTemplate] | None = None
    ) -> None:
        self._members = list(_unpacked(content))
        contents = {info.filename: member for info, member in self._members}
        comparing = filter(re.compile(schema.comparing).fullmatch, contents)
        names = [word for name in comparing for word in _names_in(contents[name], schema.names)]
        self._documents = dict[str, FileTemplate]()
        # Programs pack them in different orders.
        for name in sorted(filter(re.compile(schema.members).fullmatch, contents)):
            member = contents[name]
            try:
                self._documents[name] = read(member) if read else XmlFile(member, schema, names)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        if not any(fnmatchcase(name, schema.main) for name in self._documents):
            raise ValueError(f"this zip file has no part {schema.main}, where the texts are.")
        # A text has no `file_part`: a member numbers links and pictures in each file anew.
        self.texts = [
            FileText(text.marked, f"{name}, text {number}")
            for name, document in self._documents.items()
            for number, text in enumerate(document.texts, start=1)
        ]
        self.untranslatable = [
            f"{name}, {location}"
            for name, document in self._documents.items()
            for location in document.untranslatable
        ]

    def write(self, outputs: Translations, language: str | None = None) -> bytes:
        """As for `Document`; these files do not name a language."""
        remaining = iter(outputs)
        written = {
            name: document.write(list(islice(remaining, len(document.texts))))
            for name, document in self._documents.items()
        }
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as packed:
            for info, member in self._members:
                packed.writestr(info, written.get(info.filename) or member)  # packed as before
        return result.getvalue()


def _unpacked(content: bytes) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    """Yields the members of a zip file."""
    subject = "no intact zip file"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for info in packed.infolist():
                subject = info.filename
                yield info, packed.read(info)
    except Exception as error:  # a damaged zip file raises many kinds
        raise ValueError(f"{subject}: {error}") from error


def _names_in(content: bytes, pattern: str) -> Iterator[str]:
    """Yields a pattern for each text that formulas, lists of choices and filters compare with."""
    for found in re.finditer(pattern, decode_markup(content)[0]):
        text = html.unescape(found[found.lastindex or 0])
        strings = [string.replace('""', '"') for string in re.findall(_STRING, text)]
        for string in [text, *strings, *",".join(strings).split(",")]:  # a list: "a,b"
            name = string.lstrip("<>=").strip()
            if has_letters(name):
                yield re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")
