"""The file formats that can be translated, by file name extension.

A format is a function that reads the content of a file and returns a `Document`. A format of plain
text needs only a function that yields the places of its texts; `json.py` is a short one. A format
with more in its files, such as translations, has its own subclass of `FileTemplate`, as in `po.py`.
"""

import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from vanilla_transformer.documents.html import places_of_html
from vanilla_transformer.documents.json import places_of_json
from vanilla_transformer.documents.markdown import places_of_markdown
from vanilla_transformer.documents.messages import MessageDocument
from vanilla_transformer.documents.packed import PackedDocument
from vanilla_transformer.documents.places import (
    Document,
    FileTemplate,
    Place,
    decode_markup,
    decode_text,
)
from vanilla_transformer.documents.po import PoFile
from vanilla_transformer.documents.subtitles import places_of_subtitles
from vanilla_transformer.documents.tags import HTML, XHTML, Dialect
from vanilla_transformer.documents.xml import XmlFile
from vanilla_transformer.documents.xml_schemas import SCHEMAS


def read_document(name: str, content: bytes, front_matter: Collection[str] = ()) -> MessageDocument:
    """Reads a file as a document of texts.

    Args:
        name: Name of the file; its extension decides the format.
        front_matter: The keys of Markdown's front matter whose values are translated, too.

    Raises:
        ValueError: If the format is not known, or the content is not valid; it names file and line.
    """
    read = reader_of(name)
    if front_matter:
        if read is not _READ_MARKDOWN:
            raise ValueError(f"{name}: only Markdown has front matter.")
        read = partial(read, front_matter=front_matter)
    try:
        return MessageDocument(read(content))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name}, line {line}: not {error.encoding.upper()} ({error.reason})."
        ) from error
    except (ValueError, RecursionError) as error:  # a thousand levels of nesting are too many
        raise ValueError(f"{name}: {error}") from error


def reader_of(name: str) -> Callable[..., Document]:
    """Returns the function that reads a file, by the extension of its name."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"{name}: no known format of documents; known are {', '.join(FORMATS)}.")
    return FORMATS[suffix]


def _read_text(places: Callable[..., Iterator[Place]], content: bytes, **options: Any) -> Document:
    """Reads a file in UTF-8 by a function that yields the places of its texts."""
    source = decode_text(content)
    return FileTemplate(source, places(source, **options))


def _read_html(content: bytes, dialect: Dialect = HTML) -> FileTemplate:
    source, encoding = decode_markup(content)
    return FileTemplate(source, places_of_html(source, dialect), encoding)


def _places_of_lines(source: str) -> Iterator[Place]:
    """Yields the places of the lines of a plain text."""
    begin = int(source.startswith("\ufeff"))  # a byte order mark
    for line in re.compile(r"[^\r\n]+").finditer(source, begin):
        yield from Place.find(line.span(), [line[0]])


_READ_MARKDOWN = partial(_read_text, places_of_markdown)
_READ_XHTML = partial(_read_html, dialect=XHTML)
_FORMATS: dict[str, Callable[..., Document]] = {
    **{
        suffix: partial(PackedDocument if schema.members else XmlFile, schema=schema)
        for suffix, schema in SCHEMAS.items()
    },
    ".arb": partial(_read_text, places_of_json, has_notes=True),
    ".epub": partial(PackedDocument, schema=SCHEMAS[".epub"], read=_READ_XHTML),
    ".htm": _read_html,
    ".html": _read_html,
    ".json": partial(_read_text, places_of_json),
    ".markdown": _READ_MARKDOWN,
    ".md": _READ_MARKDOWN,
    ".po": PoFile,
    ".pot": PoFile,
    ".srt": partial(_read_text, places_of_subtitles),
    ".txt": partial(_read_text, _places_of_lines),
    ".vtt": partial(_read_text, places_of_subtitles, is_web_vtt=True),
    ".xhtml": _READ_XHTML,
}
FORMATS = dict(sorted(_FORMATS.items()))
"""The function that reads each format, by extension."""
