"""Filters that drop pairs of a corpus from the training, in one table."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any, NamedTuple
from unicodedata import decimal, normalize

import regex

from vanilla_transformer.language_tags import Languages
from vanilla_transformer.text.detection import are_related, is_detectable, is_unlikely, may_be_in
from vanilla_transformer.text.edits import Edit, apply_edits
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.languages import letter_pattern_of
from vanilla_transformer.text.patterns import find_patterns
from vanilla_transformer.text.printf import normalized_part

_LEAST_LETTERS = 20  # of a side whose language is detected: fewer mislead the detector
_LEAST_OWN = 12  # of its own words, by which it is judged
_ODDS, _ODDS_OF_COPY = 3, 10
"""How much likelier another language must be for the own words of a side, or for a near copy.

Of 10,000 right pairs of programs with German, Spanish, French and Turkish, 0.2% are dropped so; of
16,200 with a target in a wrong language, 96%.
"""
_RECENT_PAIRS = 2**18  # whose hashes are not sorted yet
_NO_WORD = regex.compile(r"[\W_]+")
_DIGITS = regex.compile(r"\p{Nd}+")
_LETTERS = regex.compile(r"[\p{L}\p{M}]")
_WORDS = regex.compile(r"[\p{L}\p{M}]+")
_LATIN_WORDS = regex.compile(r"\p{Latin}+")
_NUMBERED = regex.compile(r"%([1-9]\d*+)(?!\$)")  # %1 of Qt, %5d, and 50% in Turkish and Basque
DENSE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_MARKUP = regex.compile(  # not <file>, which a translation translates
    r"</[A-Za-z][\w:.-]*|/>"
    r"|<(?:a|b|big|br|code|div|em|font|h[1-6]|hr|i|img|li|ol|p|pre|q|s|small|span|strong|sub|sup"
    r"|table|td|th|tr|tt|u|ul)\b"
)


class Filter(NamedTuple):
    """One row of the table.

    Attributes:
        default: Its limit, or whether it is on.
        is_bad: Takes source, target, the limit and the languages. None: `reasons_to_drop` compares
            the pair with others.
    """

    default: float | bool
    is_bad: Callable[[str, str, float, Languages], bool] | None = None


def _share_of_letters(text: str) -> float:
    visible = sum(map(len, text.split()))
    return len(_LETTERS.findall(text)) / max(visible, 1)


def _share_of_script(text: str, language: str) -> float:
    """Returns how many of the letters are of the script of a language.

    Beside Han and Kana, a Latin word counts as one letter.
    """
    script = letter_pattern_of(language)
    if script is not None and script.match("\u4e2d"):
        text = _LATIN_WORDS.sub("x", text)
    letters = len(_LETTERS.findall(text))
    return 1.0 if not letters or script is None else len(script.findall(text)) / letters


def _is_other_script(source: str, target: str, least: float, languages: Languages) -> bool:
    sides = zip((source, target), languages, strict=True)
    return any(language and _share_of_script(text, language) < least for text, language in sides)


def _is_other_language(source: str, target: str, _: float, languages: Languages) -> bool:
    """Returns whether a side with enough letters is in another language, if its own is known."""
    sides = ((source, target, languages[0]), (target, source, languages[1]))
    return any(
        language
        and _num_letters(text) >= _LEAST_LETTERS
        and is_detectable(language)
        and _is_foreign(text, other, language)
        for text, other, language in sides
    )


def _num_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _is_foreign(text: str, other: str, language: str) -> bool:
    """Returns whether a side is in another language by its own words.

    Names and kept parts, which both sides have, are in no language. A side with few other words may
    be a copy of the other side.
    """
    if not is_unlikely(text, language, _ODDS):
        return False
    shared = set(_WORDS.findall(other.casefold()))
    free = apply_edits(text, [Edit(*span, " ") for span in kept_spans(text)])
    own = " ".join(word for word in _WORDS.findall(free) if word.casefold() not in shared)
    if _num_letters(own) < _LEAST_OWN:
        return is_unlikely(text, language, _ODDS_OF_COPY)
    return is_unlikely(own, language, _ODDS)


def are_swapped(pairs: Iterable[tuple[str, str, Languages]]) -> bool:
    """Returns whether most pairs are in each other's language, if a detector is installed.

    Pairs of few letters, and of languages that the detector does not know or confuses, say nothing.
    """
    if find_spec("py3langid") is None:
        return False
    votes = [
        may_be_in(source, of_target) and may_be_in(target, of_source)
        for source, target, (of_source, of_target) in pairs
        if of_source
        and of_target
        and min(map(_num_letters, (source, target))) >= _LEAST_LETTERS
        and all(map(is_detectable, (of_source, of_target)))
        and not are_related(of_source, of_target)
    ]
    return sum(votes) > len(votes) / 2


def _is_other_markup(source: str, target: str, *_: Any) -> bool:
    """Returns whether the sides do not hold the same tags, in any order."""
    has_signs = any(sign in side for side in (source, target) for sign in "<>")
    return has_signs and sorted(_MARKUP.findall(source)) != sorted(_MARKUP.findall(target))


def _numbers(text: str) -> list[str]:
    return sorted(
        "".join(str(decimal(digit)) for digit in match) for match in _DIGITS.findall(text)
    )


_unnumbered = partial(normalized_part, is_numbered=False)


def _placeholders(text: str, known: Collection[str] = ()) -> list[str]:
    """Returns the placeholders of a text, given the other side's, in order, but not %1."""
    parts = [text[slice(*span)] for span, _ in find_patterns(text, known, "placeholder")]
    return [part for part in parts if not _NUMBERED.match(part)]


