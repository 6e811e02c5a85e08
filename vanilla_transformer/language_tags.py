"""Tags of languages: of BCP 47 ("en", "zh-Hant", "pt-BR"), in any spelling.

Models and clients write `eng_Latn`, `en_XX`, `EN`, `iw`, `cmn`. `langcodes` parses these tags.
"""

from collections.abc import Iterable
from functools import lru_cache

import langcodes
import regex
from langcodes.tag_parser import LanguageTagError

from vanilla_transformer.extras import optional_packages

Languages = tuple[str | None, str | None]
"""The codes of source and target; None: it is not known."""
OTHER_TAGS = {
    **{"pb": "pt-BR", "zt": "zh-Hant", "ns": "nso"},
    **{"pbt_arab": "ps", "quy_latn": "qu", "fuv_latn": "ff"},
}
"""Codes of Argos Translate, LibreTranslate and M2M100 that are no tags of BCP 47, and codes of NLLB
for one language of a group, which stand for the group here; in small letters, with "_"."""
_WITHOUT_MEANING = regex.compile(r"[-_](XX|Hang)(?=[-_]|$)", regex.I)
"""Ends of tags that say nothing: of languages without a country in mBART, and of Korean in NLLB,
whose script is Kore."""
_FARTHEST = 9  # of langcodes' distances: another script or spelling
_OTHER_LANGUAGE = 8  # the distance of languages whose speakers understand another: lb, de; bs, hr
SOUTH_SLAVIC = {"bs", "hr", "sh", "sr", "cnr"}


@lru_cache(maxsize=1024)
def standard_tag(tag: str) -> str:
    """Returns a tag in the standard form: "en" for `eng_Latn`, "pt-BR" for `pt_br` and `pb`."""
    return str(_parse_tag(tag).simplify_script())


def _parse_tag(tag: str) -> langcodes.Language:
    """Parses a tag in any spelling; it keeps the script that it names."""
    text = _WITHOUT_MEANING.sub("", OTHER_TAGS.get(tag.lower().replace("-", "_"), tag))
    try:
        language = langcodes.Language.get(text)  # resolves deprecated codes and codes of 3 letters
        is_known = language.is_valid()
    except LanguageTagError:
        is_known = False
    if not is_known:
        raise ValueError(f"{tag!r} is no language: give a tag such as en, pt-BR, zh-Hans.")
    return language


def known_tag(tag: str | None) -> str | None:
    """Returns a tag in the standard form; None for None, and for a name of no language."""
    try:
        return standard_tag(tag) if tag else None
    except ValueError:
        return None


def is_language(tag: str) -> bool:
    """Returns whether a language has this tag."""
    return known_tag(tag) is not None


def closest_tag(tag: str, supported: Iterable[str]) -> str | None:
    """Returns the tag of the same language, as one of `supported` spells it; None: there is none.

    A tag without a script or country takes the usual one, or any if that is not there: "zh" finds
    "zho_Hans", and "pt" "pt-BR". A tag with a script finds none with another.
    A name of no language, such as Marian's group "roa", is found by its own spelling alone.
    """
    spellings: dict[str, str] = {}
    for spelling in supported:
        if spelling == tag:
            return spelling
        if (known := known_tag(spelling)) and _agree_in_script(tag, spelling):
            spellings.setdefault(known, spelling)
    wanted = standard_tag(tag)
    # Only if no tag is of this language, one of a related language may be close enough.
    own = [known for known in spellings if language_of(known) == language_of(wanted)]
    match = langcodes.closest_supported_match(wanted, own or [*spellings], _FARTHEST)
    if match is None:  # of one script, where `tag` names none
        match = next((known for known in spellings if language_of(known) == wanted), None)
    elif langcodes.tag_distance(language_of(wanted), language_of(match)) >= _OTHER_LANGUAGE:
        match = None
    return None if match is None else spellings[match]


@lru_cache(maxsize=8192)
def _agree_in_script(one: str, other: str) -> bool:
    """Returns whether two tags can mean one script: they name the same, or one names none."""
    scripts = {script for tag in (one, other) if (script := _parse_tag(tag).script)}
    return len(scripts) < 2


def variant_of(tag: str, languages: Iterable[str]) -> str | None:
    """Returns the one of some languages that a tag names or is a variant of; None: there is none.

    "en-US" and "eng" are "en"; "pt-BR" is "pt" unless "pt-BR" is among the languages. A language
    without a script has its usual one: "zh-CN" is "zh" and "zh-Hans", "zh-TW" is "zh-Hant" alone.
    """
    code, standard = _with_script(tag), {language: _with_script(language) for language in languages}
    for language in sorted(standard, key=lambda language: -len(standard[language])):  # pt-BR, pt
        if f"{code}-".startswith(f"{standard[language]}-"):
            return language
    return None


def _with_script(tag: str) -> str:
    """Returns a tag in the standard form, but with its script: "zh-Hant-TW" for "zh_TW"."""
    if (known := known_tag(tag)) is None:
        return tag
    script = f"-{script_of(tag)}"
    language, *rest = known.replace(script, "").split("-", 1)
    return "-".join([language + script, *rest])


@lru_cache(maxsize=1024)
def script_of(tag: str) -> str:
    """Returns the script that a language is written in, as ISO 15924 names it: "Latn", "Hans"."""
    return str(langcodes.Language.get(standard_tag(tag)).maximize().script)


def language_of(tag: str) -> str:
    """Returns the language of a tag, without its script and country."""
    return standard_tag(tag).partition("-")[0]


def language_name(tag: str) -> str:
    """Returns the English name of a language: "Portuguese (Brazil)" for `pt_BR`."""
    with optional_packages():
        return str(langcodes.Language.get(standard_tag(tag)).display_name())
