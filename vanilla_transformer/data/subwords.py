"""Subword regularisation: in each epoch, words of the training text fall into other subwords.

`tokenizers` can sample too, but from a generator that cannot be seeded, so a run could not be
repeated or resumed. Here the distributions of the papers are drawn from a seed.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from random import Random
from typing import Any

import torch
from datasets import Dataset
from torch.utils import data
from transformers import (
    PreTrainedTokenizerBase,
)

Segmenter = Callable[[str, Random], list[str]]
"""Cuts a word, without spaces, into tokens of the vocabulary."""


class BpeDropout:
    """Cuts words by byte-pair encoding that leaves out merges (Provilkov et al. 2020, §3.1).

    Of the merges that a word allows at a moment each is left out with probability `dropout`; the
    earliest of the others is made, until none is left.

    Args:
        merges: Pairs of tokens, the first learned first.
        dropout: Probability, 0.1 in the paper. 0: plain encoding; 1: single characters.
    """

    def __init__(self, merges: Sequence[Sequence[str]], dropout: float) -> None:
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self.dropout = dropout

    def __call__(self, word: str, rng: Random) -> list[str]:
        """Cuts a word into tokens."""
        tokens = list(word)
        while places := self._places(tokens, rng):
            _, place = min(places)
            tokens[place : place + 2] = [tokens[place] + tokens[place + 1]]
        return tokens

    def _places(self, tokens: list[str], rng: Random) -> list[tuple[int, int]]:
        """Returns (rank, place) of each merge that is possible and not left out."""
        possible = ((self.ranks.get(pair), place) for place, pair in enumerate(pairwise(tokens)))
        return [
            (rank, place)
            for rank, place in possible
            if rank is not None and rng.random() >= self.dropout
        ]


class UnigramSampling:
    """Cuts words at random by their unigram probability to the power `alpha` (Kudo 2018, §3.2).

    All segmentations of a word take part (the paper's l = ∞), by forward filtering and backward
    sampling over its lattice.

    Args:
        scores: Log-probability of each token, in nats.
        alpha: Smoothness: 0.1 to 0.5 in the paper; 0 makes all segmentations equally likely, and
            large values leave the likeliest.
    """

    def __init__(self, scores: dict[str, float], alpha: float) -> None:
        self.scores = {token: alpha * score for token, score in scores.items()}
        self.longest = max(map(len, scores), default=0)

    def __call__(self, word: str, rng: Random) -> list[str]:
        """Cuts a word, of known characters, into tokens."""
        sums = [0.0]  # log of the sum of the weights of all segmentations of each beginning
        for stop in range(1, len(word) + 1):
            sums.append(_log_sum([weight for _, weight in self._last_tokens(word, stop, sums)]))
        tokens, stop = [], len(word)
        while stop:
            choices = list(self._last_tokens(word, stop, sums))
            weights = [math.exp(weight - sums[stop]) for _, weight in choices]
            start = rng.choices([start for start, _ in choices], weights)[0]
            tokens.append(word[start:stop])
            stop = start
        return tokens[::-1]

    def _last_tokens(self, word: str, stop: int, sums: list[float]) -> Iterator[tuple[int, float]]:
        """Yields (start, log weight) of each token that can end the beginning word[:stop]."""
        for start in range(max(0, stop - self.longest), stop):
            score = self.scores.get(word[start:stop])
            if score is not None and sums[start] > -math.inf:
                yield start, sums[start] + score


def _log_sum(values: list[float]) -> float:
    if not values:
        return -math.inf
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


class SubwordSampler:
    """Encodes texts of one side by a tokenizer, with the words cut at random.

    Normalisation, the split into words, added tokens, special tokens and words with unknown
    characters are the tokenizer's own.

    Args:
        tokenizer: A fast tokenizer.
        side: "source" or "target".
        bpe_dropout: For a vocabulary of byte pairs.
        unigram_alpha: For a unigram vocabulary.
        max_length: Most tokens of a text, special ones included; None: no limit.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        side: str,
        bpe_dropout: float | None = None,
        unigram_alpha: float | None = None,
        max_length: int | None = None,
    ) -> None:
        _check_numbers(bpe_dropout, unigram_alpha)
        self.tokenizer, self.max_length = tokenizer, max_length
        self.argument = {"source": "text", "target": "text_target"}[side]
        backend: Any = _backend(tokenizer, side)
        description = json.loads(backend.to_str())
        model = description["model"]
        unknown, self.segment = _segmenter(description, bpe_dropout, unigram_alpha)
        self.ids = {token: backend.token_to_id(token) for token in _vocabulary(model)}
        added = {token["id"] for token in description["added_tokens"]}
        self.kept = added | {backend.token_to_id(unknown) if unknown else -1}

    @property
    def active(self) -> bool:
        """Whether an option was given for this kind of vocabulary."""
        return self.segment is not None

    def __call__(self, text: str, rng: Random) -> list[int]:
        """Returns the token ids of a text, special tokens included.

        Args:
            text: To encode.
            rng: Where chance comes from.
        """
        options: dict[str, Any] = {self.argument: text}
        encoding = self.tokenizer(**options, truncation=False, verbose=False).encodings[0]
        special = encoding.special_tokens_mask
        head = special.index(0) if 0 in special else 0
        tail = len(special) - (special[::-1].index(0) if 0 in special else len(special))
        ids: list[int] = []
        rows = zip(
            encoding.word_ids[head:tail],
            encoding.tokens[head:tail],
            encoding.ids[head:tail],
            strict=True,
        )
        for _, word in groupby(rows, key=lambda row: row[0]):
            ids += self._word(list(word), rng)
        ends = encoding.ids[:head], encoding.ids[tail:]
        if self.max_length is not None:
            ids = ids[: max(0, self.max_length - len(ends[0]) - len(ends[1]))]
        return [*ends[0], *ids, *ends[1]]

    def _word(self, rows: list[tuple[Any, str, int]], rng: Random) -> list[int]:
        plain = [number for _, _, number in rows]
        if self.segment is None or not self.kept.isdisjoint(plain):
            return plain
        tokens = self.segment("".join(token for _, token, _ in rows), rng)
        if not all(token in self.ids for token in tokens):
            return plain
        return [self.ids[token] for token in tokens]