def _is_other_placeholder(source: str, target: str, *_: Any) -> bool:
    """Returns whether the sides differ in placeholders.

    A number after a percent sign must stand on the other side too: as the same placeholder of Qt,
    or as the same percentage, in any spelling.
    """
    if not any(sign in side for side in (source, target) for sign in "%{$@"):
        return False
    known = _placeholders(source)
    of_target = _placeholders(target, known)
    of_source = _placeholders(source, of_target) if of_target else known
    return sorted(map(_unnumbered, of_source)) != sorted(map(_unnumbered, of_target)) or any(
        "%" in one and not set(_NUMBERED.findall(one)).issubset(_numbers(other))
        for one, other in ((source, target), (target, source))
    )


def _length_ratio(source: str, target: str) -> float:
    # A character of these scripts holds as much as two letters.
    short, long = sorted(len(text) + len(DENSE.findall(text)) for text in (source, target))
    return long / max(short, 1) if long >= 20 else 1.0


FILTERS = {
    "empty": Filter(True, lambda s, t, *_: not (s.strip() and t.strip())),
    "identical": Filter(True, lambda s, t, *_: s.strip() == t.strip()),
    "longest": Filter(2000, lambda s, t, most, _: max(len(s), len(t)) > most),
    "length_ratio": Filter(4.0, lambda s, t, most, _: _length_ratio(s, t) > most),
    "letters": Filter(0.3, lambda s, t, least, _: min(map(_share_of_letters, (s, t))) < least),
    "script": Filter(0.5, _is_other_script),
    "language": Filter(False, _is_other_language),
    "placeholders": Filter(True, _is_other_placeholder),
    "markup": Filter(True, _is_other_markup),
    "digits": Filter(False, lambda s, t, *_: _numbers(s) != _numbers(t)),
    "duplicate": Filter(True),
    "held_out": Filter(True),
    "twin": Filter(False),
}
"""The filters by name, as docs/corpora.md tells them: the first that drops a pair is its reason."""

ALWAYS_ON = ("empty", "held_out")


def active_filters(chosen: Mapping[str, float | bool] | bool | None) -> dict[str, float | bool]:
    """Returns the limits of the filters that are on, by name.

    Args:
        chosen: Limits by name, where True is the default and False switches a filter off; or False
            for all. None: the defaults.
    """
    if isinstance(chosen, bool) or chosen is None:
        chosen = dict.fromkeys(FILTERS, False) if chosen is False else {}
    active = {name: row.default for name, row in FILTERS.items()}
    for name, value in chosen.items():
        if name not in FILTERS:
            raise ValueError(f"`filters` has no {name!r}: choose from {', '.join(FILTERS)}.")
        has_limit = not isinstance(FILTERS[name].default, bool)
        if not isinstance(value, int | float if has_limit else bool):
            raise ValueError(f"`filters` {name!r} is {value!r}: give true, false or a limit.")
        if name not in ALWAYS_ON and not (value is True and has_limit):
            active[name] = value
    return {name: value for name, value in active.items() if value is not False}


class _SeenPairs:
    """Remembers hashes, in 8 bytes each: most are sorted, and the last ones are in a set."""

    def __init__(self) -> None:
        import numpy as np  # the help of a command needs the names of filters only

        self._sorted, self._recent = np.zeros(0, np.int64), set[int]()

    def add(self, key: int) -> bool:
        """Returns whether a hash is new."""
        index = self._sorted.searchsorted(key)
        is_old = index < len(self._sorted) and self._sorted[index] == key
        if is_old or key in self._recent:
            return False
        self._recent.add(key)
        if len(self._recent) >= _RECENT_PAIRS:
            import numpy as np

            new = np.sort(np.fromiter(self._recent, np.int64))
            self._sorted = np.insert(self._sorted, self._sorted.searchsorted(new), new)
            self._recent.clear()
        return True


def reasons_to_drop(
    filters: Mapping[str, float | bool],
    held_out: frozenset[int],
    is_twin: Callable[[str], bool] = lambda _: False,
) -> Callable[[str, str, Languages], str]:
    """Returns a function that names the filter that drops a pair; "" keeps it.

    It takes the source, the target and their languages.

    Args:
        filters: Limits by name, as `active_filters` returns them.
        held_out: `pair_key` of each pair that is in the validation or test set.
        is_twin: Tells whether a source is nearly equal to one of these.
    """
    local = [
        (name, is_bad, value)
        for name, value in filters.items()
        if (is_bad := FILTERS[name].is_bad) is not None
    ]
    seen = _SeenPairs()

    def reason(source: str, target: str, languages: Languages) -> str:
        source, target = normalize("NFC", source), normalize("NFC", target)
        for name, is_bad, value in local:
            if is_bad(source, target, value, languages):
                return name
        if held_out and pair_key(source, target) in held_out:
            return "held_out"
        if "twin" in filters and is_twin(source):
            return "twin"
        is_duplicate = "duplicate" in filters and not seen.add(hash((source, target)))
        return "duplicate" if is_duplicate else ""

    return reason


def pair_key(source: str, target: str) -> int:
    """Returns a digest of a pair in which case, spaces and punctuation do not count.

    Composed and decomposed forms of Unicode are one.
    """
    sides = (
        _NO_WORD.sub("", normalize("NFC", text.casefold())) or text for text in (source, target)
    )
    return int.from_bytes(blake2b("\t".join(sides).encode(), digest_size=8).digest(), "big") >> 1
