"""Cuts words into subwords at random: BPE-dropout and unigram sampling.

`tokenizers` can sample too, but its generator cannot be seeded, so a run could not be repeated or
resumed. Here the distributions of the papers are drawn from a given generator.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random

_PIECE = 250  # characters

Segmenter = Callable[[str, Random], list[str]]
"""Cuts a word, without spaces, into tokens of the vocabulary."""


class BpeDropout:
    """Cuts words by byte-pair encoding with dropout of merges (Provilkov et al. 2020, §3.1).

    At each step, each merge that the word allows is dropped with probability `dropout`, and the
    remaining merge that was learned first is made. It ends when no merge remains. The time grows
    with the square of the length, so pieces of 250 characters of longer words are cut one by one.

    Args:
        merges: Pairs of tokens, in the order in which they were learned.
        dropout: Probability; 0.1 in the paper. 0: plain byte-pair encoding; 1: single characters.
    """

    def __init__(self, merges: Sequence[Sequence[str]], dropout: float) -> None:
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self.dropout = dropout

    def __call__(self, word: str, rng: Random) -> list[str]:
        """Cuts a word into tokens."""
        pieces = (word[start : start + _PIECE] for start in range(0, len(word), _PIECE))
        return [token for piece in pieces for token in self._cut_piece(piece, rng)]

    def _cut_piece(self, word: str, rng: Random) -> list[str]:
        tokens = list(word)
        while merges := self._draw_merges(tokens, rng):
            _, start = min(merges)
            tokens[start : start + 2] = [tokens[start] + tokens[start + 1]]
        return tokens

    def _draw_merges(self, tokens: list[str], rng: Random) -> list[tuple[int, int]]:
        """Returns (rank, start) of each merge that is possible and not dropped."""
        possible = ((self.ranks.get(pair), start) for start, pair in enumerate(pairwise(tokens)))
        return [
            (rank, start)
            for rank, start in possible
            if rank is not None and rng.random() >= self.dropout
        ]


class UnigramSampling:
    """Samples segmentations of words by unigram probability to the power `alpha` (Kudo 2018, §3.2).

    The sample is drawn from all segmentations of a word (l = ∞ in the paper), by forward filtering
    and backward sampling over its lattice.

    Args:
        scores: Log-probability of each token, in nats.
        alpha: Smoothness; 0.1 to 0.5 in the paper. 0: all segmentations are equally likely. Large
            values: only the likeliest segmentation remains.
    """

    def __init__(self, scores: dict[str, float], alpha: float) -> None:
        self.scores = {token: alpha * score for token, score in scores.items()}
        self.longest = max(map(len, scores), default=0)

    def __call__(self, word: str, rng: Random) -> list[str]:
        """Cuts a word of known characters into tokens."""
        sums = [0.0]  # log of the total weight of all segmentations of each prefix of the word
        for stop in range(1, len(word) + 1):
            sums.append(_log_sum_exp([weight for _, weight in self._last_tokens(word, stop, sums)]))
        tokens, stop = [], len(word)
        while stop:
            choices = list(self._last_tokens(word, stop, sums))
            weights = [math.exp(weight - sums[stop]) for _, weight in choices]
            start = rng.choices([start for start, _ in choices], weights)[0]
            tokens.append(word[start:stop])
            stop = start
        return tokens[::-1]

    def _last_tokens(self, word: str, stop: int, sums: list[float]) -> Iterator[tuple[int, float]]:
        """Yields (start, log weight) of each token that can end the prefix word[:stop]."""
        for start in range(max(0, stop - self.longest), stop):
            score = self.scores.get(word[start:stop])
            if score is not None and sums[start] > -math.inf:
                yield start, sums[start] + score


def _log_sum_exp(values: list[float]) -> float:
    if not values:
        return -math.inf
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))
