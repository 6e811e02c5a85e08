"""The texts of Markdown: paragraphs, headings and cells, with emphasis and links as tags."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unicodedata import category

import yaml

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    TagKind,
    join_codes,
)
from vanilla_transformer.documents.places import LINE_BREAK, Place
from vanilla_transformer.documents.tags import HTML, split_tags
from vanilla_transformer.extras import optional_packages
from vanilla_transformer.text.languages import JOINED_LINES
from vanilla_transformer.text.patterns import pattern_of

_CELLS = ("td_open", "th_open")
_BEFORE = re.compile(r"\ufeff?(?:(---|\+\+\+)[ \t]*\r?\n(.*?\n)\1[ \t]*(?:\r?\n|\Z))?", re.DOTALL)
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")  # of YAML: an anchor and a tag
_BRACES = r"\{{2,3}[^`{}\n]*\}{2,3}"
_NO_PROSE = re.compile(  # no sentence begins like such a line, or has half a pair of braces
    r"([!%+/:;=?@^])\1{2,}|\$\$|[)\]}|]|\[(?:!\w+|TOC)\]|\*\[.*\]:|;?-+8<-|\\(?:begin|end)\{"
    r"|[^{]*\}\}|.*\{\{[^}]*$|%%.*%%$|\[[^\[\]^]+\]:\s+(?:<.*>|\S+)(?:\s+[\"'(].*)?$"
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
    rf"<[A-Za-z][\w.]*\s+(?:[^<>{{}}]*={_VALUE})+[^<>{{}}]*>|</?[A-Za-z]\w*\.\w[^<>]*>|{_BRACES}"
    rf"|\{{%[^\n]*?%\}}|\{{\s*[#.:][^{{}}\n]*\}}|\{{[\w:+-]+\}}(?=`)"
    r"|\{/\*(?:[^*]|\*(?!/))*\*/\}|!?\[\[[^\[\]\n]+\]\](?![(\[])"
    r"|(?<=\S)\[\^[^\]\s]+\]|\[\^[^\]\s]+\](?!:)"
    r"|(?<![\w:/])(?::[a-z][\w+-]*:)+(?!\w)"
)
_MARKS = re.compile(
    r"(?<![\w=+])(==|\+\+)(?![=+])(\S(?:.*?\S)??)\1|(?<![~^])([~^])([\w+-]+)\3(?!\3)"
)
_KINDS: dict[str, TagKind] = {"open": "begin", "begin": "begin", "close": "end", "end": "end"}
_NUMBERS = "|".join(rf"(?<=^\d{{{count}}})[.)]" for count in range(1, 10))
_SPECIAL = re.compile(rf"({_BRACES}|<[bB][rR]\s*/?>)|[\\`*_\[\]<>#~|$&!{{}}^]|^[-+=:>]|{_NUMBERS}")


@dataclass(frozen=True, kw_only=True)
class _MarkdownPlace(Place):
    """A block of Markdown.

    Attributes:
        signs: Characters as the source writes them, such as a star with a backslash.
        around: The kind of the token around it, such as "paragraph_open".
        structure: Its markup.
        parser: Reads the written text, to compare its markup.
        env: The references of the file.
    """

    signs: Mapping[int, str]
    around: str
    structure: list[str]
    parser: Any
    env: dict[str, Any]

    def write(self, whole: MarkedText) -> str:
        """As for `Place`. Emphasis around nothing, whose signs would be text, is left out."""
        tags: list[Tag] = []
        for tag in whole.tags:
            is_empty = tag.kind == "end" and _is_emphasis(tag) and tags[-1].kind == "begin"
            if is_empty and tags[-1].position == tag.position:
                tags.pop()  # its partner: pairs are nested
            else:
                tags.append(tag)
        whole = replace(whole, tags=tuple(tags))
        written = _join(whole, lambda text: text.translate(self.signs))
        if self._structure(written) != self.structure:  # a sign of the output became markup
            written = _join(whole, partial(_SPECIAL.sub, lambda sign: sign[1] or f"\\{sign[0]}"))
        return _as_cell(written) if self.around in _CELLS else written

    def _structure(self, written: str) -> list[str] | None:
        """Returns the markup that a reader of Markdown sees in a block. None: it is another one."""
        if self.around == "paragraph_open":
            kinds = [token.type for token in self.parser.parse(f"{written}\n", self.env)]
            if kinds != ["paragraph_open", "inline", "paragraph_close"]:
                return None
        block, *_ = self.parser.parseInline(written, self.env)
        return _markup_of(block.children)


def _scalar_of(text: str, style: str | None) -> str:
    """Writes a text as YAML. `style`: its quotation mark; None: plain, where it can be."""
    written = yaml.safe_dump(text, default_style=style, allow_unicode=True, width=math.inf)
    return str(written).split("\n")[0]


def _make_parser() -> Any:
    with optional_packages():
        from markdown_it import MarkdownIt, helpers
        from mdit_py_plugins.admon import admon_plugin
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
        from mdit_py_plugins.footnote import footnote_plugin

    def read_destination(text: str, *span: int) -> Any:
        """Reads the address of a link, which may be made by a template."""
        hidden = re.sub(_BRACES, lambda part: "-" * len(part[0]), text)
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
    head: re.Match[str] = _BEFORE.match(source)  # type: ignore[assignment]  # it also matches the empty string
    if front_matter and head[1]:
        yield from _places_of_front_matter(head, front_matter)
    parser, env = _make_parser(), dict[str, Any]()
    breaks = (match.end() for match in LINE_BREAK.finditer(source, head.end()))
    starts = [head.end(), *breaks, len(source)]
    read_to = list(starts)  # of each line
    for before, token in pairwise(parser.parse(source[head.end() :], env)):
        if token.type != "inline" or not token.map or _CODE.match(token.content):
            continue
        # The parser takes the backslash before each | out of cells. Other texts are the last in
        # their lines; without its quotation marks, the title of `!!! note` is its kind.
        is_cell, quote = before.type in _CELLS, '"' * (before.type == "admonition_title_open")
        as_written, find = (_as_cell, source.find) if is_cell else (str, source.rfind)
        lines: list[tuple[int, str]] = []
        for index, line in enumerate(token.content.split("\n"), token.map[0]):
            written = f"{quote}{as_written(line.strip())}{quote}"
            begin = find(written, read_to[index], starts[index + 1])
            if begin < 0:
                lines = []
                break
            read_to[index] = begin + len(written)
            lines.append((begin + len(quote), line))
        for pieces in _texts_of(lines):
            text = "\n".join(piece for _, piece in pieces).rstrip()
            block, *_ = [token] if text == token.content else parser.parseInline(text, env)
            children = block.children or []
            escaped = [child for child in children if child.type == "text_special"]
            prefixes = [source[starts[bisect_right(starts, at) - 1] : at] for at, _ in pieces]
            end = pieces[-1][0] + len(as_written(pieces[-1][1].rstrip()))
            yield from _MarkdownPlace.find(
                (pieces[0][0], end),
                join_codes(_items(children, text, prefixes)),
                signs={ord(x.content): x.markup for x in escaped if len(x.content) == 1},
                around=before.type,
                structure=_markup_of(children),
                parser=parser,
                env=env,
            )


def _texts_of(lines: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Yields the texts of a block, as pieces of lines, each with its begin in the file.

    A text ends at a line that is no prose, to which the indented lines below it belong.
    """
    texts: list[list[tuple[int, str]]] = [[]]
    is_fixed = False
    for begin, line in lines:
        is_fixed = bool(_NO_PROSE.match(line.strip()) or not _FOREIGN.sub("", line).strip()) or (
            is_fixed and line.startswith(("    ", "\t"))
        )
        if is_fixed:
            texts.append([])
        elif line.strip():
            texts[-1].append((begin, line.lstrip()))
    for pieces in filter(None, texts):
        begin, first = pieces[0]
        box = _TASK.match(first).end()  # type: ignore[union-attr]  # it also matches the empty string
        pieces[0] = begin + box, first[box:]
        pieces[-1] = pieces[-1][0], _ATTRIBUTES.sub("", pieces[-1][1])
        yield pieces


