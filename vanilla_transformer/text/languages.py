"""The scripts of languages, and their spaces; Unicode tells the script of a letter."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any

import langcodes
import regex

from vanilla_transformer.language_tags import script_of, standard_tag

UNICODE_SCRIPTS = {
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
WITHOUT_SPACES = WITHOUT_SENTENCE_SPACES.union(
    ("Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Lana", "Tale", "Talu", "Tavt", "Java", "Bali")
)
"""Scripts that put no space between words."""
IDEOGRAPHIC = r"[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\uff01-\uff60]"
"""A Chinese or Japanese character, which stands beside no space."""
JOINED_LINES = regex.compile(rf"(?<={IDEOGRAPHIC})[ \t\f\r]*+\n[ \t\f\r\n]*+(?={IDEOGRAPHIC})")
"""A line break of HTML between Chinese or Japanese characters, which stands for no space."""
_LETTERS = regex.compile(r"[\p{L}\p{M}]")
_SCRIPTS = (name for script in WITHOUT_SPACES for name in UNICODE_SCRIPTS.get(script, (script,)))
SPACELESS_CLASS = "[" + "".join(map(r"\p{{{}}}".format, _SCRIPTS)) + "]"
"""A class of characters: those of scripts that put no space between words."""
SPACELESS = regex.compile(SPACELESS_CLASS)
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")


@lru_cache(maxsize=1024)
def letter_pattern_of(tag: str) -> Any:
    """Returns a pattern of the letters of a language's script, or None if Unicode lacks it."""
    language = langcodes.Language.get(standard_tag(tag))
    scripts = UNICODE_SCRIPTS.get(script_of(tag), (script_of(tag),))
    if language.script is None and language.language in TWO_SCRIPTS:
        scripts = ("Latn", "Cyrl")
    try:  # `scx`: a letter of several scripts, such as the long vowel sign of Kana, counts in each
        classes = "".join(rf"\p{{scx={script}}}" for script in scripts)
        return regex.compile(rf"[[{classes}]&&[\p{{L}}\p{{M}}]]", regex.V1)
    except regex.error:
        return None


def words_have_spaces(tag: str | None) -> bool:
    """Returns whether a language puts spaces between words; an unknown one (None) does."""
    return tag is None or script_of(tag) not in WITHOUT_SPACES


def is_spaced_script_at(text: str, position: int) -> bool:
    """Returns whether the characters on both sides of a position are of scripts with spaces.

    At the beginning of a text the first character decides, and at its end the last one.
    """
    beside = text[max(position - 1, 0) : position + 1]
    return not any(map(SPACELESS.match, beside))


def sentences_have_spaces(tag: str | None) -> bool:
    """Returns whether a language puts spaces between sentences; an unknown one (None) does."""
    return tag is None or script_of(tag) not in WITHOUT_SENTENCE_SPACES


def asian_language_of(texts: Iterable[str]) -> str | None:
    """Returns the tag of an Asian language in whose script most letters of 1,000 texts are.

    The tag is "zh", "ja", "ko", "th", "lo", "km", "my", "bo" or "jv-Java". None: another script.
    """
    sample = "".join(islice(texts, 1000))
    letters = len(_LETTERS.findall(sample))
    for tag in ("ja", "zh", "ko", "th", "lo", "km", "my", "bo", "jv-Java"):
        script = letter_pattern_of(tag)
        share = len(script.findall(sample)) / max(letters, 1)
        if share > 0.5 and (tag != "ja" or _KANA.search(sample)):
            return tag
    return None
