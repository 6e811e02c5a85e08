"""Texts of programs: the branches of ICU messages, and the signs before letters of keys."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

import regex

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    free_names,
    is_translated,
    marked_text,
    split_edges,
    split_text,
    without_equal_edges,
)
from vanilla_transformer.documents.places import Document
from vanilla_transformer.text.edits import meets
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.memory import Pair

_ACCELERATOR = regex.compile(
    r"(?<![\w&])&(?=[\p{L}\p{N}])(?!\w+;)|(?<=\b\p{Lu}\p{Ll}*|\s\p{Ll}+)&(?=\p{Ll})(?!\w+;)"
    r"|(?<![\w_])_(?=(?:\p{L}\p{Ll}*|OK)\b)|(?<=\b\p{Lu}\p{Ll}*)_(?=\p{Ll})"
)
_NUMBER = re.compile(r"%\d+\$[^\s%]")
_LONGEST_LABEL = 80  # characters, chosen without a measurement: a longer text has no key
_SHORTEST_WORD = 3  # letters on both sides of a sign that may be the word "and"
_LETTERS_BEFORE, _LETTERS = regex.compile(r"\p{L}*$"), regex.compile(r"\p{L}*")
_LETTER = r"[\p{Latin}\p{Greek}\p{Cyrillic}]"
_TAIL = regex.compile(r"[\s.:\u2026\uff1a]*\Z")
_SIGN_BEHIND = regex.compile(r"\s*\([&_]\p{L}\)")
_CHOICE = r"\{\s*[\w.-]+\s*,\s*(plural|select|selectordinal)\s*,(?:\s*offset:\s*\d+)?"
_TOKEN = re.compile(
    rf"''|'(?=[{{}}#])(?:[^']|'')*'|{_CHOICE}|\{{[^{{}},]*,\s*choice\s*,(?:[^{{}}]|\{{[^{{}}]*\}})*\}}"
    r"|\{(?:[^{}']|'[^']*')*\}|[{}#]"
)
_BRANCH = re.compile(r"\s*(?:=\d+|\w[\w-]*)\s*\{")
_END = re.compile(r"\s*\}")


def pair_of_messages(pair: Pair, words: str = "") -> Pair:
    """Returns a pair without signs of keys, and without tags around both sides.

    `MessageDocument` and places take the same out of a text before it is translated.

    Args:
        words: As for `find_key`.
    """
    source, sign = _without_sign(pair.source, find_key(pair.source, words))
    target = _SIGN_BEHIND.sub("", pair.target)
    # A translator may put the sign before any letter.
    target = target.replace(sign, "") if sign and target.count(sign) == 1 else target
    target = _without_sign(target, find_key(target, words))[0]
    sides = (split_edges(split_text(text)) for text in (source, target))
    source, target = without_equal_edges(*sides)
    return pair._replace(source=source, target=target)


def find_key(text: str, words: str) -> int | None:
    """Returns the position of the sign before the letter of a key in a text. None: it has none.

    Args:
        words: The file in small letters. `Pass&word` has a key where it has "password", too;
            `Drag&drop` has none.
    """
    signs = list(_ACCELERATOR.finditer(text)) if len(text) <= _LONGEST_LABEL else []
    if len(signs) != 1:
        return None
    position = signs[0].start()
    parts = _LETTERS_BEFORE.search(text, endpos=position)[0], _LETTERS.match(text, position + 1)[0]
    is_doubtful = min(map(len, parts)) >= _SHORTEST_WORD and "".join(parts).lower() not in words
    return None if is_doubtful else position


def _without_sign(text: str, key: int | None) -> tuple[str, str]:
    """Returns a text without the sign before the letter of a key, and the sign."""
    return (text, "") if key is None else (text[:key] + text[key + 1 :], text[key])


class MessageDocument(Document):
    """A document without signs of keys, in which each branch of ICU's messages is a text."""

    def __init__(self, document: Document) -> None:
        self._document, self.language = document, document.language
        self.marks_doubt, self.kept = document.marks_doubt, document.kept
        texts, self.pairs, words = document.texts, document.pairs, document.words
        written = chain((text.text for text in texts), (pair.target for pair in self.pairs))
        if any(map(_NUMBER.search, written)):  # other texts of the file have numbers, too
            texts = [replace(text, flags=text.flags | {"numbered-format"}) for text in texts]
        if words is not None:
            self.pairs = [pair_of_messages(pair, words) for pair in self.pairs]
        self._messages = [
            _Choices(text)
            if re.search(_CHOICE, text.text) or "java-format" in text.flags
            else _Text(text, None if words is None else find_key(text.text, words))
            for text in texts
        ]
        self.rows = [
            row._replace(text=text, number=number)
            for message, row in zip(self._messages, document.rows, strict=True)
            for number, text in enumerate(message.texts)
        ]

    def write(self, outputs: Sequence[MarkedText | None], language: str | None = None) -> bytes:
        """As for `Document`; where one of the texts of a message stays, all of them stay."""
        remaining = iter(outputs)
        written: list[MarkedText | None] = []
        for message in self._messages:
            row = list(islice(remaining, len(message.texts)))
            known = [output for output in row if output]  # the others are cut off
            parts, text = {output.part for output in known}, None
            if known and known == row:
                is_whole = len(parts) == 1 and any(parts)
                text = known[0] if is_whole else message.write(known)
            are_doubtful = any(output.is_doubtful for output in known)
            are_known = all(output.is_known for output in known)
            written.append(text and replace(text, is_doubtful=are_doubtful, is_known=are_known))
        return self._document.write(written, language)


