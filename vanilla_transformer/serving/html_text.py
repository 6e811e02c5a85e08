"""Splits HTML into markup, which stays as it is, and texts, which are translated.

The rules for tags, comments and raw text are those of the HTML standard's tokenizer (section
"Tokenization"), so far as they decide where text begins and ends.
"""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_VALUE = r"""(?:"[^"]*+"|'[^']*+'|(?=>)|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = rf"(?:=[^\s/>=]*+|[^\s/>=]++)(?:\s*+=\s*+{_VALUE})?+"
_MARKUP = re.compile(
    rf"""
    <!--(?:-?>|.*?--!?>|.*\Z)            # a comment
    |<!\[CDATA\[.*?(?:\]\]>|\Z)          # a section of foreign content
    |<[!?][^>]*+(?:>|\Z)                 # a document type, a processing instruction
    |</[^a-zA-Z>][^>]*+(?:>|\Z)          # a comment by mistake
    |</>
    |</(?P<closed>[a-zA-Z][^\s/>]*+)(?:[\s/]++|{_ATTRIBUTE})*+>
    |<(?P<opened>[a-zA-Z][^\s/>]*+)(?P<attributes>(?:[\s/]++|{_ATTRIBUTE})*+)>
    |</?[a-zA-Z].*\Z                     # a tag without an end
    """,
    re.DOTALL | re.VERBOSE,
)
_RAW_TEXT = frozenset({"iframe", "noembed", "noframes", "noscript", "script", "style", "xmp"})
_KEPT = frozenset({"code", "kbd", "math", "samp", "svg", "template", "textarea", "var"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_TRANSLATE_NO = re.compile(r"""(?:^|[\s/"'])translate\s*=\s*["']?no\b""", re.IGNORECASE)
_CLASS_NO = re.compile(
    r"""(?:^|[\s/"'])class\s*=\s*(?:"[^"]*?\bnotranslate\b|'[^']*?\bnotranslate\b|notranslate\b)""",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);")
_SPACE = r"(?:[ \t\r\n\f]|&nbsp;|&#160;|&#[xX][aA]0;)"
_EDGES = re.compile(rf"({_SPACE}*+)(.*?)({_SPACE}*)", re.DOTALL)
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

    def join(self, outputs: Callable[[int], str]) -> str:
        """Puts an output, in which markup is escaped, in the place of each text.

        Args:
            outputs: Returns the output for a number of `texts`.

        Returns:
            The HTML.
        """
        return "".join(
            part if isinstance(part, str) else _escape_text(outputs(part), self.references[part])
            for part in self.parts
        )


def split_html(source: str) -> HtmlText:
    """Takes the texts out of HTML.

    Tags, comments, document types, scripts, styles, and elements with `translate="no"` or the class
    `notranslate` stay as they are; so do `code`, `kbd`, `samp`, `var`, `textarea`, `svg`, `math`
    and `template`. White space within a text counts as one space, except in `pre`.

    Args:
        source: A document or a fragment.

    Returns:
        The HTML without its texts, and the texts.
    """
    parts: list[str | int] = []
    texts: list[str] = []
    references: list[dict[str, str]] = []
    for piece, is_text, is_preformatted in _split_markup(source):
        before, content, after = _split_edges(piece) if is_text else (piece, "", "")
        text = html.unescape(content)
        if any(character.isalnum() for character in text):
            parts += [before, len(texts), after]
            texts.append(text if is_preformatted else _WHITE_SPACE.sub(" ", text))
            references.append(_references_of(content))
        else:
            parts.append(piece)
    return HtmlText(tuple(parts), tuple(texts), tuple(references))


def _split_edges(piece: str) -> tuple[str, str, str]:
    """Returns the white space before a text, the text, and the white space after it."""
    match = _EDGES.fullmatch(piece)
    return (match[1], match[2], match[3]) if match else ("", piece, "")


def _split_markup(source: str) -> Iterator[tuple[str, bool, bool]]:
    """Yields each piece, whether it is text to translate, and whether it stands in `pre`."""
    position, kept, depth, preformatted = 0, "", 0, 0
    while position < len(source):
        match = _next_markup(source, position)
        start = match.start() if match else len(source)
        if start > position:
            yield source[position:start], not kept, preformatted > 0
        if match is None:
            return
        yield match[0], False, False
        position = match.end()
        opened, closed = (match["opened"] or "").lower(), (match["closed"] or "").lower()
        preformatted = max(0, preformatted + (opened == "pre") - (closed == "pre"))
        if kept:
            depth += (opened == kept) - (closed == kept)
            kept = kept if depth else ""
        elif opened in _RAW_TEXT:
            end = re.compile(rf"</{opened}(?=[\s/>])", re.IGNORECASE).search(source, position)
            stop = end.start() if end else len(source)
            yield source[position:stop], False, False
            position = stop
        elif opened and opened not in _VOID and _is_kept(opened, match["attributes"]):
            kept, depth = opened, 1


def _next_markup(source: str, position: int) -> re.Match[str] | None:
    """Finds the next markup; a `<` that begins none is text."""
    while (position := source.find("<", position)) >= 0:
        if match := _MARKUP.match(source, position):
            return match
        position += 1
    return None


def _is_kept(name: str, attributes: str) -> bool:
    if attributes.endswith("/") and name in ("math", "svg"):
        return False
    marked = _TRANSLATE_NO.search(attributes) or _CLASS_NO.search(attributes)
    return name in _KEPT or marked is not None


def _references_of(content: str) -> dict[str, str]:
    """Returns the references in a text, such as `&copy;`, by the characters that they mean."""
    found = _REFERENCE.findall(content)
    return {html.unescape(one): one for one in found if html.unescape(one) != one}


def _escape_text(text: str, references: dict[str, str]) -> str:
    """Escapes what would be markup, and writes characters as the source wrote them."""
    written = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | references
    return "".join(written.get(character, character) for character in text)
