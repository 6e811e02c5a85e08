"""The words of a text, cut in one of five ways, and their basic forms.

| "l'été : 10 kg 東京へ" | is cut into |
|---|---|
| `word_borders` | l' · été · : · 10 · kg · 東京へ, or parts of 東京へ between tokens of a model |
| `words_and_signs` | l · ' · été · : · 10 · kg · 東 · 京 · へ |
| `spaced_words` | l'été · : · 10 · kg · 東 · 京 · へ |
| `aligner_words` | l'été · : · 10 · kg · 東京へ |
| `letter_runs` | l · été · 10 · kg · 東京 · へ |
"""

from collections.abc import Collection, Sequence
from functools import cache, lru_cache

import regex

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.language_tags import SOUTH_SLAVIC, closest_tag, known_tag, language_of
from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.languages import SPACELESS_CLASS, is_spaced_script_at

_WORD_BORDER = regex.compile(
    r"\b|(?<=\b(?:\p{L}|\p{L}*(?:ll|qu))['\u2019])(?=\p{L}\p{L})(?!(?:ll|re|ve)\b)", regex.WORD
)  # of Unicode, and after an article or pronoun of French or Italian: l'homme
_TWO_OF_WORD = regex.compile(r"\w\w")
_WORD_LETTERS = r"\p{L}\p{M}\p{N}_"
WORDS = regex.compile(rf"{SPACELESS_CLASS}|[[{_WORD_LETTERS}]--{SPACELESS_CLASS}]+|\S", regex.V1)
_SPACED = regex.compile(rf"{SPACELESS_CLASS}|[\S--{SPACELESS_CLASS}]+", regex.V1)
_LETTER_RUNS = regex.compile(
    r"(?P<katakana>[\p{Katakana}\u30fc]+)"
    rf"|(?P<joined>\p{{Hiragana}}+|[{SPACELESS_CLASS}--[\p{{Hiragana}}\p{{Katakana}}]]+)"
    rf"|[[{_WORD_LETTERS}]--{SPACELESS_CLASS}]+",
    regex.V1,
)
_PARTICLE = regex.compile(r"(?<=\p{Hangul}{2})(?:에서|에게|으로|[은는이가을를의에도와과로])$")
_ALIGNER_WORD = regex.compile(r"[^ \t\n\v\f\r]+")


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


def words_and_signs(text: str) -> list[Span]:
    """Returns the spans of the words and signs of a text; in scripts without spaces, of letters."""
    return [match.span() for match in WORDS.finditer(text)]


def spaced_words(text: str) -> list[Span]:
    """Returns the spans of text between white space; in scripts without spaces, of letters."""
    return [match.span() for match in _SPACED.finditer(text)]


def aligner_words(text: str) -> list[Span]:
    """Returns the spans of text between ASCII white space, which other aligners call words."""
    return [match.span() for match in _ALIGNER_WORD.finditer(text)]


def words_of_spans(text: str, spans: Sequence[Span]) -> list[range]:
    """Returns the indices of the aligner's words that each token belongs to.

    It is usually one: none if the token is empty or white space, several if it spans white space.
    """
    word_at = [-1] * len(text)
    for index, (begin, end) in enumerate(aligner_words(text)):
        word_at[begin:end] = [index] * (end - begin)
    ranges: list[range] = []
    for begin, end in spans:
        inside = [index for index in word_at[begin:end] if index >= 0]
        ranges.append(range(inside[0], inside[-1] + 1) if inside else range(0))
    return ranges


def letter_runs(text: str) -> list[tuple[int, int, str | None]]:
    """Returns the spans of runs of letters with their kinds: "katakana", or "joined" words.

    The kind is None for scripts with spaces: such a run is one word.
    """
    return [(*match.span(), match.lastgroup) for match in _LETTER_RUNS.finditer(text)]


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
