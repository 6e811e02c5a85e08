"""The likely languages of a text, by `py3langid`, which knows some 130."""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import langcodes
import regex

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.language_tags import SOUTH_SLAVIC, closest_tag, language_of, standard_tag
from vanilla_transformer.text.languages import TWO_SCRIPTS

_RELATIVES = 40  # languages that a detector confuses: nb and nn, ms and id, cs and sk


@cache
def _detector() -> Any:
    with optional_packages():
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(maxsize=8)  # several functions rank the languages of one text
def _ranked(text: str) -> list[tuple[str, float]]:
    return list(_detector().rank(text))


@lru_cache(maxsize=1024)
def is_detectable(tag: str) -> bool:
    """Returns whether the detector of languages knows a language."""
    return closest_tag(language_of(tag), _detector().labels) is not None


def likeliest_language(text: str) -> tuple[str, float]:
    """Returns the most probable language of a text among all, and its probability."""
    label, share = _ranked(text)[0]
    return str(label), float(share)


def may_be_in(text: str, tag: str) -> bool:
    """Returns whether the detector finds a language in a text, or a relative of it."""
    return are_related(_detector().classify(text)[0], tag)


def is_unlikely(text: str, tag: str, odds: float) -> bool:
    """Returns whether an unrelated language is `odds` times likelier than `tag` and relatives."""
    ranked, relatives = _ranked(text), _relatives(tag)
    own = sum(share for label, share in ranked if label in relatives)
    return odds * own < next(share for label, share in ranked if label not in relatives)


@lru_cache(maxsize=1024)
def _relatives(tag: str) -> frozenset[str]:
    """Returns a language and its relatives, by the labels of the detector."""
    return frozenset(label for label in _detector().labels if are_related(label, tag))


def are_related(one: str, other: str) -> bool:
    """Returns whether a detector may confuse two languages, such as nb and nn, or hr, bs and sr.

    The script does not count.
    """
    one, other = (str(langcodes.Language.get(standard_tag(tag)).language) for tag in (one, other))
    return {one, other} <= SOUTH_SLAVIC or langcodes.tag_distance(one, other) < _RELATIVES


def detect(text: str, supported: Sequence[str]) -> list[tuple[str, float]]:
    """Returns the probabilities of some languages for a text, the most probable first.

    The probabilities are shares among all languages that the detector knows: they are all low for a
    text in another language. Languages that the detector does not know are left out.
    """
    shares: dict[str, float] = {}
    for label, share in _ranked(text):
        match = _detected_tag(label, _script_in(text, label), tuple(supported))
        if match is not None:
            shares[match] = shares.get(match, 0.0) + share
    return sorted(shares.items(), key=lambda item: -item[1])


@lru_cache(maxsize=8192)
def _detected_tag(label: str, script: str | None, supported: tuple[str, ...]) -> str | None:
    """Returns the tag of a detected language, in its script if that is supported."""
    language = closest_tag(label, map(language_of, supported))
    same = [tag for tag in supported if language_of(tag) == language]
    scripted = f"{label}-{script}" if script else label
    return closest_tag(scripted, same) or next(iter(same), None)


def _script_in(text: str, label: str) -> str | None:
    """Returns the script of a text in a language of two scripts; None for other languages."""
    if label == "zh":  # the character sets of both kinds have few characters in common
        counts = [len(text.encode(codec, "ignore").decode(codec)) for codec in ("gb2312", "big5")]
        return "Hant" if counts[1] > counts[0] else "Hans"
    if label in TWO_SCRIPTS:
        counts = [len(regex.findall(rf"\p{{{script}}}", text)) for script in ("Latn", "Cyrl")]
        return "Cyrl" if counts[1] > counts[0] else "Latn"
    return None
