"""Documents of messages: each branch of a message in ICU's syntax is a text of its own."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice
from typing import NamedTuple

from vanilla_transformer.documents.accelerators import AcceleratorText, pair_without_accelerators
from vanilla_transformer.documents.marked_text import (
    TAG_SIGN,
    Item,
    MarkedText,
    Tag,
    TextTranslation,
    Translations,
    free_names,
    has_letters,
    split_edges,
)
from vanilla_transformer.documents.places import Document, FileText
from vanilla_transformer.language_tags import closest_tag, known_tag

_NUMBER = re.compile(r"%\d+\$[^\s%]")
_FIRST = re.compile(r"(?:<[^<>]*>)*_[^\W\d_]+(?!\w)")  # a mark of an accelerator, and a word
_CHOICE = r"\{\s*[\w.-]+\s*,\s*(plural|select|selectordinal)\s*,(?:\s*offset:\s*\d+)?"
_TOKEN = re.compile(
    rf"""''|'(?=[{{}}#])(?:[^']|'')*'           # an apostrophe, a quoted part
    |{_CHOICE}                                  # the begin of a choice with branches
    |\{{[^{{}},]*,\s*choice\s*,(?:[^{{}}]|\{{[^{{}}]*\}})*\}}  # a choice of Java, which stays
    |\{{(?:[^{{}}']|'[^']*')*\}}                # a placeholder
    |\#[A-Za-z]*|[{{}}]|{TAG_SIGN}              # the number of a plural, a lone brace, a tag
    """,
    re.VERBOSE,
)
_BRANCH = re.compile(r"\s*(?:=\d+|\w[\w-]*)\s*\{")
_END = re.compile(r"\s*\}")


class MessageDocument(Document):
    """A document without accelerators, in which each branch of a message is a text."""

    def __init__(self, document: Document) -> None:
        self._document, self.pairs = document, document.pairs
        self.language, self.marks_doubt = document.language, document.marks_doubt
        rows, lowered = document.texts, document.lowered_source
        written = chain((row.marked.plain for row in rows), (pair.target for pair in self.pairs))
        if any(map(_NUMBER.search, written)):  # then other texts may have them, too
            rows = [replace(row, flags=row.flags | {"numbered-format"}) for row in rows]
        sources = chain((row.marked.plain for row in rows), (pair.source for pair in self.pairs))
        has_first = any(map(_FIRST.match, sources))
        if lowered is not None:
            self.pairs = [pair_without_accelerators(one, lowered, has_first) for one in self.pairs]
        self._numbers = list(accumulate(row.begins for row in rows))
        self._messages: list[_Choices | AcceleratorText] = []
        self.texts, self.untranslatable = list[FileText](), list(document.untranslatable)
        for row in rows:
            is_of_java = "java-format" in row.flags
            message: _Choices | AcceleratorText = AcceleratorText(row, lowered, has_first)
            if is_of_java or re.search(_CHOICE, row.marked.plain):
                message = _Choices(row.marked, is_of_java)
                if not message.branches:
                    self.untranslatable.append(f"{row.location} (no valid ICU message)")
            self._messages.append(message)
            for index, text in enumerate(message.texts):
                self.texts.append(replace(row, marked=text, begins=row.begins and index == 0))

    def write(self, outputs: Translations, language: str | None = None) -> bytes:
        """As for `Document`."""
        return self.fill(outputs, language)[0]

    def fill(
        self, outputs: Translations, language: str | None = None
    ) -> tuple[bytes, list[TextTranslation | None]]:
        """Returns the file, and the output of each text, or None where the text stays.

        If one text of a message stays, all of them stay.
        """
        remaining = iter(outputs)
        rows = [list(islice(remaining, len(message.texts))) for message in self._messages]
        joined = self._joined(rows)
        written = [
            one if text else None for text, row in zip(joined, rows, strict=True) for one in row
        ]
        return self._document.write(joined, language), written

    def _joined(self, rows: Sequence[Translations]) -> list[TextTranslation | None]:
        """Joins the outputs of texts to one output for each text of the document in the file."""
        written = list(map(_joined_message, self._messages, rows))
        forms = list(zip(self._numbers, written, strict=True))
        left = {number for number, text in forms if text is None}
        doubtful = {number for number, text in forms if text and text.is_doubtful}
        return [
            replace(text, is_doubtful=number in doubtful) if text and number not in left else None
            for number, text in forms
        ]


def _joined_message(
    message: "_Choices | AcceleratorText", row: Translations
) -> TextTranslation | None:
    """Joins the outputs of the texts of a message. None: it stays, since one of them is cut off."""
    outputs = [output for output in row if output]
    if not outputs or len(outputs) < len(row):
        return None
    parts = {output.part for output in outputs}
    is_one_part = len(parts) == 1 and any(parts)  # it holds the whole message
    text = outputs[0] if is_one_part else message.write(outputs)
    return text and replace(
        text,
        is_doubtful=any(output.is_doubtful for output in outputs),
        is_known=all(output.is_known for output in outputs),
    )


class _Branch(NamedTuple):
    """A text of a message.

    Attributes:
        contents: For each placeholder of the text, the parts of the message that it replaces. A
            part is its source, or the index of a branch.
    """

    marked: MarkedText
    contents: Mapping[str, Sequence[str | int]]


class _Choices:
    """A message in ICU's syntax, whose branches are texts; inner branches come first.

    Choices, `#` and quoted parts are placeholders such as `{0}` in these texts. A message that is
    not valid has no texts.
    """

    def __init__(self, marked: MarkedText, is_of_java: bool) -> None:
        self._marked, self.branches, self._tags = marked, list[_Branch](), iter(marked.tags)
        self._doubles_all = "''" in marked.plain or (is_of_java and "'" not in marked.plain)
        self._message = marked.coded
        try:
            _require(self._read(0) == len(self._message))
        except ValueError:
            self.branches = []
        self.texts = [text for text, _ in self.branches if has_letters(text.plain)]

    def _read(self, position: int, is_plural: bool = False) -> int:
        """Reads a text up to the brace that closes it, or the end; returns where that is."""
        text, items, contents = self._message, list[Item](), dict[str, Sequence[str | int]]()
        names = free_names(text)
        while True:
            token = _TOKEN.search(text, position)
            stop = token.start() if token else len(text)
            items.append(text[position:stop])
            if token is None or token[0] == "}":
                break
            position = token.end()
            if re.match(TAG_SIGN, token[0]):
                items.append(next(self._tags, ""))
                continue
            # Neither a brace that nothing closes, nor a tag within a placeholder.
            _require(token[0] != "{" and not re.search(TAG_SIGN, token[0]))
            content: Sequence[str | int] = [token[0]]
            if token[1]:
                content, position = self._read_choice(token, is_plural)
            is_number = token[0].lstrip("'")[:1] == "#"
            if token[1] or token[0].startswith(("'{", "'}")) or (is_number and is_plural):
                name = next(names)
                contents[name] = content
                items.append(name)
            else:
                items.append(token[0].replace("''", "'"))
        self.branches.append(_Branch(split_edges(items), contents))
        return stop

    def _read_choice(self, begin: re.Match[str], is_plural: bool) -> tuple[list[str | int], int]:
        """Reads branches; returns the frame with their numbers, and the position behind it."""
        text, parts, position = self._message, list[str | int](), begin.end()
        first = begin.start()
        while branch := _BRANCH.match(text, position):
            parts.append(text[first : branch.end()])
            first = self._read(branch.end(), is_plural or begin[1] != "select")
            parts.append(len(self.branches) - 1)
            position = first + 1
        end = _END.match(text, position)
        stop = end.end() if end and parts else -1
        _require(stop > 0)
        return [*parts, text[first:stop]], stop

    def write(self, outputs: Sequence[TextTranslation]) -> TextTranslation | None:
        """Returns the message with outputs of its texts; None: one lacks a placeholder."""
        edges = self._marked.edges
        if all(output.repeats(own) for output, own in zip(outputs, self.texts, strict=True)):
            return TextTranslation.of(self._marked.parts(), edges)
        remaining, texts = iter(outputs), list[MarkedText]()
        for own, contents in self.branches:
            text = next(remaining) if has_letters(own.plain) else own
            if any(name not in text.plain for name in contents):
                return None
            texts.append(text)
        return TextTranslation.of(self._written(len(texts) - 1, texts), edges)

    def _written(self, index: int, texts: Sequence[MarkedText]) -> Iterator[Item]:
        contents, (before, after) = self.branches[index].contents, texts[index].edges
        apostrophe = "'" if self._doubles_all else "'(?=[{}#])"
        for item in (*before, *texts[index].parts(), *after):
            if isinstance(item, Tag):
                yield item
                continue
            written = re.sub(apostrophe, "''", item)
            for piece in re.split(r"(\{\d+\})", written):
                for part in contents.get(piece, [piece]):
                    yield from self._written(part, texts) if isinstance(part, int) else [part]


def _require(is_valid: bool) -> None:
    if not is_valid:
        raise ValueError("no valid message")


def target_of_document(document: MessageDocument, target: str | None) -> str | None:
    """Returns the tag of a target language. None: it is unknown.

    Raises:
        ValueError: If the document is a translation into another language.
    """
    own, language = known_tag(document.language), known_tag(target)
    if own and language and closest_tag(own, [language]) is None:
        raise ValueError(
            f"the file is a translation into {document.language}, and the target is {target}: "
            "choose the same target, or take the language out of the file."
        )
    return language
