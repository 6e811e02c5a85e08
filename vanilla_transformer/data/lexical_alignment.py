"""Which words of pairs of texts translate each other, learnt from the pairs alone."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer, models, trainers

from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.lexicon import Floats, Ints, Lexicon
from vanilla_transformer.text.words import letter_runs

_COMMON, _SHARE_OF_COMMON = 30, 0.01  # the most frequent words, most of which mean little alone
_MOST_WORDS = 100  # of a text; the rest is not aligned
_SEGMENTS = 8000  # words of a script without spaces

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


class WordLexicon:
    """The probabilities that words of some pairs of texts translate each other."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        sources, targets = zip(*pairs, strict=True)
        self.sides = Words(sources), Words(targets)
        numbers = [self._numbers(pair) for pair in pairs]
        self._lexicon = Lexicon(numbers, len(self.sides[1].numbers))

    def agreements(self, pair: tuple[str, str]) -> Floats:
        """Returns how much each word of a source belongs to each of its target.

        Returns:
            Numbers from 0 to 1, of shape (source words, target words).
        """
        return self._lexicon.agreements([self._numbers(pair)])[0]

    def _numbers(self, pair: tuple[str, str]) -> tuple[Ints, Ints]:
        return self.sides[0].ids(pair[0]), self.sides[1].ids(pair[1])