class SampledSubwords(data.Dataset[dict[str, list[int]]]):
    """Training pairs that are encoded anew, with other subwords, in each epoch.

    What a pair becomes is a function of (seed, epoch, index) alone, so a resumed run and any number
    of workers or processes see the same. Give the Trainer a `SubwordEpochs` of it too. `max_tokens`
    counts the tokens without sampling: batches get larger by what sampling adds.

    Args:
        texts: With the columns "source" and "target".
        unsampled: The same rows as token ids, as `encode` makes them.
        tokenizer: Of the model.
        bpe_dropout: Probability that a merge is left out, for vocabularies of byte pairs.
        unigram_alpha: Smoothness of the sampling, not negative, for unigram vocabularies.
        sides: Which texts are sampled: "both", "source" or "target".
        seed: Of the run.
        max_source_length: Most tokens of a source; None: no limit.
        max_target_length: The same for a target.

    Raises:
        ValueError: If a number is out of range, an option fits none of the sampled vocabularies, or
            the two data sets differ in length.
    """

    def __init__(
        self,
        texts: Dataset,
        unsampled: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        *,
        bpe_dropout: float | None = None,
        unigram_alpha: float | None = None,
        sides: str = "both",
        seed: int = 0,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
    ) -> None:
        if len(texts) != len(unsampled):
            raise ValueError(f"There are {len(texts)} texts and {len(unsampled)} encoded pairs.")
        self.texts, self.unsampled, self.seed = texts, unsampled, seed
        limits = {"source": max_source_length, "target": max_target_length}
        chosen = {"both": ("source", "target")}.get(sides, (sides,))
        if not set(chosen) <= set(limits):
            raise ValueError(f"`sides` is {sides!r}: choose both, source or target.")
        self.samplers = {
            side: SubwordSampler(tokenizer, side, bpe_dropout, unigram_alpha, limits[side])
            for side in chosen
        }
        _check_fit(self.samplers, bpe_dropout, unigram_alpha)
        # shared, because workers that outlive an epoch hold a copy of everything else
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch, counted from 0, whose subwords come next."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row, texts = self.unsampled[index], self.texts[index]
        for side, name in (("source", "input_ids"), ("target", "labels")):
            if side in self.samplers and self.samplers[side].active:
                rng = Random(f"{self.seed} {self._epoch.item()} {index} {side}")
                row[name] = self.samplers[side](texts[side], rng)
        return {
            "input_ids": row["input_ids"],
            "attention_mask": [1] * len(row["input_ids"]),
            "labels": row["labels"],
        }


