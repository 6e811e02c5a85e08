"""Stored translations of similar texts, with a model's words for the words that differ.

A small model that reads such a translation changes other words of it, too. Here they stay as they
are stored: only words that translate a new word of the source come from the model.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

import regex

from vanilla_transformer.text.edits import Span, meets
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.languages import is_spaced_script_at
from vanilla_transformer.text.memory import Suggestion
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import spaced_words

_SIGN = regex.compile(r"\W")


class _Word(NamedTuple):
    """A part of a text, with the white space before it."""

    gap: str
    text: str
    span: Span


def repair(text: str, known: Suggestion, output: str, links: TokenLinks) -> str:
    """Returns the stored translation of a similar text with some words of an output.

    The stored translation stays as it is if the result would lack a placeholder.

    Args:
        output: The output of a model that has read the text and the translation.
        links: The links of the text with this output.
    """
    sources = _words(known.source), _words(text)
    old, new = list[Span](), list[Span]()
    plain = ([_SIGN.sub("", word.text).lower() or word.text for word in side] for side in sources)
    for old_part, new_part in _differences(*plain):
        old += [word.span for word in sources[0][old_part]]
        new += [word.span for word in sources[1][new_part]]
    stored, written = _words(known.target), _words(output)
    translating = [part for part, index in links.pairs() if meets(links.in_source[index], new)]
    repaired, last = list[_Word](), 0
    texts = ([word.text for word in side] for side in (stored, written))
    for in_stored, in_output in _differences(*texts):
        replaced, words = stored[in_stored], written[in_output]
        is_new = any(meets(word.span, translating) for word in words)
        is_gone = not words and not new
        # A change may be one word longer than the source's, such as an article.
        is_short = max(len(replaced), len(words) - 1) <= max(len(old), len(new))
        if (is_new or is_gone) and is_short:
            repaired += [*stored[last : in_stored.start], *words]
            last = in_stored.stop
    joined = _join([*repaired, *stored[last:]]) + known.target[len(known.target.rstrip()) :]
    return joined if Copies.find(text, kept_spans(text), joined).are_right else known.target


def _words(text: str) -> list[_Word]:
    spans = [(0, 0), *spaced_words(text)]
    return [_Word(text[a:b], text[b:c], (b, c)) for (_, a), (b, c) in pairwise(spans)]


def _differences(first: Iterable[str], second: Iterable[str]) -> Iterator[tuple[slice, slice]]:
    """Yields the parts in which two rows of words differ, word by word if they are equally long."""
    matcher = SequenceMatcher(None, list(first), list(second), autojunk=False)
    for kind, begin, end, start, stop in matcher.get_opcodes():
        if kind == "replace" and end - begin == stop - start:
            for one, other in zip(range(begin, end), range(start, stop), strict=True):
                yield slice(one, one + 1), slice(other, other + 1)
        elif kind != "equal":
            yield slice(begin, end), slice(start, stop)


def _join(words: Sequence[_Word]) -> str:
    text = ""
    for gap, word, _ in words:
        if not text:
            gap = ""
        elif not gap and is_spaced_script_at(text + word, len(text)):
            gap = " "
        text += gap + word
    return text
