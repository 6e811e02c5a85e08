"""The elements of XML that hold texts, with their positions in the file."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from vanilla_transformer.documents.tags import XML, read_attributes, split_tags
from vanilla_transformer.documents.xml_schemas import XmlSchema


@dataclass
class Element:
    """An element, a comment or the like, or text.

    Attributes:
        tag: Its start tag.
        attributes: The part of the tag behind its name.
        begin, end: The begin of the start tag, and the end of the end tag.
        inside, close: The begin and the end of the content.
        parent: The element around it. None: there is none.
        text: The content of a text, without escapes. None: it is no text.
        is_block: Whether it holds a text to translate.
        is_in_block: Whether an element around it holds a text.
        is_fixed: Whether nothing in it is translated.
        children: What is in it, in order, if it holds a text or is in an element that does.
    """

    name: str = ""
    prefix: str = ""
    tag: str = ""
    attributes: str = ""
    begin: int = 0
    inside: int = 0
    close: int = 0
    end: int = 0
    parent: "Element | None" = field(default=None, repr=False)
    text: str | None = None
    is_block: bool = False
    is_in_block: bool = False
    is_fixed: bool = False
    children: list["Element"] = field(default_factory=list)

    def attribute(self, name: str) -> str:
        """Returns the value of an attribute by its name without a prefix, or an empty text."""
        pairs = read_attributes(self.attributes)
        return next((value for key, value in pairs if key.rpartition(":")[2] == name), "")

    @property
    def has_content(self) -> bool:
        """Whether there is more in it than white space and empty segments `mrk`."""
        return any(
            child.has_content if child.name == "mrk" else not (child.text or "").isspace()
            for child in self.children
        )

    def child(self, name: str) -> "Element | None":
        """Returns the first element of a name in it, if there is one."""
        return next((child for child in self.children if child.name == name), None)

    @property
    def text_name(self) -> object:
        """The name of its text with its plural category. None: the file does not name it."""
        around = filter(None, (self.parent, self))
        name = tuple(e.attribute("name") + e.attribute("quantity") for e in around)
        return name if any(name) else None


def find_elements(source: str, schema: XmlSchema) -> Iterator[Element]:
    """Yields the elements of a well-formed file, in the order of their ends."""
    path = [Element()]  # the elements around the current one
    for begin, tag, kind, name, attributes in split_tags(source, XML):
        end = begin + len(tag)
        if kind == "end":
            element = path.pop()
            element.close, element.end = begin, end
            yield element
            continue
        prefix, colon, name = name.rpartition(":")
        if len(path) == 1 and name and schema.root not in ("", name):
            raise ValueError(f"<{name}> is no <{schema.root}>, which such a file has.")
        parent = path[-1]
        element = Element(name, prefix + colon, tag, attributes, begin, parent=parent)
        element.inside = element.close = element.end = end  # until its end tag is read
        if kind == "text" or tag.startswith("&#"):  # which is a reference to a line break
            element.text = html.unescape(tag)
        elif tag.startswith("<![CDATA["):
            element.text = tag.removeprefix("<![CDATA[").removesuffix("]]>")
        element.is_block = name in schema.blocks or f"{parent.name}/{name}" in schema.blocks
        values = ((element.attribute(key), fixed) for key, fixed in schema.fixed_if.items())
        element.is_fixed = (
            name in schema.fixed
            or any(re.fullmatch(fixed, value) for value, fixed in values)
            or (parent.is_fixed and element.attribute("translate") != "yes")
        )
        element.is_in_block = parent.is_block or parent.is_in_block
        if element.is_in_block:
            parent.children.append(element)
        if kind == "begin":
            path.append(element)
        elif kind == "empty":
            yield element
