"""Outputs that repeat themselves, the most frequent defect of small models."""

import regex

_TIMES = 3
"""Times in a row from which words, or a part of a word, count as repeated."""

# One to six words; a part of a word, with what joins it to the next: "LDAP-DAP-DAP-DAP".
_WORDS = regex.compile(rf"(?:^| )((?:\w+ ){{0,5}}\w+)(?: \1){{{_TIMES - 1},}}(?= |$)")
_PART = regex.compile(
    rf"((?:\w{{2,12}}?|[\p{{Han}}\p{{Hiragana}}\p{{Katakana}}\p{{Thai}}])[-.,_/]?)"
    rf"\1{{{_TIMES - 1},}}"
)
_NO_WORD = regex.compile(r"\W+")
_LETTER = regex.compile(r"\p{L}")


def repeats_itself(text: str) -> bool:
    """Returns whether up to six words, or a part of a word, stand there three times in a row.

    Case and signs between words do not count. Numbers, dashes and dots may repeat.
    """
    text = text.casefold()
    words = _NO_WORD.sub(" ", text).strip()
    found = (*_WORDS.finditer(words), *_PART.finditer(text))
    return any(_LETTER.search(match[1]) for match in found)
