"""Texts in capital letters, and words that begin with one, as their language writes them."""

from unicodedata import normalize

import langcodes
import regex

from vanilla_transformer.language_tags import standard_tag

_FIRST_LETTER = regex.compile(r"^\P{L}*\K\p{L}")
_FIRST_OF_DUTCH = regex.compile(r"^(?:\P{L}*['\u2019]\p{L}\b)?+\P{L}*\K(?:ij|\p{L})")
_GREEK = regex.compile(r"\p{Greek}[\p{Greek}\p{M}]*")
_TWO_VOWELS = regex.compile(
    r"([\u03b1\u03b5\u03b7\u03bf\u03c5]\u0301)([\u03b9\u03c5])(?!\u0308)", regex.I
)
_ACCENTS = regex.compile(r"[\u0300\u0301\u0313\u0314\u0342]")


def to_upper(text: str, tag: str | None = None) -> str:
    """Returns a text in capital letters, as its language writes them.

    A Turkish or Azerbaijani i keeps its dot, and Greek letters lose their accents.

    Args:
        tag: The tag of the language; None: it is unknown.
    """
    return str(_GREEK.sub(_without_accents, _with_dots(text, tag))).upper()


def to_title(word: str, tag: str | None = None) -> str:
    """Returns a word with a capital at its beginning.

    Dutch writes IJ as one letter (IJsland), and skips a shortened article ('s Avonds).
    """
    if _is_in(tag, "nl"):
        return str(_FIRST_OF_DUTCH.sub(lambda letters: letters[0].upper(), word))
    return str(_FIRST_LETTER.sub(lambda letter: _with_dots(letter[0], tag).title(), word))


def _with_dots(text: str, tag: str | None) -> str:
    return text.replace("i", "\u0130") if _is_in(tag, "tr", "az") else text


def _is_in(tag: str | None, *languages: str) -> bool:
    if tag is None:
        return False
    language = langcodes.Language.get(standard_tag(tag)).prefer_macrolanguage()
    return language.language in languages


def _without_accents(word: regex.Match[str]) -> str:
    """Returns a Greek word without accents; a diaeresis keeps vowels apart that one divided."""
    letters = normalize("NFD", word[0])
    if letters in ("\u03b7\u0301", "\u0397\u0301"):  # "or"; without its accent the article
        return "\u0389"
    letters = _TWO_VOWELS.sub("\\1\\2\u0308", letters)
    return normalize("NFC", _ACCENTS.sub("", letters))
