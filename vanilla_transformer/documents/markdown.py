"""The texts of Markdown: paragraphs, headings and cells, with emphasis and links as tags."""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from vanilla_transformer.documents.front_matter import places_of_front_matter
from vanilla_transformer.documents.markdown_writing import (
    BRACES,
    CELLS,
    MarkdownPlace,
    as_cell,
    markup_of,
)
from vanilla_transformer.documents.marked_text import Item, MarkedText, Tag, TagKind, join_codes
from vanilla_transformer.documents.places import LINE_BREAK, Place
from vanilla_transformer.documents.tags import HTML, split_tags
from vanilla_transformer.extras import optional_packages
from vanilla_transformer.text.languages import JOINED_LINES
from vanilla_transformer.text.patterns import pattern_of

_HEAD = re.compile(r"\ufeff?(?:(---|\+\+\+)[ \t]*\r?\n(.*?\n)\1[ \t]*(?:\r?\n|\Z))?", re.DOTALL)
_NO_PROSE = re.compile(  # no sentence begins like such a line, or has half a pair of braces
    r"([!%+/:;=?@^])\1{2,}|\$\$|[)\]}|]"  # ":::", "+++", a formula, the end of brackets
    r"|\[(?:!\w+|TOC)\]|\*\[.*\]:|;?-+8<-"  # "[!NOTE]", an abbreviation "*[HTML]:", a snippet
    r"|\\(?:begin|end)\{|[^{]*\}\}|.*\{\{[^}]*$"  # LaTeX, half a pair of braces
    r"|%%.*%%$"  # a comment of Obsidian
    r"|\[[^\[\]^]+\]:\s+(?:<.*>|\S+)(?:\s+[\"'(].*)?$"  # a reference "[name]: address"
)
_TASK = re.compile(r"(?:\[[ xX]\]\s+)?")
_ATTRIBUTES = re.compile(r"(?:\s+\{\s*[#.:][^{}\n]*\})?\s*$")
_CODE = re.compile(  # a paragraph of MDX
    r"import\s+(?:['\"{]|[\w*\s,]+\sfrom\s)|export\s+(?:default|const|let|var|function|class|[{*])"
)
_LIQUID = re.compile(
    r"\{%-?\s*(highlight|raw|comment|verbatim)\b[^\n]*\n.*?\{%-?\s*end\1\b[^\n]*", re.DOTALL
)
_VALUE = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_FOREIGN = re.compile(  # parts that no reader of CommonMark knows
    rf"<[A-Za-z][\w.]*\s+(?:[^<>{{}}]*={_VALUE})+[^<>{{}}]*>"  # of JSX: <Tab label={name}>
    rf"|</?[A-Za-z]\w*\.\w[^<>]*>|{BRACES}"  # <Tabs.Tab>, {{ name }}
    rf"|\{{%[^\n]*?%\}}|\{{\s*[#.:][^{{}}\n]*\}}|\{{[\w:+-]+\}}(?=`)"  # Liquid, {: .note}, {math}`
    r"|\{/\*(?:[^*]|\*(?!/))*\*/\}"  # a comment of MDX
    r"|!?\[\[[^\[\]\n]+\]\](?![(\[])"  # a link of a wiki
    r"|(?<=\S)\[\^[^\]\s]+\]|\[\^[^\]\s]+\](?!:)"  # a mark of a footnote
    r"|(?<![\w:/])(?::[a-z][\w+-]*:)+(?!\w)"  # :material-check:
)
_MARKS = re.compile(
    r"(?<![\w=+])(==|\+\+)(?![=+])(\S(?:.*?\S)??)\1|(?<![~^])([~^])([\w+-]+)\3(?!\3)"
)
# By the end of the name of a token of Markdown, and by the kind of a tag of HTML.
_KINDS: dict[str, TagKind] = {"open": "begin", "begin": "begin", "close": "end", "end": "end"}
_Line = tuple[int, str]  # a line of a text, or a part of it, after its begin in the file