def _places_of_front_matter(head: re.Match[str], keys: Collection[str]) -> Iterator[Place]:
    """Yields the places of texts that are values of keys, or stand in lists there."""
    try:
        root = yaml.compose(head[2])
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark
        raise ValueError(f"line {mark.line + 2}: {error.problem}.") from error
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("line 1: front matter whose keys are named must have keys, in YAML.")
    texts = (
        node
        for key, value in root.value
        if key.value in keys
        for node in (value.value if isinstance(value, yaml.SequenceNode) else [value])
        if node.tag == "tag:yaml.org,2002:str"
    )
    for node in dict.fromkeys(texts):  # an alias is the node that it names
        first, last = (head.start(2) + mark.index for mark in (node.start_mark, node.end_mark))
        begin = _PROPERTIES.match(head.string, first).end()  # type: ignore[union-attr]  # it also matches the empty string
        end = begin + len(head.string[begin:last].rstrip())
        style = '"' if node.style in ("|", ">") else node.style
        encode = partial(_scalar_of, style=style)
        yield from Place.find((begin, end), [node.value], encode=encode)


def _markup_of(children: Sequence[Any]) -> list[str]:
    """Returns the markup of a block in alphabetical order, since a translation may move it."""
    return sorted(
        f"{child.type} {child.attrs} {child.type != 'image' and child.content}"
        for child in children
        if child.type not in ("text", "text_special", "softbreak")
    )


