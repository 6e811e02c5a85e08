"""Languages: their tags, scripts and words.

Tags are of BCP 47 ("en", "zh-Hant", "pt-BR"), in any spelling that models and clients use:
`eng_Latn`, `en_XX`, `EN`, `iw`, `cmn`. `langcodes` reads and matches them, `py3langid` tells
some 130 languages apart, and Unicode's properties tell the script of a letter.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any

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

_IDEOGRAPHIC = r"[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\uff01-\uff60]"
_IDEOGRAPH = regex.compile(_IDEOGRAPHIC)
JOINED_LINES = regex.compile(rf"(?<={_IDEOGRAPHIC})[ \t\f\r]*+\n[ \t\f\r\n]*+(?={_IDEOGRAPHIC})")
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
_FARTHEST = 9  # of langcodes' distances: another script or spelling
_OTHER_LANGUAGE = 8  # the distance of languages whose speakers understand another: lb, de; bs, hr
_SOUTH_SLAVIC = {"bs", "hr", "sh", "sr", "cnr"}
_RELATIVES = 40  # languages that a detector confuses: nb and nn, ms and id, cs and sk


@lru_cache(maxsize=1024)
def standard_tag(tag: str) -> str:
    """Returns a tag in the standard form: "en" for `eng_Latn`, "pt-BR" for `pt_br` and `pb`."""
    return str(_read_tag(tag).simplify_script())


def _read_tag(tag: str) -> langcodes.Language:
    """Reads a tag in any spelling; the script stays if the tag names one."""
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
    asked = standard_tag(tag)
    # Only if no tag is of this language, one of a related language may be close enough.
    own = [known for known in spellings if _language_of(known) == _language_of(asked)]
    match = langcodes.closest_supported_match(asked, own or [*spellings], _FARTHEST)
    if match is None:  # of one script, where none is asked for
        match = next((known for known in spellings if _language_of(known) == asked), None)
    elif langcodes.tag_distance(_language_of(asked), _language_of(match)) >= _OTHER_LANGUAGE:
        match = None
    return None if match is None else spellings[match]


@lru_cache(maxsize=8192)
def _agree_in_script(one: str, other: str) -> bool:
    """Returns whether two tags can mean one script: they name the same, or one names none."""
    scripts = {script for tag in (one, other) if (script := _read_tag(tag).script)}
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


def are_related(one: str, other: str) -> bool:
    """Returns whether a detector of languages may take one for the other: no, nb, nn; hr, bs, sr.

    The script does not count.
    """
    first, second = (
        str(langcodes.Language.get(standard_tag(tag)).language) for tag in (one, other)
    )
    return {first, second} <= _SOUTH_SLAVIC or langcodes.tag_distance(first, second) < _RELATIVES


def language_name(tag: str) -> str:
    """Returns the English name of a language: "Portuguese (Brazil)" for `pt_BR`."""
    with optional_packages():
        return str(langcodes.Language.get(standard_tag(tag)).display_name())


@cache
def _detector() -> Any:
    with optional_packages():
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(maxsize=8)  # a text is asked for its languages in several ways
def _ranked(text: str) -> list[tuple[str, float]]:
    return list(_detector().rank(text))


@lru_cache(maxsize=1024)
def is_detectable(tag: str) -> bool:
    """Returns whether the detector of languages knows a language."""
    return closest_tag(_language_of(tag), _detector().labels) is not None


def likeliest_language(text: str) -> tuple[str, float]:
    """Returns the most probable language of a text among all, and its probability."""
    label, share = _ranked(text)[0]
    return str(label), float(share)


def may_be_in(text: str, tag: str) -> bool:
    """Returns whether the detector finds a language in a text, or a relative of it."""
    return are_related(_detector().classify(text)[0], tag)


def detect(text: str, supported: Sequence[str]) -> list[tuple[str, float]]:
    """Returns how probable each of some languages is for a text, the most probable first.

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
    language = closest_tag(label, map(_language_of, supported))
    same = [tag for tag in supported if _language_of(tag) == language]
    scripted = f"{label}-{script}" if script else label
    return closest_tag(scripted, same) or next(iter(same), None)


def _language_of(tag: str) -> str:
    return standard_tag(tag).partition("-")[0]


def _script_in(text: str, label: str) -> str | None:
    """Returns the script of a text whose language has two; None: its language has one."""
    if label == "zh":  # the character sets of both kinds have few characters in common
        counts = [len(text.encode(codec, "ignore").decode(codec)) for codec in ("gb2312", "big5")]
        return "Hant" if counts[1] > counts[0] else "Hans"
    if label in TWO_SCRIPTS:
        counts = [len(regex.findall(rf"\p{{{script}}}", text)) for script in ("Latn", "Cyrl")]
        return "Cyrl" if counts[1] > counts[0] else "Latn"
    return None


@lru_cache(maxsize=1024)
def script_of(tag: str) -> str:
    """Returns the script that a language is written in, as ISO 15924 names it: "Latn", "Hans"."""
    return str(langcodes.Language.get(standard_tag(tag)).maximize().script)


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


def is_ideographic(character: str) -> bool:
    """Returns whether a character is a Chinese or Japanese one, which stands beside no space."""
    return bool(_IDEOGRAPH.match(character))


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
    if _language_of(code) == "ko":
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
    return closest_tag("hbs" if _language_of(tag) in _SOUTH_SLAVIC else tag, SUPPORTED_LANGUAGES)


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