class _Text:
    """A text without branches; it loses the sign "&" or "_" before the letter of a key."""

    def __init__(self, marked: MarkedText, key: int | None) -> None:
        text, self._sign = _without_sign(marked.text, key)
        if key is not None:
            self._letter = text[key]
            marked = replace(marked, text=text, tags=_moved(marked.tags, key, -1))
        self.texts = [marked]

    def write(self, outputs: Sequence[MarkedText]) -> MarkedText:
        """Puts the sign before the same letter, best where a word begins, or the first one."""
        (output,) = outputs
        if not self._sign:
            return output
        text, added, letter = output.text, self._sign, f"(?i:{regex.escape(self._letter)})"
        kept = kept_spans(text, flags=self.texts[0].flags)
        position = next(
            (
                found.start()
                for pattern in (rf"\b{letter}", letter, _LETTER)
                for found in regex.finditer(pattern, text)
                if not meets(found.span(), kept)
            ),
            None,
        )
        if position is None:  # as Chinese and Japanese programs have it
            position, added = _TAIL.search(text).start(), f"({self._sign}{self._letter.upper()})"
        written = f"{text[:position]}{added}{text[position:]}"
        return replace(output, text=written, tags=_moved(output.tags, position, len(added)))


def _moved(tags: Sequence[Tag], begin: int, count: int) -> tuple[Tag, ...]:
    return tuple(
        replace(tag, position=tag.position + count) if tag.position > begin else tag for tag in tags
    )


class _Branch(NamedTuple):
    """A text of a message.

    Attributes:
        contents: The parts of the message that each placeholder of the text stands for; a number
            stands for a branch.
    """

    text: MarkedText
    contents: Mapping[str, Sequence[str | int]]


class _Choices:
    """A message in ICU's syntax: the text of each branch, behind the texts of branches within it.

    Choices, `#` and quoted parts are placeholders such as `{0}` in these texts. A message that is
    not valid has no texts.
    """

    def __init__(self, marked: MarkedText) -> None:
        self._marked, self._tags = marked, deque(marked.tags)
        self._branches: list[_Branch] = []
        try:
            if self._read(0) < len(marked.text):
                raise ValueError
        except ValueError:
            self._branches = []
        numbers = range(len(self._branches))
        self._numbers = [n for n in numbers if is_translated(self._branches[n].text.text)]
        self.texts = [self._branches[number].text for number in self._numbers]

    def _read(self, position: int, is_plural: bool = False) -> int:
        """Reads a text up to the brace that closes it, or the end; returns where that is."""
        text, items, contents = self._marked.text, list[Item](), dict[str, Sequence[str | int]]()
        names = free_names(text)
        while True:
            token = _TOKEN.search(text, position)
            stop = token.start() if token else len(text)
            while self._tags and self._tags[0].position <= stop:
                self._check_tags(position)
                tag = self._tags.popleft()
                items += [text[position : tag.position], tag]
                position = tag.position
            items.append(text[position:stop])
            if token is None or token[0] == "}":
                break
            position = token.end()
            if token[0] == "{":
                raise ValueError
            content: Sequence[str | int] = [token[0]]
            if token[1]:
                content, position = self._read_choice(token, is_plural)
            if token[1] or token[0].startswith("'{") or (token[0] in "#'#" and is_plural):
                name = next(names)
                contents[name] = content
                items.append(name)
            else:
                items.append(token[0].replace("''", "'"))
        marked, message = split_edges(items), self._marked
        marked = replace(marked, context=message.context, flags=message.flags)
        self._branches.append(_Branch(marked, contents))
        return stop

    def _read_choice(self, begin: re.Match[str], is_plural: bool) -> tuple[list[str | int], int]:
        """Reads branches; returns the frame with their numbers, and the position behind it."""
        text, parts, position = self._marked.text, list[str | int](), begin.end()
        first = begin.start()
        while branch := _BRANCH.match(text, position):
            self._check_tags(branch.end())
            parts.append(text[first : branch.end()])
            first = self._read(branch.end(), is_plural or begin[1] != "select")
            parts.append(len(self._branches) - 1)
            position = first + 1
        end = _END.match(text, position)
        if not parts or end is None:
            raise ValueError
        self._check_tags(end.end())
        return [*parts, text[first : end.end()]], end.end()

    def _check_tags(self, position: int) -> None:
        """Refuses a tag before a position, which would be within a frame."""
        if self._tags and self._tags[0].position < position:
            raise ValueError

    def write(self, outputs: Sequence[MarkedText]) -> MarkedText | None:
        """Returns the message with outputs of its texts; None: one lacks a placeholder."""
        if list(outputs) == self.texts:
            return self._marked
        texts = [branch.text for branch in self._branches]
        for number, output in zip(self._numbers, outputs, strict=True):
            texts[number] = output
        for branch, text in zip(self._branches, texts, strict=True):
            if any(name not in text.text for name in branch.contents):
                return None
        return marked_text(self._written(len(texts) - 1, texts))

    def _written(self, number: int, texts: Sequence[MarkedText]) -> Iterator[Item]:
        own, contents = self._branches[number]
        before, after = texts[number].edges or own.edges or ((), ())
        text = self._marked.text
        is_of_java = "java-format" in self._marked.flags
        doubles_all = "''" in text or (is_of_java and "'" not in text)
        apostrophe = "'" if doubles_all else "'(?=[{}#])"
        for item in (*before, *texts[number].parts(), *after):
            if isinstance(item, Tag):
                yield item
                continue
            written = re.sub(apostrophe, "''", item)
            for piece in re.split(r"(\{\d+\})", written):
                for part in contents.get(piece, [piece]):
                    yield from self._written(part, texts) if isinstance(part, int) else [part]
