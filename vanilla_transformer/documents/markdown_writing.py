"""Markdown as it is written: emphasis stays emphasis, and no sign of a text becomes markup."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unicodedata import category

from vanilla_transformer.documents.marked_text import Item, MarkedText, Tag
from vanilla_transformer.documents.places import Place

CELLS = ("td_open", "th_open")
BRACES = r"\{{2,3}[^`{}\n]*\}{2,3}"
_NUMBERS = "|".join(rf"(?<=^\d{{{count}}})[.)]" for count in range(1, 10))
_SPECIAL = re.compile(rf"({BRACES}|<[bB][rR]\s*/?>)|[\\`*_\[\]<>#~|$&!{{}}^]|^[-+=:>]|{_NUMBERS}")


@dataclass(frozen=True, kw_only=True)
class MarkdownPlace(Place):
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
        return as_cell(written) if self.around in CELLS else written

    def _structure(self, written: str) -> list[str] | None:
        """Returns the markup that a reader of Markdown sees in a block. None: it is another one."""
        if self.around == "paragraph_open":
            kinds = [token.type for token in self.parser.parse(f"{written}\n", self.env)]
            if kinds != ["paragraph_open", "inline", "paragraph_close"]:
                return None
        block, *_ = self.parser.parseInline(written, self.env)
        return markup_of(block.children)


def markup_of(children: Sequence[Any]) -> list[str]:
    """Returns the markup of a block in alphabetical order, since a translation may move it."""
    return sorted(
        f"{child.type} {child.attrs} {'' if child.type == 'image' else child.content}"
        for child in children
        if child.type not in ("text", "text_special", "softbreak")
    )


def as_cell(text: str) -> str:
    """Returns a text as a cell of a table has it."""
    return text.replace("|", "\\|")


def _join(output: MarkedText, write: Callable[[str], str]) -> str:
    """Writes a text with emphasis, with spaces where its signs would be text beside a letter."""
    written = ""
    parts = _with_rows_of_signs(output.items())
    for last, part, following in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        if isinstance(part, str):
            written += write(part)
            continue
        behind = following.text if isinstance(following, Tag) else following
        may_open = part.text[:1] in "*_~" and part.kind != "end"
        may_close = part.text[-1:] in "*_~" and part.kind != "begin"
        inner = part.text.strip("*_~")  # of code in emphasis, which is one tag
        if may_open:
            has_ended = isinstance(last, Tag) and last.kind != "begin"
            would_join = has_ended and written[-1] == part.text[0]
            if would_join or _needs_space(part.text, (inner or behind)[:1], written[-1:]):
                written += " "
        written += " " if written[-1:] == part.text[:1] == "`" else ""  # two codes would be one
        last_inner = (inner or written)[-1:]
        written += part.text
        if may_close and _needs_space(part.text, last_inner, behind[:1]):
            written += " "
    return written


def _with_rows_of_signs(parts: Iterable[Item]) -> list[Item]:
    """Returns the parts of a text, with one tag for a row of equal signs of emphasis."""
    joined = list[Item]()
    for part in (part for part in parts if part):
        last = joined[-1] if joined else ""
        if isinstance(part, Tag) and isinstance(last, Tag) and _are_one(last, part):
            joined[-1] = replace(part, text=last.text + part.text)
        else:
            joined.append(part)
    return joined


def _are_one(last: Tag, tag: Tag) -> bool:
    """Returns whether the signs of emphasis are a row of equal ones."""
    are_equal = len({*last.text, *tag.text}) == 1 and last.kind == tag.kind
    return are_equal and _is_emphasis(last) and _is_emphasis(tag)


def _is_emphasis(tag: Tag) -> bool:
    return tag.kind != "empty" and not tag.text.strip("*_~")


def _needs_space(signs: str, inner: str, outer: str) -> bool:
    """Returns whether emphasis would begin or end where CommonMark sees none.

    `inner` and `outer` are the characters on both sides of its signs, or empty.
    """
    if not outer.strip() or category(outer)[0] in "PS":
        return False
    return signs[0] == "_" or category(inner or " ")[0] in "PS"
