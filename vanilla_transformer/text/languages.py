"""Languages: the scripts and the words of their texts; Unicode tells the script of a letter."""

from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import langcodes
import regex

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.language_tags import (
    SOUTH_SLAVIC,
    closest_tag,
    known_tag,
    language_of,
    script_of,
    standard_tag,
)

SCRIPT_PARTS = {
    "Jpan": ("Hani", "Hira", "Kana"),
    "Hrkt": ("Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
}
"""The scripts of Unicode that a script of ISO 15924 stands for, where these differ."""

TWO_SCRIPTS = frozenset(("az", "bs", "kk", "ku", "sh", "sr", "tk", "uz"))
"""Languages written in Latin and in Cyrillic letters, where the tag does not say in which."""

WITHOUT_SENTENCE_SPACES = frozenset(("Hans", "Hant", "Hani", "Jpan"))
"""Scripts that put no space between words or sentences."""

WITHOUT_SPACES = WITHOUT_SENTENCE_SPACES | {
    *("Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Lana", "Tale", "Talu", "Tavt", "Java", "Bali")
}
"""Scripts that put no space between words."""

IDEOGRAPHIC = r"[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\uff01-\uff60]"
"""A Chinese or Japanese character, which stands beside no space."""
JOINED_LINES = regex.compile(rf"(?<={IDEOGRAPHIC})[ \t\f\r]*+\n[ \t\f\r\n]*+(?={IDEOGRAPHIC})")
"""A line break of HTML between Chinese or Japanese characters, which stands for no space."""

_LETTERS = regex.compile(r"[\p{L}\p{M}]")
_SPACELESS_PARTS = "[{}]".format(
    "".join(
        rf"\p{{{part}}}"
        for script in WITHOUT_SPACES
        for part in SCRIPT_PARTS.get(script, (script,))
    )
)
SPACELESS = regex.compile(_SPACELESS_PARTS)
_WORD_BORDER = regex.compile(
    r"\b|(?<=\b(?:\p{L}|\p{L}*(?:ll|qu))['\u2019])(?=\p{L}\p{L})(?!(?:ll|re|ve)\b)", regex.WORD
)  # of Unicode, and after an article or pronoun of French or Italian: l'homme
_TWO_OF_WORD = regex.compile(r"\w\w")
_LETTERS_OF_WORDS = r"\p{L}\p{M}\p{N}_"
WORDS = regex.compile(
    rf"{_SPACELESS_PARTS}|[[{_LETTERS_OF_WORDS}]--{_SPACELESS_PARTS}]+|\S", regex.V1
)
_UNBROKEN = regex.compile(rf"{_SPACELESS_PARTS}|[\S--{_SPACELESS_PARTS}]+", regex.V1)
_RUNS = regex.compile(
    r"(?P<katakana>[\p{Katakana}\u30fc]+)"
    rf"|(?P<joined>\p{{Hiragana}}+|[{_SPACELESS_PARTS}--[\p{{Hiragana}}\p{{Katakana}}]]+)"
    rf"|[[{_LETTERS_OF_WORDS}]--{_SPACELESS_PARTS}]+",
    regex.V1,
)
_PARTICLE = regex.compile(r"(?<=\p{Hangul}{2})(?:에서|에게|으로|[은는이가을를의에도와과로])$")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")


@lru_cache(maxsize=1024)
def letters_of(tag: str) -> Any:
    """Returns a pattern that finds each letter of a language's script, or None if it is unknown."""
    language = langcodes.Language.get(standard_tag(tag))
    scripts = SCRIPT_PARTS.get(script_of(tag), (script_of(tag),))
    if language.script is None and language.language in TWO_SCRIPTS:
        scripts = ("Latn", "Cyrl")
    try:  # `scx`: a letter of several scripts, such as the long vowel sign of Kana, counts in each
        parts = "".join(rf"\p{{scx={script}}}" for script in scripts)
        return regex.compile(rf"[[{parts}]&&[\p{{L}}\p{{M}}]]", regex.V1)
    except regex.error:
        return None


def words_have_spaces(tag: str | None) -> bool:
    """Returns whether a language puts spaces between words; None: an unknown one, which does."""
    return tag is None or script_of(tag) not in WITHOUT_SPACES


def is_spaced_script_at(text: str, position: int) -> bool:
    """Returns whether the characters on both sides of a position are of scripts with spaces.

    At the beginning of a text the first character decides, and at its end the last one.
    """
    beside = text[max(position - 1, 0) : position + 1]
    return not any(map(SPACELESS.match, beside))


def word_borders(text: str, tokens: Collection[int] = ()) -> list[int]:
    """Returns the positions at which a word or a sign begins or ends, in order.

    Args:
        tokens: The positions between tokens of a model: the only borders of words without spaces.
    """
    return [
        position
        for position in (match.start() for match in _WORD_BORDER.finditer(text))
        if position in tokens
        or is_spaced_script_at(text, position)
        or not _TWO_OF_WORD.fullmatch(text[position - 1 : position + 1])
    ]


def word_parts(text: str) -> list[tuple[int, int]]:
    """Returns the spans of the words and signs of a text; in scripts without spaces, of letters."""
    return [match.span() for match in WORDS.finditer(text)]


def unbroken_parts(text: str) -> list[tuple[int, int]]:
    """Returns the spans of text between white space; in scripts without spaces, of letters."""
    return [match.span() for match in _UNBROKEN.finditer(text)]


def letter_runs(text: str) -> list[tuple[int, int, str | None]]:
    """Returns the spans of runs of letters with their kinds: "katakana", or "joined" words.

    The kind is None for scripts with spaces: such a run is one word.
    """
    return [(*match.span(), match.lastgroup) for match in _RUNS.finditer(text)]


@lru_cache(maxsize=65536)
def lemma(word: str, tag: str | None) -> str:
    """Returns the basic form of a word: "Datei" for "Dateien"; the word itself if none is known.

    A Korean noun loses its particle.

    Args:
        tag: The tag of the language; None: it is unknown.
    """
    code = known_tag(tag)
    if code is None:
        return word
    if language_of(code) == "ko":
        return str(_PARTICLE.sub("", word))
    with optional_packages():
        from simplemma import lemmatize
    dictionary = _dictionary_of(code)
    return word if dictionary is None else str(lemmatize(word, dictionary))


@cache
def _dictionary_of(tag: str) -> str | None:
    """Returns the language of simplemma's dictionary for a language, if there is one."""
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    # It has one dictionary for the languages of the South Slavs.
    return closest_tag("hbs" if language_of(tag) in SOUTH_SLAVIC else tag, SUPPORTED_LANGUAGES)


def sentences_have_spaces(tag: str | None) -> bool:
    """Returns whether a language puts spaces between sentences; None: an unknown one does."""
    return tag is None or script_of(tag) not in WITHOUT_SENTENCE_SPACES


def tag_of_texts(texts: Iterable[str]) -> str | None:
    """Returns a language of Asia whose script most letters of the first 1,000 texts have.

    It is "zh", "ja", "ko", "th", "lo", "km", "my", "bo" or "jv-Java"; None for other scripts.
    """
    sample = "".join(islice(texts, 1000))
    letters = len(_LETTERS.findall(sample))
    for tag in ("ja", "zh", "ko", "th", "lo", "km", "my", "bo", "jv-Java"):
        script = letters_of(tag)
        share = len(script.findall(sample)) / max(letters, 1)
        if share > 0.5 and (tag != "ja" or _KANA.search(sample)):
            return tag
    return None
