"""The sentences of a line, and the cuts of a line that is too long for a model.

`sentencex` finds the sentences of some 300 languages.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import langcodes
import regex

from vanilla_transformer.language_tags import script_of, standard_tag
from vanilla_transformer.text.edits import Span, inner_positions
from vanilla_transformer.text.languages import (
    is_spaced_script_at,
    sentences_have_spaces,
    words_have_spaces,
)

_CLOSING = r"[\p{Pe}\p{Pf}\"'\u300d\u300f]*"
# Signs that end nothing but sentences, without ! and ?, and signs of Tibetan.
_SENTENCE_SIGNS = regex.compile(
    rf"[[\p{{SB=STerm}}--[!?\uff01\uff1f]]\u0f0d-\u0f12]+{_CLOSING}\s*", regex.V1
)
# A sentence goes on after a Burmese comma, and before the particle after a Japanese quotation.
_GOES_ON = regex.compile(r"(?<=\u104a\s*)|(?<=[\u300d\u300f])(?=\u3068|\u3063\u3066)")
# Commas, semicolons, colons; also Arabic, Japanese and Chinese, Burmese, Khmer, Ethiopic.
_CLAUSE_SIGNS = regex.compile(
    r"(?:[,;:](?=[\s\p{Pe}\p{Pf}\"'])|[\u060c\u061b\u3001\uff0c\uff1b\uff1a\u104a\u17d6\u1363-\u1365]"
    rf"(?!\p{{Nd}})){_CLOSING}\s*"
)
"""The end of a clause, after which a long sentence may be cut, and the white space there."""
_CLOSING_SIGNS = regex.compile(rf"(?:(?<!\s){_CLOSING})?\s*")
_SURE_END = regex.compile(r"(?:[!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964]|\p{L}{4}\.)\Z")
_WITHOUT_SIGNS = {"Thai", "Laoo", "Khmr", "Mymr", "Tibt"}
_SPACE = regex.compile(r"\s+")
_CLUSTER = regex.compile(r"\X(?:(?=[\p{Po}\p{Pe}\p{Pf}])\X)*")  # with the signs after it
_CHARACTER = regex.compile(r".", regex.DOTALL)
Between = Literal["sentences", "words", "letters"]
_LEVELS: Sequence[tuple[Between, Any]] = (
    ("sentences", None),
    ("sentences", _CLAUSE_SIGNS),
    ("words", _SPACE),
    ("letters", _CLUSTER),
    ("letters", _CHARACTER),
)
"""The units between which a line is cut, the largest first; the ends are matches of a pattern."""


@dataclass(frozen=True)
class Cut:
    """A cut in a line.

    Attributes:
        space: The white space that the line has there.
        between: "sentences" (or clauses), "words", or "letters" of one word.
    """

    space: str
    between: Between

    def in_language(self, tag: str | None) -> str:
        """Returns what stands at the cut in a language; an unknown one (None) has spaces."""
        if self.between == "letters":
            return self.space
        has_space = sentences_have_spaces if self.between == "sentences" else words_have_spaces
        if not has_space(tag):
            return ""
        return self.space.replace("\u3000", " ") or " "


def sentence_ends(text: str, tag: str | None) -> list[int]:
    """Returns the ends of the sentences of a text, after closing quotes and white space.

    Args:
        tag: The language of the text, whose abbreviations end no sentence. None: English.
    """
    from sentencex import get_sentence_boundaries

    language = langcodes.Language.get(standard_tag(tag)).language if tag else "en"
    ends = {boundary["end_index"] for boundary in get_sentence_boundaries(language, text)}
    # Signs of other scripts end a sentence in each language: texts mix them.
    ends |= {match.end() for match in _SENTENCE_SIGNS.finditer(text)}
    closed = {_CLOSING_SIGNS.match(text, end).end() for end in ends}  # with the closing quotes
    inner = (end for end in closed if 0 < end < len(text) and not _GOES_ON.match(text, end))
    return [*sorted(inner), len(text)]


def cut_line(
    line: str,
    count_tokens: Callable[[str], int],
    limit: int,
    language: str | None = None,
    undivided: Sequence[Span] = (),
) -> list[str | Cut]:
    """Cuts a line into pieces that are short enough, with as few cuts as possible.

    Pieces and cuts alternate; with the spaces of the cuts they are the line.

    Args:
        limit: Largest number of tokens of a piece. Only a single character may have more.
        language: The tag of the line's language; None: it is unknown.
        undivided: Parts that are cut only if one of them is too long.
    """
    inner = inner_positions(undivided)
    return _Cutter(lambda text: count_tokens(text) <= limit, language, inner).cut(line)


@dataclass(frozen=True)
class _Cutter:
    """Cuts a line where the text of a piece `fits`, and at no `inner` position of a part."""

    fits: Callable[[str], bool]
    language: str | None
    inner: Collection[int]

    def cut(self, text: str, level: int = 0, offset: int = 0) -> list[str | Cut]:
        """Cuts a part of the line, which begins at an offset, between units of a level."""
        if self.fits(text) or level == len(_LEVELS):
            return [text]
        between, pattern = _LEVELS[level]
        units = _unit_spans(text, self._ends(text, pattern, offset))
        pieces: list[str | Cut] = []
        previous_end = first = 0
        while first < len(units):
            last = _last_that_fits(text, units, first, self.fits)
            begin, end = units[first][0], units[last][1]
            if pieces:
                is_word_end = between == "letters" and not is_spaced_script_at(text, begin)
                pieces.append(Cut(text[previous_end:begin], "words" if is_word_end else between))
            piece = text[begin:end]
            # A unit that is too long alone is cut between smaller units.
            pieces += self.cut(piece, level + 1, offset + begin) if first == last else [piece]
            previous_end, first = end, last + 1
        return pieces

    def _ends(self, text: str, pattern: Any, offset: int) -> list[int]:
        """Returns the ends of sentences (None) or of other units; only characters divide a part."""
        if pattern is None:
            ends = sentence_ends(text, self.language)
        else:
            ends = [match.end() for match in pattern.finditer(text)]
        return [end for end in ends if pattern is _CHARACTER or offset + end not in self.inner]


def is_sure_end(sentence: str, following: str) -> bool:
    """Returns whether a sentence surely ends here.

    It ends with a clear sign, or with four letters and a dot, before a letter that is not small.
    """
    begins = following[:1].isalpha() and not following[:1].islower()
    return begins and _SURE_END.search(sentence, max(len(sentence) - 5, 0)) is not None


def sentences_have_signs(tag: str | None) -> bool:
    """Returns whether a language has signs at the ends of its sentences."""
    return tag is None or script_of(tag) not in _WITHOUT_SIGNS


def split_sentences(
    line: str, language: str | None = None, undivided: Sequence[Span] = ()
) -> list[str | Cut]:
    """Returns the sentences of a line and the cuts alternately; see `cut_line`."""
    inner = inner_positions(undivided)
    ends = [end for end in sentence_ends(line, language) if end not in inner]
    pieces: list[str | Cut] = []
    previous_end = 0
    for begin, end in _unit_spans(line, ends):
        pieces += [Cut(line[previous_end:begin], "sentences"), line[begin:end]]
        previous_end = end
    return pieces[1:]


def _unit_spans(text: str, ends: Sequence[int]) -> list[Span]:
    """Returns the spans of units, without the white space after all but the last."""
    units: list[Span] = []
    begin = 0
    text_end = len(text.rstrip())
    for end in ends:
        content_end = begin + len(text[begin:end].rstrip())
        if begin < content_end and end < text_end:
            units.append((begin, content_end))
            begin = end
    units.append((begin, len(text)))
    return units


def _last_that_fits(text: str, units: list[Span], first: int, fits: Callable[[str], bool]) -> int:
    """Returns the index of the last unit that fits into a piece, or `first`, by growing steps."""

    def fits_to(last: int) -> bool:
        return last < len(units) and fits(text[units[first][0] : units[last][1]])

    last, step = first, 1
    while fits_to(last + step):
        last += step
        step *= 2
    while step > 1:
        step //= 2
        if fits_to(last + step):
            last += step
    return last
