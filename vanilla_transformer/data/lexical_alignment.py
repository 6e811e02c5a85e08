"""Which words of pairs of texts translate each other, learnt from the pairs alone.

Source: IBM model 1 (Brown et al. 1993, "The Mathematics of Statistical Machine Translation"), with
the preference for the diagonal of Dyer et al. 2013 ("A Simple, Fast, and Effective
Reparameterization of IBM Model 2"), learnt in both directions; a link counts as much as both agree
(Liang et al. 2006, "Alignment by Agreement").
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, trainers

from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.words import letter_runs

_ROUNDS = 5  # as in fast_align
_TENSION = 4.0  # of the diagonal, as fast_align begins with
_COMMON, _SHARE_OF_COMMON = 30, 0.01  # the most frequent words, most of which mean little alone
_MOST_WORDS = 100  # of a text; the rest is not aligned
_LEAST = 1e-100  # no share is divided by zero
_SEGMENTS = 8000  # words of a script without spaces

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LONGEST = {"katakana": 6, "joined": 3}
"""Longest word in a run of letters of a script without spaces, in characters."""


class Words:
    """Finds the words of the texts of one side, in small letters, and numbers the frequent ones.

    Letters of a script without spaces are cut into their frequent sequences, by byte-pair encoding.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        runs: dict[str, list[str]] = {}
        for text in texts:
            for begin, end, kind in letter_runs(text):
                if kind:
                    runs.setdefault(kind, []).append(text[begin:end])
        self._cutters = {}
        for kind, some in runs.items():
            trainer = trainers.BpeTrainer(
                vocab_size=_SEGMENTS, max_token_length=_LONGEST[kind], show_progress=False
            )
            self._cutters[kind] = Tokenizer(models.BPE())
            self._cutters[kind].train_from_iterator(some, trainer)
        counts = Counter(
            text[begin:end].lower() for text in texts for begin, end in self.spans(text)
        )
        self.numbers = {word: number for number, word in enumerate(counts)}
        common = min(_COMMON, int(_SHARE_OF_COMMON * len(counts)))
        self.common = {word for word, _ in counts.most_common(common)}

    def spans(self, text: str) -> list[Span]:
        """Returns where the first words of a text begin and end."""
        spans: list[Span] = []
        for begin, end, kind in letter_runs(text):
            if kind and (cutter := self._cutters.get(kind)):
                parts = cutter.encode(text[begin:end]).offsets
                spans += [(begin + first, begin + last) for first, last in parts]
            else:
                spans.append((begin, end))
        return spans[:_MOST_WORDS]

    def ids(self, text: str) -> Ints:
        """Returns the numbers of the words of a text; -1 for unknown ones."""
        words = (text[begin:end].lower() for begin, end in self.spans(text))
        return np.array([self.numbers.get(word, -1) for word in words], np.int64)


class _WordPairs(NamedTuple):
    """Each word of each source beside each word of its target.

    Attributes:
        keys: Number of the pair of words; -1 with an unknown one.
        sources: Number of the source word among the source words of all texts.
        targets: Number of the target word among the target words of all texts.
        weights: The preference for the diagonal.
    """

    keys: Ints
    sources: Ints
    targets: Ints
    weights: Floats


class Lexicon:
    """The probabilities that words of some pairs of texts translate each other."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        sources, targets = zip(*pairs, strict=True)
        self.sides = Words(sources), Words(targets)
        cells = self._word_pairs(pairs)
        self.keys, pair = np.unique(cells.keys, return_inverse=True)
        size = len(self.sides[1].numbers)
        # p(target word | source word), the other way round, and 0 for other pairs
        self.tables = [np.ones(len(self.keys) + 1), np.ones(len(self.keys) + 1)]
        for _ in range(_ROUNDS):
            for side, condition in enumerate((self.keys // size, self.keys % size)):
                counts = np.bincount(pair, self._shares(cells, pair, side), len(self.keys))
                probabilities = counts / np.bincount(condition, counts)[condition]
                self.tables[side] = np.append(probabilities, 0)

    def agreements(self, pair: tuple[str, str]) -> Floats:
        """Returns how much each word of a source belongs to each of its target.

        Returns:
            Numbers from 0 to 1, of shape (source words, target words).
        """
        cells = self._word_pairs([pair])
        shape = len(self.sides[0].spans(pair[0])), len(self.sides[1].spans(pair[1]))
        index = np.searchsorted(self.keys, cells.keys)
        known = self.keys.take(index, mode="clip") == cells.keys
        index[~known] = -1  # the last one is 0
        forth, back = (self._shares(cells, index, side) for side in (0, 1))
        return (forth * back).reshape(shape)

    def _shares(self, cells: _WordPairs, pair: Ints, side: int) -> Floats:
        """Returns the share of each source word in its target word (0), or the other way round."""
        shares = self.tables[side][pair] * cells.weights + _LEAST
        owners = cells.sources if side else cells.targets
        return shares / np.bincount(owners, shares)[owners]

    def _word_pairs(self, pairs: Iterable[tuple[str, str]]) -> _WordPairs:
        none = np.zeros(0, np.int64)
        rows = [_WordPairs(none, none, none, np.zeros(0))]
        num_sources = num_targets = 0
        size = len(self.sides[1].numbers)
        for source, target in pairs:
            s, t = self.sides[0].ids(source), self.sides[1].ids(target)
            if not (len(s) and len(t)):
                continue
            first, second = (grid.ravel() for grid in np.indices((len(s), len(t))))
            distance = np.abs((first + 0.5) / len(s) - (second + 0.5) / len(t))
            is_known = (s[first] >= 0) & (t[second] >= 0)
            rows.append(
                _WordPairs(
                    np.where(is_known, s[first] * size + t[second], -1),
                    first + num_sources,
                    second + num_targets,
                    np.exp(-_TENSION * distance),
                )
            )
            num_sources += len(s)
            num_targets += len(t)
        return _WordPairs(*map(np.concatenate, zip(*rows, strict=True)))
