"""Accelerators, such as the mark in `&Open`: texts lose them, and outputs get them back."""

from collections.abc import Sequence
from dataclasses import replace

import regex

from vanilla_transformer.documents.marked_text import (
    Tag,
    TextTranslation,
    split_edges,
    split_text,
    without_equal_edges,
)
from vanilla_transformer.documents.places import FileText
from vanilla_transformer.text.edits import meets
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.memory import Pair

_MARK = regex.compile(
    r"""(?<![\w&])&(?=[\p{L}\p{N}])(?!\w+;)                     # &Open, but not &amp;
    |(?<=\b\p{Lu}\p{Ll}*|\s\p{Ll}+)&(?=\p{Ll})(?!\w+;)         # E&xit, save f&ile
    |(?<![\w_])_(?=(?:\p{L}\p{Ll}*|OK)\b)                      # _Open, _OK
    |(?<=\b\p{Lu}\p{Ll}*)_(?=\p{Ll})                           # E_xit""",
    regex.VERBOSE,
)
# No accelerator of 9,400 in translated programs stands there, but names such as `_private` do.
_QUOTED = regex.compile(r"(?:[`\"\p{Pi}.=~]|(?<!\p{L})')\Z")
_INNER = regex.compile(r"(?<=\s)_\p{Ll}")
_LONGEST_LABEL = 80  # characters, chosen without a measurement: no longer text has an accelerator
_SHORTEST_WORD = 3  # letters on both sides of an `&` that may mean "and"
_LETTERS_BEFORE, _LETTERS = regex.compile(r"\p{L}*$"), regex.compile(r"\p{L}*")
_LETTER = r"[\p{Latin}\p{Greek}\p{Cyrillic}]"
_TAIL = regex.compile(r"[\s.:\u2026\uff1a]*\Z")
_MARK_BEHIND = regex.compile(r"\s*\([&_]\p{L}\)")


def find_accelerator(text: str, lowered_source: str | None, has_first: bool) -> int | None:
    """Returns the position of the mark of a text's accelerator. None: it has none.

    `Pass&word` has one if the file has "password", too; `Drag&drop` has none. `Save _as` has one if
    another text of the file begins with one, such as `_Open`; `Call _name` in other files has none.

    Args:
        lowered_source: The file in lower case. "": it is unknown. None: it has no accelerators.
        has_first: Whether a text of the file may begin with the mark of one, such as `_Open`.
    """
    if lowered_source is None or len(text) > _LONGEST_LABEL:
        return None
    marks = list(_MARK.finditer(text))
    if len(marks) != 1:
        return None
    position = marks[0].start()
    is_in_code = text.count("`", 0, position) % 2 and "`" in text[position:]
    is_lone = not has_first and _INNER.match(text, position)
    if is_in_code or is_lone or _QUOTED.search(text, endpos=position):
        return None
    parts = _LETTERS_BEFORE.search(text, endpos=position)[0], _LETTERS.match(text, position + 1)[0]
    word = "".join(parts).lower()
    is_doubtful = min(map(len, parts)) >= _SHORTEST_WORD and word not in lowered_source
    return None if is_doubtful else position


def pair_without_accelerators(pair: Pair, lowered_source: str = "", has_first: bool = True) -> Pair:
    """Returns a pair without accelerators, and without the same tags around both sides.

    A document takes the same out of a text before it is translated; see `find_accelerator`.
    """
    position = find_accelerator(pair.source, lowered_source, has_first)
    source, mark = _without_mark(pair.source, position)
    target = _MARK_BEHIND.sub("", pair.target)
    # A translator may put the mark before any letter.
    target = target.replace(mark, "") if mark and target.count(mark) == 1 else target
    target = _without_mark(target, find_accelerator(target, lowered_source, has_first))[0]
    sides = (split_edges(split_text(text)) for text in (source, target))
    source, target = without_equal_edges(*sides)
    return pair._replace(source=source, target=target)


def _without_mark(text: str, position: int | None) -> tuple[str, str]:
    """Returns a text without the mark at a position, and the mark."""
    if position is None:
        return text, ""
    return text[:position] + text[position + 1 :], text[position]


class AcceleratorText:
    """A text without the mark of its accelerator; `texts` holds this text alone."""

    def __init__(self, text: FileText, lowered_source: str | None, has_first: bool) -> None:
        marked, self._flags = text.marked, text.flags
        position = find_accelerator(marked.plain, lowered_source, has_first)
        plain, self._mark = _without_mark(marked.plain, position)
        self._letter = "" if position is None else plain[position]
        if position is not None:
            marked = replace(marked, plain=plain, tags=_moved(marked.tags, position, -1))
        self.texts = [marked]

    def write(self, outputs: Sequence[TextTranslation]) -> TextTranslation:
        """Puts the mark before the same letter, best where a word begins, or the first letter.

        A text without letters of an alphabet gets it behind itself, as in Chinese programs: "(_O)".
        """
        (output,) = outputs
        if not self._mark:
            return output
        text = output.plain
        added = self._mark
        letter = f"(?i:{regex.escape(self._letter)})"
        kept = kept_spans(text, flags=self._flags)
        letters = (
            found.span()
            for pattern in (rf"\b{letter}", letter, _LETTER)
            for found in regex.finditer(pattern, text)
        )
        position = next((begin for begin, end in letters if not meets((begin, end), kept)), None)
        if position is None:
            position = _TAIL.search(text).start()
            added = f"({self._mark}{self._letter.upper()})"
        written = f"{text[:position]}{added}{text[position:]}"
        return replace(output, plain=written, tags=_moved(output.tags, position, len(added)))


def _moved(tags: Sequence[Tag], begin: int, count: int) -> tuple[Tag, ...]:
    """Returns tags; those behind a position are moved by a number of characters."""
    return tuple(
        replace(tag, position=tag.position + count) if tag.position > begin else tag for tag in tags
    )
