"""Outputs that repeat themselves, the most frequent defect of small models."""

from collections.abc import Collection
from statistics import median

import regex

_TIMES = 3
"""Smallest number of equal words, or parts of a word, in a row that counts as a repetition."""
_LARGEST_ALPHABET = 1000
"""A vocabulary of single characters with fewer tokens is one of letters."""
_SUBWORDS, _LETTERS = 3, 12
"""Numbers of tokens in a row that a second search does not repeat.

Of the German references of Multi30k, 0.7% have three subwords twice, 1.1% twelve letters, and 91%
three letters. Chinese characters, which are more than an alphabet, hold as much as subwords.
"""

# One to six words; a part of a word, with what joins it to the next: "LDAP-DAP-DAP-DAP".
REPEATED_WORDS = regex.compile(rf"(?:^| )((?:\w+ ){{0,5}}\w+)(?: \1){{{_TIMES - 1},}}(?= |$)")
REPEATED_PART = regex.compile(
    rf"((?:\w{{2,12}}?|[\p{{Han}}\p{{Hiragana}}\p{{Katakana}}\p{{Thai}}])[-.,_/]?)"
    rf"\1{{{_TIMES - 1},}}"
)
NO_WORD = regex.compile(r"\W+")
_LETTER = regex.compile(r"\p{L}")


def tokens_not_repeated(vocabulary: Collection[str]) -> int:
    """Returns the length of the token groups that a search without repeated words forbids."""
    is_of_letters = median(map(len, vocabulary)) == 1 and len(vocabulary) < _LARGEST_ALPHABET
    return _LETTERS if is_of_letters else _SUBWORDS


def repeats_itself(text: str) -> bool:
    """Returns whether a text has up to six words, or a part of a word, three times in a row.

    Case and signs between words do not count. Numbers, dashes and dots may repeat.
    """
    text = text.casefold()
    words = NO_WORD.sub(" ", text).strip()
    found = (*REPEATED_WORDS.finditer(words), *REPEATED_PART.finditer(text))
    return any(_LETTER.search(match[1]) for match in found)