def _make_parser() -> Any:
    with optional_packages():
        from markdown_it import MarkdownIt, helpers
        from mdit_py_plugins.admon import admon_plugin
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
        from mdit_py_plugins.footnote import footnote_plugin

    def read_destination(text: str, *span: int) -> Any:
        """Reads the address of a link, which may be made by a template."""
        hidden = re.sub(BRACES, lambda part: "-" * len(part[0]), text)
        return helpers.parseLinkDestination(hidden, *span)

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for plugin in (admon_plugin, deflist_plugin, footnote_plugin):
        parser.use(plugin)
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False)
    # text_join hides escaped signs; references to footnotes are tags, whose texts stay in place.
    parser.disable(["text_join", "footnote_inline", "footnote_ref", "footnote_tail"])
    parser.inline.ruler.before("escape", "foreign", _read_foreign)
    parser.inline.ruler.before("strikethrough", "marks", _read_marks)
    parts = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("table", "liquid", _skip_liquid, {"alt": parts})
    for rule in parser.inline.ruler.__rules__:
        rule.fn = _telling_end(rule.fn)
    functions = vars(helpers) | {"parseLinkDestination": read_destination}
    parser.helpers = SimpleNamespace(**functions)  # type: ignore[assignment]  # as a module has them
    return parser


