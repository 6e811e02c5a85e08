"""Documents of messages: each branch of a message in ICU's syntax is a text of its own."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
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
_CHOICE = r"\{\s*[\w.-]+\s*,\s*(?P<choice>plural|select|selectordinal)\s*,(?:\s*offset:\s*\d+)?"
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
        self._document = document
        self.language = document.language
        self.marks_doubt = document.marks_doubt
        self.untranslatable = list(document.untranslatable)
        lowered = document.lowered_source
        plain = [text.marked.plain for text in document.texts]
        has_first = any(map(_FIRST.match, [*plain, *(pair.source for pair in document.pairs)]))
        self.pairs = document.pairs
        if lowered is not None:
            self.pairs = [pair_without_accelerators(one, lowered, has_first) for one in self.pairs]
        # If one text or translation has numbered placeholders, others may have them, too.
        has_numbers = any(map(_NUMBER.search, [*plain, *(pair.target for pair in document.pairs)]))
        further_flags = {"numbered-format"} if has_numbers else set[str]()
        self._message_numbers = list(accumulate(text.begins_message for text in document.texts))
        self._parsed: list[_Choices | AcceleratorText] = []
        self.texts = list[FileText]()
        for text in document.texts:
            text = replace(text, flags=text.flags | further_flags)
            parsed = _parse(text, lowered, has_first)
            if isinstance(parsed, _Choices) and not parsed.branches:
                self.untranslatable.append(f"{text.location} (no valid ICU message)")
            self._parsed.append(parsed)
            for index, marked in enumerate(parsed.texts):
                begins = text.begins_message and index == 0
                self.texts.append(replace(text, marked=marked, begins_message=begins))

    def write(self, outputs: Translations, language: str | None = None) -> bytes:
        """As for `Document`."""
        return self.fill(outputs, language)[0]

    def fill(
        self, outputs: Translations, language: str | None = None
    ) -> tuple[bytes, Translations]:
        """Does the same as `write`; also returns the output of each text. None: the text stays.

        If one text of a message stays, all of them stay.
        """
        remaining = iter(outputs)
        split = [list(islice(remaining, len(parsed.texts))) for parsed in self._parsed]
        joined = self._joined(split)
        written = [
            one if text else None for text, row in zip(joined, split, strict=True) for one in row
        ]
        return self._document.write(joined, language), written

    def _joined(self, split: Sequence[Translations]) -> Translations:
        """Joins the outputs of branches to one output for each text of the file."""
        joined = map(_joined_text, self._parsed, split)
        numbered = list(zip(self._message_numbers, joined, strict=True))
        stays = {number for number, text in numbered if text is None}
        doubtful = {number for number, text in numbered if text and text.is_doubtful}
        return [
            replace(text, is_doubtful=number in doubtful) if text and number not in stays else None
            for number, text in numbered
        ]


def _parse(text: FileText, lowered: str | None, has_first: bool) -> "_Choices | AcceleratorText":
    """Finds the branches of a text, or else its accelerator; see `find_accelerator`."""
    is_of_java = "java-format" in text.flags
    if is_of_java or re.search(_CHOICE, text.marked.plain):
        return _Choices(text.marked, is_of_java)
    return AcceleratorText(text, lowered, has_first)


def _joined_text(parsed: "_Choices | AcceleratorText", row: Translations) -> TextTranslation | None:
    """Joins the outputs of the branches of a text. None: the text stays, since one is missing."""
    outputs = [output for output in row if output]
    if not outputs or len(outputs) < len(row):
        return None
    parts = {output.file_part for output in outputs}
    is_one_part = len(parts) == 1 and any(parts)  # it holds the whole text
    text = outputs[0] if is_one_part else parsed.write(outputs)
    return text and replace(
        text,
        is_doubtful=any(output.is_doubtful for output in outputs),
        is_known=all(output.is_known for output in outputs),
    )


class _Branch(NamedTuple):
    """A branch of a message, or the text around all branches.

    Attributes:
        marked: The text, in which `{0}` stands for a choice.
        contents: For each such placeholder, the parts of the choice; an index is that of a branch.
    """

    marked: MarkedText
    contents: Mapping[str, Sequence[str | int]]


class _Choices:
    """A message in ICU's syntax, whose branches are texts; inner branches come first.

    Choices, `#` and quoted parts are placeholders, such as `{0}`. An invalid message has no texts.
    """

    def __init__(self, marked: MarkedText, is_of_java: bool) -> None:
        self._marked = marked
        self._message = marked.coded
        self._tags = iter(marked.tags)
        self._doubles_all = "''" in marked.plain or (is_of_java and "'" not in marked.plain)
        self.branches = list[_Branch]()
        try:
            is_valid = self._read(0) == len(self._message)
        except ValueError:
            is_valid = False
        if not is_valid:
            self.branches = []
        self.texts = [text for text, _ in self.branches if has_letters(text.plain)]

    def _read(self, position: int, is_plural: bool = False) -> int:
        """Reads a branch from its begin, and adds it; returns the position of its end."""
        items = list[Item]()
        contents = dict[str, Sequence[str | int]]()
        names = free_names(self._message)
        while True:
            token = _TOKEN.search(self._message, position)
            stop = token.start() if token else len(self._message)
            items.append(self._message[position:stop])
            if token is None or token[0] == "}":
                break
            position = token.end()
            if re.match(TAG_SIGN, token[0]):
                items.append(next(self._tags, ""))
                continue
            if token[0] == "{" or re.search(TAG_SIGN, token[0]):
                raise ValueError("a brace that nothing closes, or a tag in a placeholder")
            content: Sequence[str | int] = [token[0]]
            if token["choice"]:
                content, position = self._read_choice(token, is_plural)
            is_number = token[0].lstrip("'")[:1] == "#"
            if token["choice"] or token[0].startswith(("'{", "'}")) or (is_number and is_plural):
                name = next(names)
                contents[name] = content
                items.append(name)
            else:
                items.append(token[0].replace("''", "'"))
        self.branches.append(_Branch(split_edges(items), contents))
        return stop

    def _read_choice(self, begin: re.Match[str], is_plural: bool) -> tuple[list[str | int], int]:
        """Reads a choice; returns it, with indices in place of its branches, and its end."""
        parts = list[str | int]()
        first, position = begin.span()
        while branch := _BRANCH.match(self._message, position):
            parts.append(self._message[first : branch.end()])
            first = self._read(branch.end(), is_plural or begin["choice"] != "select")
            parts.append(len(self.branches) - 1)
            position = first + 1
        end = _END.match(self._message, position)
        if not (end and parts):
            raise ValueError("a choice without branches, or without an end")
        return [*parts, self._message[first : end.end()]], end.end()

    def write(self, outputs: Sequence[TextTranslation]) -> TextTranslation | None:
        """Returns the message with outputs of its texts; None: one lacks a placeholder."""
        edges = self._marked.edges
        if all(output.repeats(text) for output, text in zip(outputs, self.texts, strict=True)):
            return TextTranslation.of(self._marked.items(), edges)
        remaining = iter(outputs)
        texts = list[MarkedText]()
        for marked, contents in self.branches:
            text = next(remaining) if has_letters(marked.plain) else marked
            if any(name not in text.plain for name in contents):
                return None
            texts.append(text)
        return TextTranslation.of(self._written(len(texts) - 1, texts), edges)

    def _written(self, index: int, texts: Sequence[MarkedText]) -> Iterator[Item]:
        """Yields the parts of a branch and the branches in it, with the texts of all branches."""
        contents = self.branches[index].contents
        apostrophe = "'" if self._doubles_all else "'(?=[{}#])"
        for item in texts[index].whole.items():
            if isinstance(item, Tag):
                yield item
                continue
            written = re.sub(apostrophe, "''", item)
            for piece in re.split(r"(\{\d+\})", written):
                for part in contents.get(piece, [piece]):
                    yield from self._written(part, texts) if isinstance(part, int) else [part]


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
