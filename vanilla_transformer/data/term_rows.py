"""Training pairs whose sources show the translation of some terms, so that a model obeys them.

The terms come from the pairs themselves, by word alignment (Dinu et al. 2019); half of their
targets are in the basic form, so that the model learns to inflect (Bergmanis and Pinnis 2021).
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import regex
from datasets import Dataset
from numpy.typing import NDArray

from vanilla_transformer.columns import languages_of, split_tag
from vanilla_transformer.data.cased_copies import drawn_rows
from vanilla_transformer.data.file_formats import map_rows
from vanilla_transformer.data.lexical_alignment import WordLexicon, Words
from vanilla_transformer.language_tags import Languages
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN
from vanilla_transformer.text.edits import Span, apply_edits, meets
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.languages import is_spaced_script_at
from vanilla_transformer.text.lexicon import Floats
from vanilla_transformer.text.terms import edits_to_annotate
from vanilla_transformer.text.words import lemma

_SHARE = 0.5  # of the pairs
_LEARNT_FROM = 50_000  # pairs of each direction
_LINKED, _SURE = 0.1, 0.4  # agreements of words of a term; of one of them
_LONGEST = 3  # words of a term
_MOST_TERMS = 3  # of a pair
_TERM = regex.compile(r"[\p{L}\p{M}]+(?:[ '\u2019-]?[\p{L}\p{M}]+)*")


def annotate_terms(rows: Dataset, tags: Sequence[str] = (), num_proc: int | None = None) -> Dataset:
    """Puts the targets of some terms behind them in the sources of a share of the pairs.

    Args:
        rows: Pairs with the columns "source" and "target".
        tags: Words that sources may begin with, which stay in front.
    """

    def split(source: str) -> tuple[str, str, str]:
        text, token, shown = split_tag(source, tags)[1].partition(MEMORY_TOKEN)
        return source.removesuffix(text + token + shown), text, token + shown

    lexicons = _learn(rows, split)
    drawn = np.random.default_rng(1).random(len(rows)) < _SHARE  # others than for placeholders

    def annotate(batch: dict[str, Any], numbers: list[int]) -> dict[str, list[str]]:
        sources = list(batch["source"])
        of_languages = languages_of(batch, len(numbers))
        of_rows = zip(sources, batch["target"], of_languages, numbers, strict=True)
        for index, (source, target, languages, number) in enumerate(of_rows):
            if drawn[number] and languages in lexicons:
                begin, text, end = split(source)
                terms = draw_terms((text, target), lexicons[languages], languages, Random(number))
                sources[index] = begin + apply_edits(text, edits_to_annotate(text, terms)) + end
        return {"source": sources}

    return map_rows(rows, annotate, "Annotating terms", tags, batched=True, num_proc=num_proc)


def draw_terms(
    pair: tuple[str, str], lexicon: WordLexicon, languages: Languages, chance: Random
) -> list[tuple[Span, str]]:
    """Draws terms of a pair: their spans in the source, in order, and their targets.

    Half of the targets are in the basic form.
    """
    units = aligned_terms(pair, lexicon)
    chance.shuffle(units)
    terms: list[tuple[Span, str]] = []
    for (begin, end), (first, last) in units[: chance.randint(1, _MOST_TERMS)]:
        target = pair[1][first:last]
        if chance.random() < 0.5 and " " not in target:
            target = lemma(target, languages[1])
        terms.append(((begin, end), target))
    return sorted(terms)


def _learn(
    rows: Dataset, split: Callable[[str], tuple[str, str, str]]
) -> dict[Languages, WordLexicon]:
    """Learns the lexicon of each direction from some of its pairs, always the same ones."""
    count = min(len(rows), 8 * _LEARNT_FROM)
    pairs: dict[Languages, list[tuple[str, str]]] = {}
    drawn = rows.select(drawn_rows(len(rows), count / len(rows)))
    for batch in drawn.iter(1000):
        of_languages = languages_of(batch, len(batch["source"]))
        of_rows = zip(batch["source"], batch["target"], of_languages, strict=True)
        for source, target, languages in of_rows:
            of_direction = pairs.setdefault(languages, [])
            if len(of_direction) < _LEARNT_FROM:
                of_direction.append((split(source)[1], target))
    return {languages: WordLexicon(some) for languages, some in pairs.items()}


def aligned_terms(pair: tuple[str, str], lexicon: WordLexicon) -> list[tuple[Span, Span]]:
    """Finds parts of a source and of a target, of a few words, that translate each other."""
    spans = [words.spans(text) for text, words in zip(pair, lexicon.sides, strict=True)]
    if not all(spans):
        return []
    kept = [kept_spans(text) for text in pair]
    agreements = lexicon.agreements(pair)
    links = agreements >= _LINKED
    lonely = ~links.any(1), ~links.any(0)
    units = []
    for ranges in _blocks(agreements, links):
        if all(map(_is_term, pair, spans, ranges, lexicon.sides, lonely, kept)):
            source, target = (
                (of_side[words[0]][0], of_side[words[-1]][1])
                for words, of_side in zip(ranges, spans, strict=True)
            )
            units.append((source, target))
    return units


def _is_term(
    text: str,
    spans: Sequence[Span],
    indices: range,
    words: Words,
    lonely: NDArray[np.bool_],
    kept: Sequence[Span],
) -> bool:
    """Returns whether some words of a text are a term: letters alone, and not all of them common.

    They are none if a word beside them has no link, since it may belong to the term.
    """
    names = [text[slice(*span)] for span in spans]
    matters = [
        len(name) >= (3 if is_spaced_script_at(name, 1) else 2) and name.lower() not in words.common
        for name in names
    ]
    beside = [index for index in (indices.start - 1, indices.stop) if 0 <= index < len(names)]
    begin, end = spans[indices[0]][0], spans[indices[-1]][1]
    return (
        _TERM.fullmatch(text, begin, end) is not None
        and any(matters[index] for index in indices)
        and not any(lonely[index] and matters[index] for index in beside)
        and not meets((begin, end), kept)
    )


def _blocks(agreements: Floats, links: NDArray[np.bool_]) -> Iterator[tuple[range, range]]:
    """Yields ranges of source and target words that are linked with nothing outside of them."""
    # Which source words are linked through others: twice as far each time, up to 100 words.
    together = np.eye(len(links), dtype=np.int64) + links @ links.T.astype(np.int64)
    for _ in range(7):
        together = together.clip(max=1) @ together.clip(max=1)
    for first, of_word in enumerate(together > 0):
        sides = of_word.nonzero()[0], links[of_word].any(0).nonzero()[0]
        if (
            sides[0][0] == first
            and all(0 < len(side) <= _LONGEST for side in sides)
            and all(side[-1] - side[0] < len(side) for side in sides)
            and agreements[np.ix_(*sides)].max() >= _SURE
        ):
            source, target = (range(side[0], side[-1] + 1) for side in sides)
            yield source, target