def _backend(tokenizer: PreTrainedTokenizerBase, side: str) -> Any:
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} has no vocabulary of `tokenizers` to sample.")
    of_side = getattr(tokenizer, "_backend_of", None)  # this package's, with a vocabulary per side
    return of_side(side) if of_side else getattr(tokenizer, "backend_tokenizer", None)


def _segmenter(
    backend: dict[str, Any], bpe_dropout: float | None, unigram_alpha: float | None
) -> tuple[str | None, Segmenter | None]:
    """Returns the unknown token, and how words are cut; None: as without sampling."""
    model, added = backend["model"], {token["content"] for token in backend["added_tokens"]}
    if model["type"] == "BPE" and bpe_dropout is not None:
        affixes = ("continuing_subword_prefix", "end_of_word_suffix")
        if given := [name for name in affixes if model.get(name)]:
            raise ValueError(f"BPE-dropout cannot sample a vocabulary with {', '.join(given)}.")
        return model.get("unk_token"), BpeDropout(model["merges"], bpe_dropout)
    if model["type"] == "Unigram" and unigram_alpha is not None:
        unknown = model.get("unk_id")
        scores = {token: score for token, score in model["vocab"] if token not in added}
        return (
            None if unknown is None else model["vocab"][unknown][0],
            UnigramSampling(scores, unigram_alpha),
        )
    return None, None


def _vocabulary(model: dict[str, Any]) -> list[str]:
    if model["type"] == "Unigram":
        return [token for token, _ in model["vocab"]]
    return list(model["vocab"])


def _check_numbers(bpe_dropout: float | None, unigram_alpha: float | None) -> None:
    if bpe_dropout is not None and not 0 <= bpe_dropout <= 1:
        raise ValueError(f"`bpe_dropout` is {bpe_dropout}: it is a probability, e.g. 0.1.")
    if unigram_alpha is not None and unigram_alpha < 0:
        raise ValueError(f"`unigram_alpha` is {unigram_alpha}: it must not be negative, e.g. 0.2.")


def _check_fit(
    samplers: dict[str, SubwordSampler], bpe_dropout: float | None, unigram_alpha: float | None
) -> None:
    kinds = {type(sampler.segment) for sampler in samplers.values()}
    options = {
        "bpe_dropout": (bpe_dropout, BpeDropout, "bpe or byte_bpe"),
        "unigram_alpha": (unigram_alpha, UnigramSampling, "unigram"),
    }
    if bpe_dropout is None and unigram_alpha is None:
        raise ValueError("Nothing is sampled: give `bpe_dropout` or `unigram_alpha`.")
    for name, (value, kind, needed) in options.items():
        if value is not None and kind not in kinds:
            raise ValueError(
                f"`{name}` is {value}, but no sampled vocabulary is of the kind {needed}: leave it "
                "out, or train another tokenizer."
            )
