"""Messages of gettext (.po, .pot), which are translated if they are empty or fuzzy."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from gettext import c2py

import regex

from vanilla_transformer.documents.marked_text import TextTranslation, Translations, split_text
from vanilla_transformer.documents.places import FileTemplate, Place, decode_text
from vanilla_transformer.text.edits import Edit, Span, apply_edits
from vanilla_transformer.text.memory import Pair
from vanilla_transformer.text.patterns import find_patterns

_SPACE = r"(?:\s|\#[^\r\n]*+)*+"
_STRING = r'"(?:[^"\\\r\n]|\\[^\r\n])*+"'
_STRINGS = rf"{_STRING}(?:\s*+{_STRING})*+"
_MESSAGE = re.compile(  # the comments before an obsolete message belong to it
    rf"""(?:(?:\s|\#[^\r\n]*+)*\#~[^\r\n]*+)?+(?P<comments>{_SPACE})
    (?:msgctxt{_SPACE}(?P<context>{_STRINGS}){_SPACE})?
    msgid{_SPACE}(?P<id>{_STRINGS}){_SPACE}
    (?:msgid_plural{_SPACE}(?P<plural>{_STRINGS}){_SPACE})?
    (?P<targets>(?:msgstr(?:\[\d+\])?{_SPACE}{_STRINGS}\s*+)+)""",
    re.VERBOSE,
)
_TARGET = re.compile(rf"msgstr(?:\[(\d+)\])?{_SPACE}({_STRINGS})", re.VERBOSE)
# `re` of Python 3.11.2 goes on behind a repetition that may give nothing back.
_TOKENS = regex.compile(
    rf"(?:{_SPACE}(?:msg[a-z_]+(?:\[\d+\])?|{_STRING}))*+{_SPACE}", regex.VERBOSE
)
_COMMENT = re.compile(r"#([,|]?)([^\r\n]*)(?:\r?\n)?")
_FORMER = re.compile(rf"msgid\s+({_STRINGS})")
_FIELD = r'(?:(?<=")|(?<=\\n))'  # the begin of a field of the header
_CHARSET = re.compile(_FIELD + r'(Content-Type:[^"\\]*?charset=)([^\s"\\;]+)')
_PLURALS = re.compile(r"^Plural-Forms:.*\bplural=([ n\d()%!=<>&|?:*/+-]+)", re.MULTILINE)
_COUNTED = range(200)  # the rules of all languages repeat after 100 numbers
_LANGUAGE = re.compile(_FIELD + r'Language:[ \t]*([^\s"\\]*)[ \t]*(?=\\n)')
_ESCAPE_LETTERS = dict(zip('"\\\a\b\t\n\v\f\r', '"\\abtnvfr', strict=True))
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f]')
_NO_TEXT = "\udc80"  # stands for bytes that are no characters
_ESCAPES = re.compile(r"(?:\\(?:[0-7]{1,3}|x[0-9a-fA-F]*))+|\\[\x00-\x7f]")
_Message = re.Match[str]
_Translations = list[tuple[Span, Pair]]  # of a message: the spans of their strings, the contents


class PoFile(FileTemplate):
    """A file of messages; each translation of a message, such as a plural form, is a text."""

    marks_doubt = True

    def __init__(self, content: bytes) -> None:
        encoding = _encoding_of(content)
        source = decode_text(content, encoding)
        self.lowered_source = source.lower()
        self._line_break = "\r\n" if "\r\n" in source else "\n"
        self._header = _header_in(source)
        header = source[slice(*self._header)]
        language = _LANGUAGE.search(header)
        self.language = language[1] if language else ""
        self.pairs = list[Pair]()
        places = list[Place]()
        rule = _PLURALS.search(_text_of(header))
        forms = list(map(c2py(rule[1] if rule else "n != 1"), _COUNTED))
        for message in _messages(source):
            translations = _translations(message, forms, encoding)
            places += _places(message, translations, self._line_break)
            self.pairs += _pairs(message, translations, encoding)
        super().__init__(source, places, encoding)

    def write(self, outputs: Translations, language: str | None = None) -> bytes:
        """As for `Document`; a message has an output for each of its forms, or none."""
        written = self.join(outputs)
        begin, end = self._header  # before all texts
        before, header, behind = written[:begin], written[begin:end], written[end:]
        if language and not self.language:
            line = f"Language: {language.replace('-', '_')}"
            header, count = _LANGUAGE.subn(line, header, 1)
            if not count:
                line = f'{line}\\n"{self._line_break}"'
                header = _CHARSET.sub(lambda found: line + found[0], header, 1)
        if outputs:
            header = header.replace("charset=CHARSET", "charset=UTF-8", 1)
        try:
            return f"{before}{header}{behind}".encode(self._encoding)
        except UnicodeEncodeError:  # its encoding lacks a character
            header = _CHARSET.sub(r"\1UTF-8", header, 1)
            return f"{before}{header}{behind}".encode()


@dataclass(frozen=True, kw_only=True)
class _Form(Place):
    """A translation of a message. The first place of a message begins with its comments."""

    message: _Message
    line_break: str
    rewrites: bool = True

    def write(self, whole: TextTranslation) -> str:
        """As for `Place`."""
        file = self.message.string
        begin = self.begin + self.offset
        edits = list(_comment_edits(self.message, whole.is_doubtful)) if self.begins_message else []
        old, new = file[begin : self.end], _strings_of(whole.write())
        if not whole.is_doubtful or _text_of(old) != _text_of(new):
            edits.append(Edit(begin, self.end, new))
        edits = [replace(edit, text=edit.text.replace("\n", self.line_break)) for edit in edits]
        return apply_edits(file, edits, self.begin, self.end)


def _encoding_of(content: bytes) -> str:
    """Returns the encoding that the header of a file names, or UTF-8."""
    decoded = content.removeprefix(codecs.BOM_UTF8).decode("latin-1")  # which decodes any bytes
    charset = _CHARSET.search(decoded, *_header_in(decoded))
    return charset[2] if charset and charset[2] != "CHARSET" else "utf-8"


def _messages(source: str) -> Iterator[_Message]:
    """Yields the messages of a file; raises `ValueError` where something else begins."""
    position = int(source.startswith("\ufeff"))
    while message := _MESSAGE.match(source, position):
        yield message
        position = message.end()
    if not re.compile(_SPACE, re.VERBOSE).fullmatch(source, position):
        wrong = _TOKENS.match(source, position).end()  # it also matches the empty string
        line = source.count("\n", 0, wrong if wrong < len(source) else position) + 1
        raise ValueError(f"line {line}: no message of gettext.")


def _places(message: _Message, translations: _Translations, line_break: str) -> Iterator[Place]:
    """Yields a place for each translation of a message that is empty or fuzzy."""
    flags = _flags_of(message)
    fields = {"flags": flags, "message": message, "line_break": line_break}
    first = begin = message.start("comments")
    for (start, end), pair in translations:
        if not pair.target or "fuzzy" in flags:
            fields |= {"context": pair.context, "begins_message": begin == first}
            items = split_text(pair.source)
            for place in _Form.find((begin, end), items, offset=start - begin, **fields):
                yield place
                begin = end


def _pairs(message: _Message, translations: _Translations, encoding: str) -> Iterator[Pair]:
    """Yields the translations of a message; a fuzzy one belongs to the former source."""
    flags = _flags_of(message)
    if "fuzzy" not in flags:
        quote = "''" if "java-format" in flags else "'"  # as the texts of a document have it
        for _, pair in translations:
            source, target = (side.replace(quote, "'") for side in (pair.source, pair.target))
            yield pair._replace(source=source, target=target)
    elif (former := _FORMER.search(_comments_of("|", message))) and not message["plural"]:
        source = _text_of(former[1], encoding)
        if _NO_TEXT not in source:
            yield from (Pair(source, pair.target, is_doubtful=True) for _, pair in translations)


def _translations(message: _Message, forms: list[int], encoding: str) -> _Translations:
    """Returns the translations of a message, which may be empty.

    A translation is left out if its source, target or context has escapes of bytes that are no
    text. The context ends with the numbers that a form counts, such as "[2, 3]", if English counts
    otherwise or its sources are equal.

    Args:
        forms: The index of the form of each number, by the rule in the header.
    """
    if _is_header(message):
        return []
    translations = _Translations()
    targets = list(_TARGET.finditer(message["targets"]))
    forms = forms if len(targets) > 1 else [0 for _ in _COUNTED]
    others = [number for number in _COUNTED if forms[number] != forms[1]]
    singular = _text_of(message["id"], encoding)
    plural = _text_of(message["plural"] or message["id"], encoding)
    for target in targets:
        numbers = [number for number in _COUNTED if forms[number] == int(target[1] or 0)]
        source = singular if _takes_singular(numbers, singular, plural, message) else plural
        is_usual = message["plural"] != message["id"] and numbers in ([1], others or [*_COUNTED])
        context = _text_of(message["context"] or "", encoding) + ("" if is_usual else str(numbers))
        pair = Pair(source, _text_of(target[2], encoding), context)
        if _NO_TEXT not in pair.source + pair.target + context:
            begin, end = (message.start("targets") + position for position in target.span(2))
            translations.append(((begin, end), pair))
    return translations


def _takes_singular(numbers: list[int], singular: str, plural: str, message: _Message) -> bool:
    """Returns whether the source of a form that counts such numbers is the singular.

    A form that counts 1, 21, 31, ..., as in Russian, has it only if this has the placeholder.
    """
    if 1 not in numbers or len(numbers) == len(_COUNTED):
        return False
    find = partial(find_patterns, kind="placeholder", flags=_flags_of(message))
    return max(numbers) == 1 or len(find(singular)) >= len(find(plural))


def _header_in(source: str) -> Span:
    """Returns the span of the header of a file, which is the translation of the empty text."""
    first = _MESSAGE.match(source, int(source.startswith("\ufeff")))
    return first.span("targets") if first and _is_header(first) else (0, 0)


def _is_header(message: _Message) -> bool:
    return not (message["context"] or _text_of(message["id"]))


def _flags_of(message: _Message) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, re.split("[,\n]", _comments_of(",", message)))))


def _comments_of(kind: str, message: _Message) -> str:
    """Returns the text of the comments of a kind."""
    return "\n".join(text for sign, text in _COMMENT.findall(message["comments"]) if sign == kind)


def _comment_edits(message: _Message, is_doubtful: bool) -> Iterator[Edit]:
    """Yields the edits that add or remove the flag `fuzzy`, and remove the former message.

    A message that stays fuzzy keeps its former source, which a person has translated.
    """
    is_fuzzy = "fuzzy" in _flags_of(message)
    if is_doubtful and not is_fuzzy:
        end = message.end("comments")
        yield Edit(end, end, "#, fuzzy\n")
    if is_doubtful or not is_fuzzy:
        return
    for comment in _COMMENT.finditer(message.string, *message.span("comments")):
        flags = [flag.strip() for flag in comment[2].split(",")]
        others = ", ".join(flag for flag in flags if flag not in ("fuzzy", ""))
        if comment[1] == "|" or (comment[1] == "," and not others):
            yield Edit(*comment.span(), "")  # the former message, or the flag alone
        elif comment[1] == "," and "fuzzy" in flags:
            yield Edit(comment.start(), comment.end(2), f"#, {others}")


def _strings_of(text: str) -> str:
    """Returns a text as strings in quotes, one for each line."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    written = [
        _SPECIAL.sub(lambda sign: "\\" + _ESCAPE_LETTERS.get(sign[0], f"{ord(sign[0]):03o}"), line)
        for line in (["", *lines] if len(lines) > 1 else lines or [""])
    ]
    return "\n".join(f'"{line}"' for line in written)


def _text_of(strings: str, encoding: str = "utf-8") -> str:
    """Returns the text of strings in quotes, whose escapes are those of C."""
    written = "".join(part[1:-1] for part in re.findall(_STRING, strings))

    def decoded(escapes: re.Match[str]) -> str:
        with_two_digits = re.sub(r"\\x(?=\w\b)", r"\g<0>0", escapes[0])
        read = codecs.escape_decode(with_two_digits)[0].decode(encoding, "replace")
        return str(read.replace("\ufffd", _NO_TEXT))

    return _ESCAPES.sub(decoded, written)