def _telling_end(rule: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
    """Returns a rule whose last token tells where its part of the text ends."""

    def read(state: Any, silent: bool) -> bool:
        count = len(state.tokens)
        is_read = rule(state, silent)
        if len(state.tokens) > count:
            state.tokens[-1].meta["end"] = state.pos
        return is_read

    return read


def _read_foreign(state: Any, silent: bool) -> bool:
    """Reads a part of a text that is no Markdown."""
    part = _FOREIGN.match(state.src, state.pos)
    if part and not silent:
        state.push("foreign", "", 0).content = part[0]
    state.pos = part.end() if part else state.pos
    return part is not None


def _read_marks(state: Any, silent: bool) -> bool:
    """Reads `==marked==`, `++new++`, `H~2~O` and `x^2^`, which CommonMark lacks."""
    part = _MARKS.match(state.src, state.pos, state.posMax)
    if part and not silent:
        (sign, inner), end = (1, 2) if part[1] else (3, 4), state.posMax
        state.push("marks_open", "", 1).markup = part[sign]
        state.pos, state.posMax = part.span(inner)
        state.md.inline.tokenize(state)
        state.push("marks_close", "", -1).markup = part[sign]
        state.posMax = end
    state.pos = part.end() if part else state.pos
    return part is not None


def _skip_liquid(state: Any, first: int, _: int, silent: bool) -> bool:
    """Passes over code in Liquid."""
    code = _LIQUID.match(state.src, state.bMarks[first] + state.tShift[first])
    if code and not silent:
        state.line = first + code[0].count("\n") + 1
    return code is not None


def places_of_markdown(source: str, front_matter: Collection[str] = ()) -> Iterator[Place]:
    """Yields the places of texts of CommonMark with tables, notes, definitions, formulas and boxes.

    Code, blocks of HTML, front matter, and lines that no reader of CommonMark knows, such as
    `[!NOTE]` and `:::`, stay as they are; but not the values of named keys of front matter in YAML.
    """
    head: re.Match[str] = _HEAD.match(source)  # type: ignore[assignment]  # it also matches the empty string
    if front_matter and head[1]:
        yield from places_of_front_matter(head, front_matter)
    parser = _make_parser()
    env = dict[str, Any]()
    breaks = (match.end() for match in LINE_BREAK.finditer(source, head.end()))
    starts = [head.end(), *breaks, len(source)]
    read_to = list(starts)  # of each line
    for before, token in pairwise(parser.parse(source[head.end() :], env)):
        if token.type != "inline" or not token.map or _CODE.match(token.content):
            continue
        as_written = as_cell if before.type in CELLS else str
        for lines in _texts_of(_find_lines(source, token, before.type, starts, read_to)):
            text = "\n".join(line for _, line in lines).rstrip()
            block, *_ = [token] if text == token.content else parser.parseInline(text, env)
            children = block.children or []
            escaped = [child for child in children if child.type == "text_special"]
            prefixes = [source[starts[bisect_right(starts, at) - 1] : at] for at, _ in lines]
            last_begin, last_line = lines[-1]
            yield from MarkdownPlace.find(
                (lines[0][0], last_begin + len(as_written(last_line.rstrip()))),
                join_codes(_items(children, text, prefixes)),
                signs={ord(x.content): x.markup for x in escaped if len(x.content) == 1},
                around=before.type,
                structure=markup_of(children),
                parser=parser,
                env=env,
            )


def _find_lines(
    source: str, block: Any, around: str, starts: Sequence[int], read_to: list[int]
) -> list[_Line]:
    """Finds the lines of a block in the file; none if the file lacks one.

    Args:
        around: The kind of the token around the block.
        starts: The begin of each line of the file, and its end.
        read_to: The end of the last block in each line of the file; it is updated.
    """
    # The parser takes the backslash before each | out of cells. Other texts are the last in
    # their lines; without its quotation marks, the title of `!!! note` is its kind.
    quote = '"' if around == "admonition_title_open" else ""
    as_written, find = (as_cell, source.find) if around in CELLS else (str, source.rfind)
    lines: list[_Line] = []
    for index, line in enumerate(block.content.split("\n"), block.map[0]):
        written = f"{quote}{as_written(line if quote else line.strip())}{quote}"
        begin = find(written, read_to[index], starts[index + 1])
        if begin < 0:
            return []
        read_to[index] = begin + len(written)
        lines.append((begin + written.find(as_written(line.strip())), line))
    return lines


def _texts_of(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Yields the lines of each text of a block, without boxes of tasks and attributes.

    A text ends at a line that is no prose, to which the indented lines below it belong.
    """
    texts: list[list[_Line]] = [[]]
    is_fixed = False
    for begin, line in lines:
        is_fixed = bool(_NO_PROSE.match(line.strip()) or not _FOREIGN.sub("", line).strip()) or (
            is_fixed and line.startswith(("    ", "\t"))
        )
        if is_fixed:
            texts.append([])
        elif line.strip():
            texts[-1].append((begin, line.lstrip()))
    for text in filter(None, texts):
        begin, first = text[0]
        box = _TASK.match(first).end()  # type: ignore[union-attr]  # it also matches the empty string
        text[0] = begin + box, first[box:]
        text[-1] = text[-1][0], _ATTRIBUTES.sub("", text[-1][1])
        yield text


def _items(children: Sequence[Any], content: str, prefixes: Sequence[str]) -> list[Item]:
    """Returns the texts of a block, and its markup as tags; nothing if it is not understood.

    Args:
        prefixes: The parts of the file before its lines, such as the "> " of a quotation.
    """
    items: list[Item] = []
    labels = list[int]()  # where the texts of open links begin
    line = 0
    for kind, child, written, position in _written_tokens(children, content):
        if not content.startswith(written, position):
            return []
        if kind == "link_open":
            labels.append(position + 1)
        name, _, side = kind.rpartition("_")
        is_placeholder = kind == "foreign" and written[:2] == "{{" and pattern_of(written)
        if kind in ("text", "text_special") or is_placeholder:
            items.append(child.content)
        elif kind == "softbreak":
            line += 1
            items.append("" if JOINED_LINES.match(content, position) else " ")
        elif kind == "hardbreak":
            line += 1
            items.append(" ")  # no white space goes out of the line
            items.append(Tag(0, written[: written.index("\n") + 1] + prefixes[line]))
        elif kind == "html_inline":
            token = next(split_tags(written, HTML))
            tag = Tag(0, written, _KINDS.get(token.kind, "empty"), token.name)
            items.append(written if token.name.lower() == "br" else tag)  # a break stays text
        elif kind == "link_close":
            label = " ".join(content[labels.pop() : position].split())
            end = f"][{label}]" if written in ("]", "][]") else written  # a label names a reference
            items.append(Tag(0, end, "end", name))
        else:
            items.append(Tag(0, written, _KINDS.get(side, "empty"), name))
    return [item for item in MarkedText.of(items).items() if item]


def _written_tokens(children: Sequence[Any], content: str) -> Iterator[tuple[str, Any, str, int]]:
    """Yields the kind of each token of a text, the token, how it is written, and where."""
    position = 0
    remaining = iter(children)
    for token in remaining:
        kind = token.type
        written = token.markup or token.content
        if token.info == "auto":  # a link of three tokens, whose text is the address
            kind = "auto"
            next(remaining)
            token = next(remaining)  # the last one tells where the link ends
        if "end" in token.meta:
            written = content[position : token.meta["end"]]
        elif kind == "link_open":
            written = "["
        yield kind, token, written, position
        position += len(written)
