"""An index that finds texts with nearly the same words in nearly the same order.

The similarity of two texts is 1 less Levenshtein's distance in words, as a share of the longer one.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extract

# Of 600 texts, 142 have a pair of similarity 0.4 or more among 146,000 pairs of programs. For 2 of
# the 142, the most similar pair is not among the 512 that share the most words; for 10, it is not
# among 32. A search takes 1.5 ms a text with 512 pairs, and 2.9 ms with all.
_MOST_COMPARED = 512


class WordIndex:
    """An inverted index of words, in arrays, so that a million texts fit into memory."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts_of: list[array[int]] = []  # by the id of a word
        self._words = array("I")  # of all texts, one after the other
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, words: Sequence[str]) -> None:
        """Adds a text under the next number. A text without words is never found."""
        ids = [self._ids.setdefault(word, len(self._ids)) for word in words]
        self._texts_of += [array("I") for _ in range(len(self._ids) - len(self._texts_of))]
        for word in set(ids):
            self._texts_of[word].append(len(self))
        self._words.extend(ids)
        self._ends.append(len(self._words))

    def find(self, words: Sequence[str], least: float) -> list[tuple[int, float]]:
        """Returns the numbers and similarities of texts that have at least a similarity.

        The most similar come first; of equally similar texts, the latest.
        """
        size = len(words)
        ids = [self._ids.get(word, len(self._ids)) for word in words]
        shared = np.zeros(len(self), np.uint32)
        for word, count in Counter(ids).items():
            if word < len(self._texts_of):
                shared[np.frombuffer(self._texts_of[word], np.uint32)] += count
        # A bound of the similarity that needs no order of words leaves few texts to compare.
        found = np.flatnonzero(shared >= max(least * size, 1))
        if not len(found):
            return []
        ends = np.frombuffer(self._ends, np.uint64).astype(np.int64, copy=False)
        sizes = ends[found + 1] - ends[found]
        most = np.minimum(shared[found], sizes) / np.maximum(sizes, size)
        order = np.lexsort((-found, -most))[:_MOST_COMPARED]
        found = found[order][most[order] >= least]
        stored = np.frombuffer(self._words, np.uint32)
        rows = [np.array(ids, np.uint32), *(stored[ends[n] : ends[n + 1]] for n in found)]
        # Words as characters, numbered anew: rapidfuzz compares texts fastest.
        _, numbers = np.unique(np.concatenate(rows), return_inverse=True)
        characters = iter(numbers.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass"))
        text, *texts = ("".join(islice(characters, len(row))) for row in rows)
        similar = extract(
            text,
            dict(zip(found.tolist(), texts, strict=True)),
            scorer=Levenshtein.normalized_similarity,
            processor=None,
            limit=None,
            score_cutoff=least - 1e-5,  # rapidfuzz leaves out a score that is equal to it
        )
        return sorted(
            ((number, similarity) for _, similarity, number in similar),
            key=lambda row: (-row[1], -row[0]),
        )
