"""One lexer of tags: of HTML, of XML, and of the texts of programs and subtitles.

HTML follows the standard (section "Tokenization") as far as this decides where text begins; a test
compares it with a parser that passes the standard's tests. Other parsers do not tell positions.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

_NAME = r"(?:=[^\s/>=]*+|[^\s/>=]++)"
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|(?=>)|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = re.compile(rf"({_NAME})(?:\s*+=\s*+({_VALUE}))?+")
_ATTRIBUTES = rf"(?:[\s/]++|{_NAME}(?:\s*+=\s*+{_VALUE})?+)*+"
# No part can match in two ways, so the time is linear in the length.
_IN_SCRIPT = re.compile(r"<!--(?!-*>)|-->|</?script(?=[\s/>])", re.IGNORECASE)
TokenKind = Literal["text", "begin", "end", "empty", "raw", "other"]


class Token(NamedTuple):
    """A tag, the text between two tags, or another thing that is no text.

    Attributes:
        begin: Its position in the source.
        text: The token, as it is written.
        kind: "begin", "end" and "empty" are tags, "raw" is the content of an element without
            markup, "other" a comment or the like.
        name: The name of a tag.
        attributes: The part of a tag behind its name.
    """

    begin: int
    text: str
    kind: TokenKind
    name: str = ""
    attributes: str = ""


class Dialect(NamedTuple):
    """The syntax of tags.

    Attributes:
        markup: Pattern of a tag, or of another thing that is no text.
        raw: Elements whose content is no markup.
        has_empty: Whether `/>` ends an element.
    """

    markup: re.Pattern[str]
    raw: frozenset[str] = frozenset()
    has_empty: bool = False


def _markup(name: str, others: str, attributes: str = _ATTRIBUTES) -> re.Pattern[str]:
    tag = rf"<(?P<end>/?)(?P<name>{name})(?P<attributes>{attributes})>"
    return re.compile(f"{tag}|{others}", re.DOTALL | re.VERBOSE)


HTML = Dialect(
    _markup(
        name=r"[a-zA-Z][^\s/>]*+",
        others=r"""
        <!--(?:-?>|.*?--!?>|.*\Z)            # a comment
        |<!\[CDATA\[.*?(?:\]\]>|\Z)          # a section of foreign content
        |<[!?][^>]*+(?:>|\Z)                 # a document type, a processing instruction
        |</[^a-zA-Z>][^>]*+(?:>|\Z)          # a comment by mistake
        |</>
        |</?[a-zA-Z].*\Z                     # a tag without an end
        """,
    ),
    frozenset("iframe noembed noframes noscript script style textarea title xmp".split()),  # noqa: SIM905
)
XML = Dialect(
    _markup(
        name=r"[^\s/>!?][^\s/>]*+",
        others=r"""
        <!--.*?--> | <\?.*?\?> | <!\[CDATA\[.*?\]\]>
        |&(?!(?:amp|apos|gt|lt|quot);)[\w.:-]+;      # an entity that the file declares
        |&\#(?:0*13|x0*[dD]);(?:\r?\n|&\#(?:0*10|x0*[aA]);)? | &\#(?:0*10|x0*[aA]);  # a line break
        |<!DOCTYPE(?:[^\[>"']|"[^"]*"|'[^']*')*(?:\[.*?\]\s*)?>
        """,
    ),
    has_empty=True,
)
XHTML = HTML._replace(has_empty=True)
TEXT = Dialect(
    _markup(
        # %<PRIu64> is a placeholder of C, %<name>d of Ruby
        name=r"(?!PRI[diouxX]\w*>|(?<=%<)\w+>[-+#0]*[\d.]*[diouxXeEfFgGs](?!\w))[A-Za-z0-9]+",
        others=r"\{\\[^{}]*\}",
        attributes=r"""\b(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^<>])*+""",
    )
)
"""Tags as programs and subtitles have them, `{\\an8}` too."""


def split_tags(source: str, dialect: Dialect) -> Iterator[Token]:
    """Yields the tags of a source and the texts between them, in order."""
    position = 0
    while match := dialect.markup.search(source, position):
        if match.start() > position:
            yield Token(position, source[position : match.start()], "text")
        position = match.end()
        name = match["name"]
        if name is None:
            yield Token(match.start(), match[0], "other")
            continue
        is_empty = dialect.has_empty and match[0].endswith("/>")
        kind: TokenKind = "end" if match["end"] else "empty" if is_empty else "begin"
        yield Token(match.start(), match[0], kind, name, match["attributes"])
        if kind == "begin" and name.lower() in dialect.raw:
            end = _end_of_content(source, position, name.lower())
            yield Token(position, source[position:end], "raw", name)
            position = end
    if position < len(source):
        yield Token(position, source[position:], "text")


def read_attributes(written: str) -> Iterator[tuple[str, str]]:
    """Yields the names and values of the attributes of a tag."""
    for name, value in _ATTRIBUTE.findall(written):
        yield name, value[1:-1] if value[:1] in ("'", '"') else value


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