def _as_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _items(children: Sequence[Any], content: str, prefixes: Sequence[str]) -> list[Item]:
    """Returns the texts of a block, and its markup as tags; nothing if it is not understood.

    `prefixes` stand before its lines, such as the "> " of a quotation.
    """
    items: list[Item] = []
    position, line, labels = 0, 0, list[int]()
    remaining = iter(children)
    for child in remaining:
        kind, written = child.type, child.markup or child.content
        if child.info == "auto":  # its text is the address
            kind, _, child = "auto", next(remaining), next(remaining)
        if "end" in child.meta:
            written = content[position : child.meta["end"]]
        elif kind == "link_open":
            written = "["
            labels.append(position + 1)
        if not content.startswith(written, position):
            return []
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
            is_break = token.name.lower() == "br"  # which parts the lines
            inline = Tag(0, written, _KINDS.get(token.kind, "empty"), token.name)
            items.append(written if is_break else inline)
        elif kind == "link_close":
            label = " ".join(content[labels.pop() : position].split())
            tag = f"][{label}]" if written in ("]", "][]") else written  # a label names a reference
            items.append(Tag(0, tag, "end", name))
        else:
            items.append(Tag(0, written, _KINDS.get(side, "empty"), name))
        position += len(written)
    return [item for item in MarkedText.of(items).parts() if item]


def _join(output: MarkedText, write: Callable[[str], str]) -> str:
    """Writes a text with emphasis, with spaces where its signs would be text beside a letter."""
    written = ""
    parts: list[Item] = [""]
    for part in (part for part in output.parts() if part):
        last = parts[-1]
        if isinstance(part, Tag) and isinstance(last, Tag) and _are_one(last, part):
            parts[-1] = replace(part, text=last.text + part.text)
        else:
            parts.append(part)
    for last, part, behind in zip(parts, parts[1:], [*parts[2:], ""], strict=False):
        if isinstance(part, str):
            written += write(part)
            continue
        next_sign = (behind.text if isinstance(behind, Tag) else behind)[:1]
        begin, end = part.text[:1] in "*_~", part.text[-1:] in "*_~"
        inner = part.text.strip("*_~")  # of code in emphasis, which is one tag
        if begin and part.kind != "end":
            has_ended = isinstance(last, Tag) and last.kind != "begin"
            would_join = has_ended and written[-1] == part.text[0]
            if would_join or _needs_space(part.text, inner or next_sign, written):
                written += " "
        written += " " if written[-1:] == part.text[:1] == "`" else ""  # two codes would be one
        written += part.text
        before = inner or written[: -len(part.text)]
        if end and part.kind != "begin" and _needs_space(part.text, before[::-1], next_sign):
            written += " "
    return written


def _are_one(last: Tag, tag: Tag) -> bool:
    """Returns whether the signs of emphasis are a row of equal ones."""
    are_equal = len({*last.text, *tag.text}) == 1 and last.kind == tag.kind
    return are_equal and _is_emphasis(last) and _is_emphasis(tag)


def _is_emphasis(tag: Tag) -> bool:
    return tag.kind != "empty" and not tag.text.strip("*_~")


def _needs_space(signs: str, inside: str, outside: str) -> bool:
    """Returns whether emphasis would begin or end where CommonMark sees none.

    `inside` begins, and `outside` ends with the character beside its signs.
    """
    inner, outer = inside[:1], outside[-1:]
    if not outer.strip() or category(outer)[0] in "PS":
        return False
    return signs[0] == "_" or category(inner or " ")[0] in "PS"
