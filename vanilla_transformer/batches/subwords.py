"""Subword regularisation: training pairs whose words are cut into other subwords in each epoch.

`tokenizers` can sample too, but its generator cannot be seeded, so a run could not be repeated or
resumed. Here the distribution of the paper is drawn from a given generator.
"""

import json
from collections.abc import Sequence
from itertools import groupby, pairwise
from random import Random
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from torch.utils import data
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.batches.encoding import RowDirections
from vanilla_transformer.columns import LINKS
from vanilla_transformer.model.directions import in_language
from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.token_words import without_first_word
from vanilla_transformer.text.word_alignment import links_of_tokens, parse_links
from vanilla_transformer.text.words import words_of_spans
from vanilla_transformer.tokenizer_sides import call_tokenizer

_PIECE = 250  # characters


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


# Data ---------------------------------------------------------------------------------------------


class SubwordSampler:
    """Encodes the texts of one side with random subwords.

    The tokenizer still decides on normalisation, the split into words, added tokens, special tokens
    and words with unknown characters.

    Args:
        bpe_dropout: See `BpeDropout`. Vocabularies of other kinds are not sampled.
        max_length: Largest number of tokens of a text, special tokens included. None: no limit.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        side: str,
        bpe_dropout: float,
        max_length: int | None = None,
    ) -> None:
        self.tokenizer, self.side, self.max_length = tokenizer, side, max_length
        self._views: dict[str | None, Any] = {}
        if side == "target" and (get_target := getattr(tokenizer, "target_tokenizer", None)):
            tokenizer = get_target()  # also of a class from the code of a saved directory
        backend: Tokenizer = tokenizer.backend_tokenizer
        description = json.loads(backend.to_str())
        self.segment = _segmenter(description["model"], bpe_dropout)
        self.ids = backend.get_vocab(with_added_tokens=False)
        unknown = self.ids.get(description["model"].get("unk_token"), -1)
        self.kept = {unknown, *(token["id"] for token in description["added_tokens"])}

    def __call__(
        self, text: str, rng: Random, language: str | None = None
    ) -> tuple[list[int], list[Span]]:
        """Returns the token ids of a text, and the spans of their words.

        Args:
            language: Its code, for a tokenizer that puts a token of it beside texts.

        Returns:
            The ids, special tokens included; begin and end, in characters, of the word or sign that
            each token is a part of, empty for special tokens.
        """
        if language not in self._views:
            self._views[language] = in_language(self.tokenizer, language)
        view = self._views[language]
        encoding = call_tokenizer(view, self.side, text, truncation=False).encodings[0]
        special = encoding.special_tokens_mask
        head = special.index(0) if 0 in special else 0
        tail = len(special) - (special[::-1].index(0) if 0 in special else len(special))
        ids: list[int] = []
        spans: list[Span] = []
        rows = zip(
            encoding.word_ids[head:tail],
            encoding.tokens[head:tail],
            encoding.ids[head:tail],
            encoding.offsets[head:tail],
            strict=True,
        )
        for _, group in groupby(rows, key=lambda row: row[0]):
            word = list(group)
            sampled = self._sample_word([row[:3] for row in word], rng)
            whole = (min(row[3][0] for row in word), max(row[3][1] for row in word))
            is_plain = len(sampled) == len(word)
            ids += sampled
            spans += [row[3] for row in word] if is_plain else [whole] * len(sampled)
        ends = encoding.ids[:head], encoding.ids[tail:]
        if self.max_length is not None:
            ids = ids[: max(0, self.max_length - len(ends[0]) - len(ends[1]))]
        edges = [[(0, 0)] * len(end) for end in ends]
        return [*ends[0], *ids, *ends[1]], [*edges[0], *spans[: len(ids)], *edges[1]]

    def _sample_word(self, rows: list[tuple[int | None, str, int]], rng: Random) -> list[int]:
        """Returns the ids of a word, given the (word, token, id) rows of its plain encoding."""
        plain = [number for _, _, number in rows]
        if self.segment is None or not self.kept.isdisjoint(plain):
            return plain
        tokens = self.segment("".join(token for _, token, _ in rows), rng)
        if not all(token in self.ids for token in tokens):
            return plain
        return [self.ids[token] for token in tokens]


def _segmenter(model: dict[str, Any], dropout: float) -> BpeDropout | None:
    """Returns the sampler of a vocabulary's words; None: they are encoded without sampling."""
    if model["type"] != "BPE":
        return None
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    if unfit := [name for name in affixes if model.get(name)]:
        raise ValueError(
            f"BPE-dropout cannot sample a vocabulary with {', '.join(unfit)}: train a tokenizer of "
            "the kind bpe or byte_bpe."
        )
    return BpeDropout(model["merges"], dropout)


class SampledSubwords(data.Dataset[dict[str, list[Any]]]):
    """Training pairs that are encoded again, with other subwords, in each epoch.

    The encoding of a pair depends only on the seed, the epoch and the index. A resumed run, and any
    number of workers or processes, therefore see the same pairs. Also add the callback
    `SubwordEpochs` to the Trainer. `max_tokens` counts tokens without sampling; sampled batches are
    larger by the tokens that sampling adds.

    Args:
        texts: Pairs with the text columns "source" and "target", and optionally "alignment".
        unsampled: The same rows as token ids, the output of `encode` with the same limits.
        directions: How the model is asked for the languages of each row. None: as the rows and the
            tokenizer say.
    """

    def __init__(
        self,
        texts: Dataset,
        unsampled: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        *,
        bpe_dropout: float,
        seed: int = 0,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
        directions: RowDirections | None = None,
    ) -> None:
        assert len(texts) == len(unsampled)
        self.texts, self.unsampled, self.seed = texts, unsampled, seed
        limits = {"source": max_source_length, "target": max_target_length}
        self.directions = directions or RowDirections(tokenizer)
        self.samplers = {
            side: SubwordSampler(tokenizer, side, bpe_dropout, limit)
            for side, limit in limits.items()
        }
        if not any(sampler.segment for sampler in self.samplers.values()):
            raise ValueError(
                f"`bpe_dropout` is {bpe_dropout}, but no vocabulary is of the kind bpe or "
                "byte_bpe: leave it out, or train another tokenizer."
            )
        # In shared memory: workers that outlive an epoch hold a copy of everything else.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0, whose subwords are returned next."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, list[Any]]:
        row, texts = self.unsampled[index], self.texts[index]
        (direction,) = self.directions.of({name: [value] for name, value in texts.items()})
        texts = {**texts, "source": direction.read(texts["source"])}
        language = {"source": direction.source, "target": direction.target}
        words = []
        for side, name in (("source", "input_ids"), ("target", "labels")):
            sampler = self.samplers[side]
            if sampler.segment or LINKS in texts:  # for these, the words of all tokens are needed
                rng = Random(f"{self.seed} {self._epoch.item()} {index} {side}")  # of any worker
                row[name], spans = sampler(texts[side], rng, language[side])
                words.append(words_of_spans(texts[side], spans))
                if side == "source" and direction.tag:
                    words[-1] = without_first_word(words[-1])
        links = {}
        if LINKS in texts:
            links = {LINKS: list(links_of_tokens(parse_links(texts[LINKS]), *words))}
        return {
            "input_ids": row["input_ids"],
            "attention_mask": [1] * len(row["input_ids"]),
            "labels": row["labels"],
            **links,
        }
