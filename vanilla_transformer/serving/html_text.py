"""Splits HTML into markup, which stays as it is, and texts, which are translated.

The rules for tags, comments and raw text are those of the HTML standard's tokenizer (section
"Tokenization"), so far as they decide where text begins and ends. Parsers that are kept by others
either write markup anew or do not report where each part of it begins.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vanilla_transformer.languages import JOINED_LINES

_NAME = r"(?:=[^\s/>=]*+|[^\s/>=]++)"
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|(?=>)|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = re.compile(rf"({_NAME})(?:\s*+=\s*+({_VALUE}))?+")
_ATTRIBUTES = rf"(?:[\s/]++|{_NAME}(?:\s*+=\s*+{_VALUE})?+)*+"
# Nothing here is tried in two ways, so the time is linear in the length.
_MARKUP = re.compile(
    rf"""
    <!--(?:-?>|.*?--!?>|.*\Z)            # a comment
    |<!\[CDATA\[.*?(?:\]\]>|\Z)          # a section of foreign content
    |<[!?][^>]*+(?:>|\Z)                 # a document type, a processing instruction
    |</[^a-zA-Z>][^>]*+(?:>|\Z)          # a comment by mistake
    |</>
    |</(?P<closed>[a-zA-Z][^\s/>]*+){_ATTRIBUTES}>
    |<(?P<opened>[a-zA-Z][^\s/>]*+)(?P<attributes>{_ATTRIBUTES})>
    |</?[a-zA-Z].*\Z                     # a tag without an end
    """,
    re.DOTALL | re.VERBOSE,
)
_IN_SCRIPT = re.compile(r"<!--(?!-*>)|-->|</?script(?=[\s/>])", re.IGNORECASE)
_WITHOUT_MARKUP = frozenset(
    "iframe noembed noframes noscript script style textarea title xmp".split()  # noqa: SIM905
)
_KEPT = frozenset({"code", "kbd", "math", "samp", "svg", "template", "var"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);")
_SPACE_BEFORE = re.compile(r"(?:[ \t\r\n\f]|&nbsp;|&#160;|&#[xX][aA]0;)*+")
_SPACE_AFTER = re.compile(r"(?:[ \t\r\n\f]|;psbn&|;061#&|;0[aA][xX]#&)*+")  # read backwards
_WHITE_SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclass(frozen=True)
class HtmlText:
    """HTML whose texts are taken out.

    Attributes:
        parts: Markup, and numbers into `texts`.
        texts: The texts, without references such as `&amp;`.
        references: For each text, the references that it held, by the characters that they mean.
    """

    parts: tuple[str | int, ...]
    texts: tuple[str, ...]
    references: tuple[dict[str, str], ...]

    def join_all(self, outputs: Sequence[Sequence[str]], n_best: int) -> list[str]:
        """Returns the HTML with each of the best outputs, of which each text has `n_best`."""
        return [self.join([row[rank] for row in outputs]) for rank in range(n_best)]

    def join(self, outputs: Sequence[str]) -> str:
        """Replaces each text by an output, in which markup is escaped."""
        joined = []
        for part in self.parts:
            if isinstance(part, int):
                # Characters are written as the source wrote them.
                written = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | self.references[part]
                joined += [written.get(character, character) for character in outputs[part]]
            else:
                joined.append(part)
        return "".join(joined)


def split_html(source: str) -> HtmlText:
    """Takes the texts out of HTML; returns the HTML without them, and the texts.

    Tags, comments, document types, scripts, styles, and elements with `translate="no"` or the class
    `notranslate` stay as they are; so do `code`, `kbd`, `samp`, `var`, `textarea`, `svg`, `math`
    and `template`. What has `translate="yes"` in one of them is translated.
    White space within a text counts as one space, and a line break between Chinese or Japanese
    characters as nothing, except in `pre`.
    """
    parts: list[str | int] = []
    texts: list[str] = []
    references: list[dict[str, str]] = []
    for piece, is_text, is_preformatted in split_markup(source):
        before, content, after = _split_edges(piece) if is_text else (piece, "", "")
        text = html.unescape(content)
        if any(character.isalnum() for character in text):
            parts += [before, len(texts), after]
            if not is_preformatted:
                text = _WHITE_SPACE.sub(" ", JOINED_LINES.sub("", text))
            texts.append(text)
            found = {html.unescape(one): one for one in _REFERENCE.findall(content)}
            references.append({mark: one for mark, one in found.items() if mark != one})
        else:
            parts.append(piece)
    return HtmlText(tuple(parts), tuple(texts), tuple(references))


def split_markup(source: str) -> Iterator[tuple[str, bool, bool]]:
    """Yields each piece of HTML, whether it is text to translate, and whether it is in `pre`."""
    position, preformatted = 0, 0
    open_elements = Counter[str]()
    # The elements that begin or end what is kept: name, open elements of this name, is it kept?
    regions = [("", 0, False)]
    while position < len(source):
        match = _next_markup(source, position)
        start = match.start() if match else len(source)
        if start > position:
            yield source[position:start], not regions[-1][2], preformatted > 0
        if match is None:
            return
        yield match[0], False, False
        position = match.end()
        opened, closed = (match["opened"] or "").lower(), (match["closed"] or "").lower()
        preformatted = max(0, preformatted + (opened == "pre") - (closed == "pre"))
        open_elements[opened] += 1
        open_elements[closed] = max(0, open_elements[closed] - 1)
        while open_elements[regions[-1][0]] < regions[-1][1]:
            regions.pop()
        if opened and opened not in _VOID:
            asked = _is_kept(opened, match["attributes"])
            if asked is not None and asked != regions[-1][2]:
                regions.append((opened, open_elements[opened], asked))
        if opened in _WITHOUT_MARKUP:
            end = _end_of_content(source, position, opened)
            yield source[position:end], opened == "title" and not regions[-1][2], False
            position = end


def _next_markup(source: str, position: int) -> re.Match[str] | None:
    """Finds the next markup; a `<` that begins none is text."""
    while (position := source.find("<", position)) >= 0:
        if match := _MARKUP.match(source, position):
            return match
        position += 1
    return None


def _end_of_content(source: str, position: int, name: str) -> int:
    """Finds the tag that ends an element whose content is no markup."""
    if name != "script":
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, position)
        return end.start() if end else len(source)
    # In a script, `<!--` hides a pair of script tags.
    hides = is_hidden = False
    for match in _IN_SCRIPT.finditer(source, position):
        word = match[0].lower()
        if word == "</script" and not is_hidden:
            return match.start()
        hides = word != "-->" and (hides or word == "<!--")
        is_hidden = hides and (word == "<script" or (is_hidden and word != "</script"))
    return len(source)


def _is_kept(name: str, attributes: str) -> bool | None:
    """Returns whether an element is kept; None: as the element around it."""
    if attributes.endswith("/") and name in ("math", "svg"):
        return None
    is_translated = False
    for attribute, written in _ATTRIBUTE.findall(attributes):
        value = written.strip("\"'").lower()
        if attribute.lower() == "translate" and value.strip() == "no":
            return True
        is_translated |= attribute.lower() == "translate" and value.strip() in ("yes", "")
        if attribute.lower() == "class" and "notranslate" in value.split():
            return True
    if is_translated:
        return False
    return True if name in _KEPT else None


def _split_edges(piece: str) -> tuple[str, str, str]:
    """Returns the white space before a text, the text, and the white space after it."""
    before = _SPACE_BEFORE.match(piece)
    start = before.end() if before else 0
    after = _SPACE_AFTER.match(piece[start:][::-1])
    end = len(piece) - (after.end() if after else 0)
    return piece[:start], piece[start:end], piece[end:]
