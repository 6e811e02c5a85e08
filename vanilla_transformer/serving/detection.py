"""The source languages of the texts of a request, detected among those that lead to its target."""

from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from vanilla_transformer.language_tags import closest_tag, is_language
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.text.detection import detect, is_detectable, likeliest_language

_LEAST_SHARE = 0.6
"""The likeliest language of a text is believed if the detector gives it at least this share."""
_LEAST_SHARE_OF_SOURCES = 0.001
"""A text is in no source language if these have less than this share together.

By `_LEAST_SHARE` and this, 1% of 6,000 English and German strings of programs of up to 20
characters are taken for another language, and 0.2% of 4,000 longer ones.
"""
_LEAST_SHARE_OF_TARGET = 0.01
"""A text in no source language is in the target language if this has at least this share.

It is chosen, not measured.
"""
_LONGEST_SAMPLE = 2000
"""Characters that suffice to tell the language of a text."""
_LEAST_ALONE = 40
"""A longer text of a list is detected alone, as in LibreTranslate."""


class Detected(NamedTuple):
    """The language of a text: one of the sources, the target, or another one."""

    code: str
    percent: int


def detect_sources(texts: list[str], sources: list[str], target: str) -> list[Detected]:
    """Detects the language of each text of a list, or refuses the list (400).

    A text of more than `_LEAST_ALONE` characters is detected alone. All shorter ones have one
    language, which the long texts in known languages help to detect. The list is refused only if
    none of its texts is in a source language or the target language.
    """
    alone = [
        detect_source(text, sources, target) if len(text) > _LEAST_ALONE else None for text in texts
    ]
    known = {*sources, target}
    decided = [found for found in alone if found]
    if None in alone:
        usable = [found is None or found.code in known for found in alone]
        decided = [detect_source("\n".join(compress(texts, usable)), sources, target)]
    if all(found.code not in known for found in decided):
        raise RequestError(
            400,
            f"The text seems to be in another language than {', '.join(sources)}, from which "
            f"{target[:35]} is offered: give `source` if it is in one of these.",
        )
    return [found or decided[0] for found in alone]


def detect_source(text: str, sources: list[str], target: str) -> Detected:
    """Detects the language of a text, as far as the detector knows the sources."""
    text = text[:_LONGEST_SAMPLE]
    if all(is_language(code) and is_detectable(code) for code in sources):
        label, share = likeliest_language(text)
        shares = dict(detect(text, [*sources, target]))
        of_target = shares.pop(target, 0.0)
        is_other = share >= _LEAST_SHARE and closest_tag(label, sources) is None
        if is_other or sum(shares.values()) < _LEAST_SHARE_OF_SOURCES:
            if of_target >= _LEAST_SHARE_OF_TARGET:
                label, share = target, of_target
            return Detected(label, round(100 * share))
    if detected := detect_languages(text, sources):
        return detected[0]
    if len(sources) == 1:
        return Detected(sources[0], 0)
    raise RequestError(
        400,
        f"Give `source`: {target[:35]} is offered from {', '.join(sources)}, which cannot be "
        "detected.",
    )


def detect_languages(text: str, codes: Iterable[str]) -> list[Detected]:
    """Returns the languages that a text may be in, the likeliest first."""
    supported = list(filter(is_language, dict.fromkeys(codes)))
    found = detect(text[:_LONGEST_SAMPLE], supported)
    return [Detected(code, round(100 * share)) for code, share in found]
