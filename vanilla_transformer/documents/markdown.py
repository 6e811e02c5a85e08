"""The texts of Markdown: paragraphs, headings and cells, with emphasis and links as tags."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any
from unicodedata import category

import yaml

from vanilla_transformer.documents.markup import MarkedText, Tag, TagKind
from vanilla_transformer.documents.places import (
    FileTemplate,
    Item,
    Place,
    find_place,
    join_codes,
    marked_text,
    split_text,
)
from vanilla_transformer.extras import optional_packages
from vanilla_transformer.text.languages import JOINED_LINES

_CELLS = ("td_open", "th_open")
_BEFORE = re.compile(r"\ufeff?(?:(---|\+\+\+)[ \t]*\r?\n(.*?\n)\1[ \t]*(?:\r?\n|\Z))?", re.DOTALL)
_NEW_LINE = re.compile(r"\r\n?|\n")
_TARGET = r"(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)"
_TITLE = r"""(?:\s+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?"""
_LINK_END = rf"\](?:\(\s*{_TARGET}{_TITLE}\s*\)|\[(?:[^\[\]\\]|\\.)*\])?"
_WRITTEN = {  # how a file writes tokens of which the parser does not tell it
    "auto": re.compile(r"<[^<>]*>"),
    "code_inline": re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL),
    "footnote_ref": re.compile(r"\[\^[^\]]*\]"),
    "hardbreak": re.compile(r"(?: {2,}|\\)\n[ \t]*"),
    "image": re.compile(rf"!\[(?:[^\[\]\\]|\\.|\[[^\[\]]*\])*{_LINK_END}", re.DOTALL),
    "link_close": re.compile(_LINK_END, re.DOTALL),
    "math_inline": re.compile(r"\$[^$]+\$"),
    "math_inline_double": re.compile(r"\$\$[^$]+\$\$"),
    "softbreak": re.compile(r" *\n[ \t]*"),
}
_LINE_OF_ITS_OWN = re.compile(
    r"\[!\w+\].*|(?:!!!|\?\?\?)\+?\s.*|:{3,}.*|\{\{[%<].*[%>]\}\}|\{%.*%\}|\$\$.*|\\(?:begin|end)\{.*"
)
_OTHER_SIGNS = re.compile(
    r"(^\[[ xX]\](?=\s|\Z)|\{[#.:][^{}\n]*\}|\{\{[%<].*?[%>]\}\}|\{%.*?%\}|\[\^[^\]\s]+\])"
)
_NUMBERS = "|".join(rf"(?<=^\d{{{count}}})[.)]" for count in range(1, 10))
_SPECIAL = re.compile(rf"[\\`*_\[\]<>#~|$&!{{}}^]|^[-+=:>]|{_NUMBERS}")


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

    signs: Mapping[str, str]
    around: str
    structure: list[str]
    parser: Any
    env: Mapping[str, Any]

    def write(self, output: MarkedText) -> str:
        """As for `Place`. Emphasis around nothing, whose signs would be text, is left out."""
        tags: list[Tag] = []
        for tag in output.tags:
            is_empty = tag.kind == "end" and _is_emphasis(tag) and tags[-1].kind == "begin"
            if is_empty and tags[-1].position == tag.position:
                tags.pop()  # its partner: pairs are nested
            else:
                tags.append(tag)
        parts = [*self.before, *replace(output, tags=tuple(tags)).parts(), *self.after]
        output = marked_text(parts).with_spaces()
        written = _join(output, self.signs)
        if self._structure(written) != self.structure:
            written = _join(output, None)  # a sign of the output became markup
        return _as_cell(written) if self.around in _CELLS else written

    def _structure(self, written: str) -> list[str]:
        """Returns the markup that a reader of Markdown sees in a block."""
        labels = self.env.get("footnotes", {}).get("refs", ())
        env = {**self.env, "footnotes": {"refs": dict.fromkeys(labels, -1)}}  # none is used yet
        if self.around == "paragraph_open":
            first, block, *_ = self.parser.parse(f"{written}\n", env)
            if first.type != self.around:
                return [first.type]
        else:
            block, *_ = self.parser.parseInline(written, env)
        return _markup_of(block.children)


def _scalar_of(text: str, style: str | None) -> str:
    """Writes a text of YAML in quotation marks; None: it has none and needs none."""
    written = yaml.safe_dump(text, default_style=style, allow_unicode=True, width=math.inf)
    return str(written).split("\n")[0]


def read_markdown(source: str, front_matter: Collection[str] = ()) -> FileTemplate:
    """Reads CommonMark with tables, footnotes, definitions, formulas and admonitions.

    Code, blocks of HTML, front matter, and lines that no reader of CommonMark knows, such as
    `[!NOTE]` and `:::`, stay as they are; but not the values of named keys of front matter in YAML.
    """
    with optional_packages():
        from markdown_it import MarkdownIt
        from mdit_py_plugins.admon import admon_plugin
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
        from mdit_py_plugins.footnote import footnote_plugin
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for plugin in (admon_plugin, deflist_plugin, footnote_plugin):
        parser.use(plugin)
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False)
    parser.disable(["text_join", "footnote_inline"])  # text_join hides escaped signs
    head: re.Match[str] = _BEFORE.match(source)  # type: ignore[assignment]  # it matches nothing, too
    first = head.end()
    starts = [first, *(match.end() for match in _NEW_LINE.finditer(source, first)), len(source)]
    read_to = list(starts)  # of each line
    env: dict[str, Any] = {}
    places = list(_places_of_front_matter(head, front_matter)) if front_matter and head[1] else []
    for before, token in pairwise(parser.parse(source[first:], env)):
        if token.type != "inline" or not token.map:
            continue
        # The parser takes the backslash before each | out of cells.
        as_written = _as_cell if before.type in _CELLS else str
        texts: list[list[tuple[int, int, str]]] = [[]]  # lines: number, begin, content
        for number, line in enumerate(token.content.split("\n"), token.map[0]):
            begin = source.find(as_written(line.strip()), read_to[number], starts[number + 1])
            if begin < 0:  # it is not in the source, such as the title of `!!! note`
                texts = []
                break
            read_to[number] = begin + len(as_written(line.strip()))
            if _LINE_OF_ITS_OWN.fullmatch(line.strip()):
                texts.append([])
            else:
                texts[-1].append((number, begin, line))
        for lines in filter(None, texts):
            content = "\n".join(line for _, _, line in lines)
            block, *_ = [token] if content == token.content else parser.parseInline(content, env)
            children = block.children or []
            prefixes = [source[starts[number] : begin] for number, begin, _ in lines]
            make = partial(
                _MarkdownPlace,
                signs={x.content: x.markup for x in children if x.type == "text_special"},
                around=before.type,
                structure=_markup_of(children),
                parser=parser,
                env=env,
            )
            items = join_codes(_items(children, content, prefixes))
            places += find_place((lines[0][1], read_to[lines[-1][0]]), items, make)
    return FileTemplate(source, sorted(places, key=lambda place: place.end))


def _places_of_front_matter(head: re.Match[str], keys: Collection[str]) -> Iterator[Place]:
    """Yields the places of texts that are values of keys, or stand in lists there."""
    try:
        root = yaml.compose(head[2])
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark
        raise ValueError(f"line {mark.line + 2}: {error.problem}.") from error
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("line 1: front matter whose keys are named must have keys, in YAML.")
    for key, value in root.value:
        for node in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if key.value in keys and node.tag == "tag:yaml.org,2002:str":
                begin = head.start(2) + node.start_mark.index
                end = begin + len(head.string[begin : head.start(2) + node.end_mark.index].rstrip())
                style = '"' if node.style in ("|", ">") else node.style
                make = partial(Place, encode=partial(_scalar_of, style=style))
                yield from find_place((begin, end), [node.value], make)


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
        kind = "auto" if child.info == "auto" else child.type
        match = _WRITTEN[kind].match(content, position) if kind in _WRITTEN else None
        written = match[0] if match else child.markup or child.content
        if kind == "link_open":
            written = "["
            labels.append(position + 1)
        if not content.startswith(written, position):
            return []
        name, _, side = kind.rpartition("_")
        if kind in ("text", "text_special"):
            items.append(child.content)
        elif kind == "softbreak":
            line += 1
            items.append("" if JOINED_LINES.match(content, position) else " ")
        elif kind == "hardbreak":
            line += 1
            items.append(" ")  # no white space goes out of the line
            items.append(Tag(0, written[: written.index("\n") + 1] + prefixes[line]))
        elif kind == "html_inline":
            tags = (item for item in split_text(written) if isinstance(item, Tag))
            items.append(next(tags, Tag(0, written)))
        elif kind == "link_close":
            label = " ".join(content[labels.pop() : position].split())
            tag = f"][{label}]" if written in ("]", "][]") else written  # a label names a reference
            items.append(Tag(0, tag, "end", name))
        elif kind == "auto":
            items.append(Tag(0, written))
            next(remaining)  # the address
            next(remaining)  # the end
        else:
            kinds: dict[str, TagKind] = {"open": "begin", "close": "end"}
            items.append(Tag(0, written, kinds.get(side, "empty"), name))
        position += len(written)
    texts = (
        part
        for is_text, parts in groupby(items, lambda item: isinstance(item, str))
        for part in (_OTHER_SIGNS.split("".join(parts)) if is_text else parts)  # type: ignore[arg-type]
    )
    return [
        Tag(0, item) if isinstance(item, str) and _OTHER_SIGNS.fullmatch(item) else item
        for item in texts
        if item
    ]


def _join(output: MarkedText, signs: Mapping[str, str] | None) -> str:
    """Writes a text with emphasis, with spaces where its signs would be text beside a letter.

    Args:
        signs: Spellings of some signs. None: a backslash stands before each that may be markup.
    """
    written = ""
    parts: list[Item] = [*(part for part in output.parts() if part), ""]
    for last, part, behind in zip(["", *parts], parts, parts[1:], strict=False):
        if isinstance(part, str):
            if signs is None:
                written += _SPECIAL.sub(r"\\\g<0>", part)
            else:
                written += "".join(signs.get(sign, sign) for sign in part)
            continue
        next_sign = (behind.text if isinstance(behind, Tag) else behind)[:1]
        begin, end = part.text[:1] in "*_~", part.text[-1:] in "*_~"
        inner = part.text.strip("*_~")  # of code in emphasis, which is one tag
        if begin and part.kind != "end":
            has_ended = isinstance(last, Tag) and last.kind != "begin"
            would_join = has_ended and written[-1] == part.text[0]
            if would_join or _needs_space(part.text, inner or next_sign, written):
                written += " "
        written += part.text
        before = inner or written[: -len(part.text)]
        if end and part.kind != "begin" and _needs_space(part.text, before[::-1], next_sign):
            written += " "
    return written


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
