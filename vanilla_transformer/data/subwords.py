"""Subword regularisation: training pairs whose words are cut into other subwords in each epoch."""

from random import Random
from typing import Any

import torch
from datasets import Dataset
from torch.utils import data
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.link_files import LINKS
from vanilla_transformer.data.segmentation import BpeDropout, UnigramSampling
from vanilla_transformer.data.subword_sampler import SubwordSampler
from vanilla_transformer.data.word_alignment import parse_links, token_links, words_of_spans


class SampledSubwords(data.Dataset[dict[str, list[Any]]]):
    """Training pairs that are encoded again, with other subwords, in each epoch.

    The encoding of a pair depends only on the seed, the epoch and the index. A resumed run, and any
    number of workers or processes, therefore see the same pairs. Also add the callback
    `SubwordEpochs` to the Trainer. `max_tokens` counts tokens without sampling; sampled batches are
    larger by the tokens that sampling adds.

    Args:
        texts: Pairs with the text columns "source" and "target", and optionally "alignment".
        unsampled: The same rows as token ids, the output of `encode`.
        tokenizer: Tokenizer of the model.
        bpe_dropout: Probability that a merge is dropped, for byte-pair vocabularies.
        unigram_alpha: Smoothness of the sampling, 0 or greater, for unigram vocabularies.
        sides: Which texts are sampled: "both", "source" or "target".
        seed: Seed of the sampling.
        max_source_length: Largest number of tokens of a source, special tokens included. None: no
            limit.
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
            raise ValueError(
                f"There are {len(texts)} texts and {len(unsampled)} encoded pairs: give the same "
                "rows twice."
            )
        self.texts, self.unsampled, self.seed = texts, unsampled, seed
        limits = {"source": max_source_length, "target": max_target_length}
        chosen = {"both": ("source", "target")}.get(sides, (sides,))
        if not set(chosen) <= set(limits):
            raise ValueError(f"`sides` is {sides!r}: choose both, source or target.")
        self.samplers = {
            side: SubwordSampler(tokenizer, side, bpe_dropout, unigram_alpha, limits[side])
            for side in chosen
        }
        _check_options_fit(self.samplers, bpe_dropout, unigram_alpha)
        if LINKS in texts.column_names:  # the words of all tokens are needed
            for side in limits.keys() - self.samplers.keys():
                self.samplers[side] = SubwordSampler(tokenizer, side, max_length=limits[side])
        # In shared memory: workers that outlive an epoch hold a copy of everything else.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0, whose subwords are returned next."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, list[Any]]:
        row, texts = self.unsampled[index], self.texts[index]
        words = []
        for side, name in (("source", "input_ids"), ("target", "labels")):
            if side in self.samplers and (self.samplers[side].active or LINKS in texts):
                rng = Random(f"{self.seed} {self._epoch.item()} {index} {side}")
                row[name], spans = self.samplers[side].sample(texts[side], rng)
                words.append(words_of_spans(texts[side], spans))
        links = {}
        if LINKS in texts:
            links = {LINKS: list(token_links(parse_links(texts[LINKS]), *words))}
        return {
            "input_ids": row["input_ids"],
            "attention_mask": [1] * len(row["input_ids"]),
            "labels": row["labels"],
            **links,
        }


def _check_options_fit(
    samplers: dict[str, SubwordSampler], bpe_dropout: float | None, unigram_alpha: float | None
) -> None:
    """Refuses an option that no sampled vocabulary can use."""
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
