"""The tables of patterns of `text` as a script for a browser.

Expressions are translated sign by sign: both languages have the same constructs, but for the names
of some classes of characters, what a letter is, escapes of signs, possessive quantifiers, and
groups that ignore the case.
"""

import html.entities
import json
from collections.abc import Mapping
from itertools import count
from typing import Any

import regex

from vanilla_transformer.model.tokenization_vanilla_transformer import ZERO_WIDTH
from vanilla_transformer.text import (
    languages,
    lines,
    patterns,
    percent_signs,
    printf,
    readings,
    repetition,
    restoring,
    words,
)

_CLASSES = {"w": r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}", "d": r"\p{Nd}"}
_CLASSES["s"] = r"\p{White_Space}"
_BORDER = "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))".format(f"[{_CLASSES['w']}]")
_PART = regex.compile(
    r"(?<class>\[(?:\\[pPwdsWDS]\{[^}]*\}|\\.|[^\]\\])*\])(?<quantity>\{[\d,]+\}|[*+?])\+"
)
_SIGN = regex.compile(
    r"(?<fold>\(\?i:)|\\U(?<long>[0-9A-F]{8})|\\(?<kind>[pP])\{(?<name>\w+)\}|\\(?<sign>.)|.",
    regex.DOTALL,
)
_KNOWN = "^$\\.*+?()[]{}|/"
_NO_SCRIPT = regex.compile("[A-Z][a-z]?|Emoji.*|Regional_Indicator")


def to_javascript(expression: str) -> str:
    """Returns a regular expression of `regex` as one of JavaScript with the flag `u`."""
    names = count()

    def possessive(match: Any) -> str:
        name = f"all{next(names)}"
        return f"(?=(?<{name}>{match['class']}{match['quantity']}))\\k<{name}>"

    written, is_class, depth = [], False, 0  # depth: of groups in one that ignores the case
    for match in _SIGN.finditer(_PART.sub(possessive, expression)):
        text, sign = match[0], match["sign"]
        if text in "[]":
            is_class = text == "["
        elif not is_class and depth:
            depth += text.startswith("(") - (text == ")")
        if match["fold"]:
            text, depth = "(?:", 1
        elif depth and text.isalpha() and not is_class:
            text = f"[{text}{text.swapcase()}]"
        elif match["long"]:
            text = f"\\u{{{match['long'].lstrip('0')}}}"
        elif match["name"] and not _NO_SCRIPT.fullmatch(match["name"]):
            text = f"\\{match['kind']}{{Script={match['name']}}}"
        elif sign == "b":
            text = _BORDER
        elif sign in _CLASSES:
            text = _CLASSES[sign] if is_class else f"[{_CLASSES[sign]}]"
        elif sign and sign.lower() in _CLASSES:
            text = f"[^{_CLASSES[sign.lower()]}]"
        elif sign and not sign.isalnum() and sign not in _KNOWN and not (is_class and sign == "-"):
            text = sign
        written.append(text)
    return "".join(written)


def _literal(expression: str, flags: str = "u") -> str:
    return f"new RegExp({json.dumps(to_javascript(expression))}, {json.dumps(flags)})"


def _row(pattern: patterns.Pattern) -> str:
    fields = {"kind": pattern.kind, "signs": pattern.signs, "isUnambiguous": pattern.is_unambiguous}
    is_code = pattern.is_code.__name__.strip("_") if pattern.is_code else None
    own = f"expression: {_literal(pattern.expression, 'gu')}, isCode: {json.dumps(is_code)}"
    return f"{{...{json.dumps(fields)}, {own}}}"


def references() -> Mapping[str, str]:
    """Returns the signs of HTML's references that stay as they are in a translation."""
    names = (f"&{name}" for name in html.entities.html5 if name.endswith(";"))
    return {name: html.unescape(name) for name in names if patterns.is_symbol(name)}


def script() -> str:
    """Returns the module `patterns.js`."""
    expressions = {
        "OPTIONS": _literal(patterns.OPTIONS.pattern),
        "PRINTF": _literal(printf.PRINTF_PART.pattern),
        "SHARE": _literal(percent_signs.SHARE.pattern, "uy"),
        "BY_NUMBER": _literal(printf.BY_NUMBER.pattern, "uy"),
        "LINE_BREAKS": _literal(lines.LINE_BREAKS.pattern, "gu"),
        "BRANCHED": _literal(lines.BRANCHED.pattern),
        "PIPES": _literal(lines.PIPES.pattern, "gu"),
        "REPEATED_WORDS": _literal(repetition.REPEATED_WORDS.pattern, "gu"),
        "REPEATED_PART": _literal(repetition.REPEATED_PART.pattern, "gu"),
        "NO_WORD": _literal(repetition.NO_WORD.pattern, "gu"),
        "SPACELESS": _literal(languages.SPACELESS.pattern),
        "ZERO_WIDTH": _literal(rf"^[{ZERO_WIDTH}]+$"),
        "INVISIBLE": _literal(readings.INVISIBLE.pattern, "uy"),
        "OTHER_SPACE": _literal(readings.OTHER_SPACE.pattern, "gu"),
        "WORDS": _literal(words.WORDS.pattern, "gv"),
        "SURROUNDED": _literal(rf"^([\s{ZERO_WIDTH}]*)(.*?)([\s{ZERO_WIDTH}]*)$", "su"),
        "NUMBER": _literal(percent_signs.NUMBER.pattern, "gu"),
        "SIMILAR": str(restoring.SIMILAR),
        "REFERENCES": json.dumps(references(), ensure_ascii=False),
    }
    expressions["PATTERNS"] = "[\n  {},\n]".format(",\n  ".join(map(_row, patterns.PATTERNS)))
    made = (f"export const {name} = {value};\n" for name, value in expressions.items())
    return "".join(["// Made from the tables of the package.\n", *made])
