"""Scores the model of a training: it translates texts of a split as the saved model will."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import INFO
from random import Random
from typing import Any, Self

from accelerate.utils import gather_object
from datasets import Dataset, DatasetDict
from transformers.utils import logging

from vanilla_transformer.batches.token_budget import token_lengths
from vanilla_transformer.columns import languages_of_rows, references_of
from vanilla_transformer.data.near_twins import TWIN, WITHOUT_TWINS
from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.progress import Progress, shows_bars
from vanilla_transformer.run.plan import RunPlan
from vanilla_transformer.training.metrics import GenerationMetrics, Scored
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer

logger = logging.get_logger(__name__)

_TEXTS_PER_PART = 128
"""Texts that are translated between two updates of the progress: seconds on a slow processor."""


@dataclass(frozen=True)
class ScoredTexts:
    """The texts of a split that are translated and scored."""

    plan: RunPlan
    split: str
    rows: Dataset
    encoded: Dataset
    tokenizers: list[str]  # sacrebleu's, for each text

    @classmethod
    def of(cls, plan: RunPlan, encoded: DatasetDict, split: str, most: int | None = None) -> Self:
        """Returns all texts of a split, or a sample of at most `most`, which is always the same."""
        rows, tokenizers = plan.texts.splits[split], plan.score_tokenizers[split]
        whole = cls(plan, split, rows, encoded[split], tokenizers)
        if most is None or most >= len(rows):
            return whole
        return whole.select(sorted(Random(0).sample(range(len(rows)), most)))

    def select(self, indices: Sequence[int]) -> Self:
        """Returns the texts with these indices."""
        return replace(
            self,
            rows=self.rows.select(indices),
            encoded=self.encoded.select(indices),
            tokenizers=[self.tokenizers[index] for index in indices],
        )

    def make_scorer(self, with_intervals: bool = False) -> GenerationMetrics:
        """Returns the `compute_metrics` of a Trainer for these texts."""
        languages = languages_of_rows(self.rows)
        pairs = [f"{source}-{target}" if source and target else "" for source, target in languages]
        groups: list[Sequence[str]] = [pairs]
        if self.plan.arguments.data.corpora and "corpus" in self.rows.column_names:
            groups.insert(0, list(self.rows["corpus"]))
        if TWIN in self.rows.column_names:
            groups.append(["" if is_twin else WITHOUT_TWINS for is_twin in self.rows[TWIN]])
        return GenerationMetrics(
            self.plan.texts.tokenizer,
            self.plan.metrics,
            references_of(self.rows),
            self.tokenizers,
            groups,
            self._score,
            with_intervals,
        )

    def _score(self, trainer: TokenBudgetSeq2SeqTrainer, scorer: GenerationMetrics) -> Scored:
        """Scores the model of a training; each process translates a share with its whole model."""
        rank, world, count = trainer.args.process_index, trainer.args.world_size, len(self.rows)
        share = self.select(range(rank, count, world))._translate(trainer)
        shares = gather_object([share]) if world > 1 else [share]  # in the order of the processes
        outputs = [shares[index % world][index // world] for index in range(count)]
        special = set(scorer.tokenizer.all_special_tokens)
        lengths = [sum(token not in special for token in output.tokens) for output in outputs]
        return replace(scorer.score([output.text for output in outputs], lengths), outputs=outputs)

    def _translate(self, trainer: TokenBudgetSeq2SeqTrainer) -> dict[int, Translation]:
        """Translates the texts; returns the outputs by the indices of their sources.

        As long as the training goes on, the search is greedy and outputs are cut off at about twice
        the length of their references (see `Search.capped_by_reference_length`): all scores that
        choose the best checkpoint are of this kind. After the training, outputs of the validation
        have the features that a calibration needs.
        """
        tokenizer: Any = self.plan.texts.tokenizer
        translator = Translator.from_model(trainer.model, tokenizer, copies_weights=True)
        is_over, languages = not trainer.is_in_train, languages_of_rows(self.rows)
        request = TranslateOptions.of(
            src_lang=[source for source, _ in languages],
            tgt_lang=[target for _, target in languages],
            return_tokens=True,
            return_scores=is_over and self.split == "validation",
            keep=is_over,
            num_beams=None if is_over else 1,
        )
        job = translator.plan(list(self.rows["source"]), request)
        lengths = token_lengths(self.encoded, "labels").tolist()
        jobs = _in_order(job) if is_over else _by_length(job, lengths)
        outputs: dict[int, Translation] = {}
        is_shown = trainer.is_world_process_zero() and not trainer.args.disable_tqdm
        is_shown = is_shown and (shows_bars() or logger.isEnabledFor(INFO))
        with (
            _without_mixed_precision(trainer),
            Progress(len(self.rows), "texts", work="Scoring", shown=is_shown) as progress,
        ):
            for part, indices in jobs:
                rows = translator.run(part, lambda count: progress.update(len(outputs) + count))
                outputs.update((index, row[0]) for index, row in zip(indices, rows, strict=True))
                progress.update(len(outputs))
        return outputs


def _in_order(job: Job) -> Iterator[tuple[Job, Sequence[int]]]:
    """Yields the texts in their order: the time of the first parts then foretells that of all."""
    order = range(len(job.texts))
    for first in order[::_TEXTS_PER_PART]:
        part = order[first : first + _TEXTS_PER_PART]
        yield job.select(part), part


def _by_length(job: Job, lengths: Sequence[int]) -> Iterator[tuple[Job, Sequence[int]]]:
    """Yields groups of texts with references of similar length, each with a search that fits it.

    An output without an end is not computed again: a model that begins to learn has many.
    """
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(int(length).bit_length(), []).append(index)
    for group in groups.values():
        longest = max(lengths[index] for index in group)
        search = job.call.search.capped_by_reference_length(longest)
        call = replace(job.call, search=search, has_optional_retries=False)
        yield replace(job.select(group), call=call), group


@contextmanager
def _without_mixed_precision(trainer: TokenBudgetSeq2SeqTrainer) -> Iterator[None]:
    """Takes away the `forward` of Accelerate, so that the model computes as a saved model does."""
    attributes = vars(trainer.model)
    replaced = attributes.pop("forward", None) if trainer.accelerator.native_amp else None
    try:
        yield
    finally:
        if replaced is not None:
            attributes["forward"] = replaced
