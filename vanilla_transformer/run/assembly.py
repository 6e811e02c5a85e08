"""The working parts of a run, made by its plan: token ids, model, Trainer, scorers."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self

import torch
from datasets import Dataset, DatasetDict
from transformers import DataCollatorForSeq2Seq, PrinterCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from vanilla_transformer.batches.encoding import RowDirections
from vanilla_transformer.batches.subwords import SampledSubwords
from vanilla_transformer.files.loading import load_tokenizer, load_weights
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.progress import tells_all
from vanilla_transformer.run.adapters import add_adapters
from vanilla_transformer.run.encoded_data import encode_texts
from vanilla_transformer.run.options import ModelArguments
from vanilla_transformer.run.plan import PREFIXES, RunPlan
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.run.tokenizer_and_config import first_difference
from vanilla_transformer.run.training_scores import ScoredTexts
from vanilla_transformer.training.callbacks import CompletePushes, SubwordEpochs
from vanilla_transformer.training.metrics import GenerationMetrics, Scored
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.objectives import Teachers
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_log import TrainingLog

SCORED_WITHIN_MINUTES = 200
"""Largest number of texts in an evaluation within a run of given minutes; chosen, not measured."""


@dataclass(frozen=True)
class Assembly:
    """A run whose token ids, model and Trainer are made."""

    plan: RunPlan
    encoded: DatasetDict
    trainer: TokenBudgetSeq2SeqTrainer

    @classmethod
    def of(cls, plan: RunPlan) -> Self:
        """Makes token ids, model and Trainer of a plan."""
        encoded = compute_on_main_process(plan.training, encode_texts, plan)
        set_seed(plan.training.seed)
        return cls(plan, encoded, make_trainer(plan, encoded, make_model(plan)))

    def score(
        self, split: str, most: int | None = None
    ) -> tuple[Dataset, Scored | None, dict[str, float]]:
        """Scores the model on a split, or on a sample of at most `most` texts.

        Returns:
            The texts, their scores (None: only the loss was computed) and all figures.
        """
        texts = ScoredTexts.of(self.plan, self.encoded, split, most)
        scorer = texts.make_scorer(with_intervals=True)
        with self._scored_by(scorer):
            figures = self.trainer.evaluate(texts.encoded, metric_key_prefix=PREFIXES[split])
        return texts.rows, scorer.last, figures

    def seconds_per_text(self, split: str, most: int, with_intervals: bool) -> float:
        """Times the scores of a sample of at most `most` texts, whose figures are not logged."""
        texts = ScoredTexts.of(self.plan, self.encoded, split, most)
        with self._scored_by(texts.make_scorer(with_intervals)):
            began = monotonic()
            self.trainer.evaluation_loop(self.trainer.get_eval_dataloader(texts.encoded), "Timing")
            return (monotonic() - began) / len(texts.rows)

    @contextmanager
    def _scored_by(self, scorer: GenerationMetrics) -> Iterator[None]:
        """Scores with another `compute_metrics` until the block ends."""
        usual = self.trainer.compute_metrics
        self.trainer.compute_metrics = scorer
        try:
            yield
        finally:
            self.trainer.compute_metrics = usual


def make_model(plan: RunPlan) -> Any:
    """Loads the weights that the run starts from, or initialises a new model.

    The generation config of the model holds the search of the run.
    """
    rank, config = plan.arguments.model.lora_rank, deepcopy(plan.texts.config)
    if plan.loaded.init_from is None or (rank is not None and plan.checkpoint is not None):
        # Where a checkpoint has adapters beside the weights, Trainer loads both.
        model: Any = VanillaTransformerForConditionalGeneration(config)
    else:  # half precision would lose small changes of the weights
        model = load_weights(plan.loaded.init_from, config=config, dtype=torch.float32)
    if rank is not None:
        add_adapters(model, rank, plan.arguments.model.lora_embeddings)
    model.set_attn_implementation(plan.attention)
    model.generation_config = plan.search.to_save()
    return model


def make_trainer(plan: RunPlan, encoded: DatasetDict, model: Any) -> TokenBudgetSeq2SeqTrainer:
    """Makes the Trainer of a run with its callbacks."""
    tokenizer, training, options = plan.texts.tokenizer, plan.training, plan.arguments.model
    rows, scored, scorer = _training_rows(plan, encoded["train"]), None, None
    if "validation" in encoded:
        most = None if options.minutes is None else SCORED_WITHIN_MINUTES
        scored = ScoredTexts.of(plan, encoded, "validation", most)
        scorer = scored.make_scorer()
    trainer = TokenBudgetSeq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=rows,
        eval_dataset=scored and scored.encoded,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=scorer,
        callbacks=[CompletePushes()] if training.push_to_hub else None,
        mixture=plan.loaded.mixture(training.order_seed),
        teachers=_load_teachers(options, tokenizer, model, training.device),
        inputs=plan.fingerprint(encoded),
    )
    trainer.remove_callback(PrinterCallback if training.disable_tqdm else DEFAULT_PROGRESS_CALLBACK)
    if tells_all():
        trainer.add_callback(PrinterCallback)
    sources = scored.rows["source"] if scored else []
    trainer.add_callback(TrainingLog(trainer, scorer, sources, options.show_examples))
    if options.ema_decay is not None:
        trainer.add_callback(ExponentialMovingAverage(options.ema_decay))
    if isinstance(rows, SampledSubwords):
        trainer.add_callback(SubwordEpochs(rows))
    return trainer


def _training_rows(plan: RunPlan, encoded: Dataset) -> Any:
    """Returns the token ids of the training, or with `bpe_dropout` rows that draw new ones."""
    if (bpe_dropout := plan.arguments.subwords.bpe_dropout) is None:
        return encoded
    return SampledSubwords(
        plan.texts.splits["train"],
        encoded,
        plan.texts.tokenizer,
        bpe_dropout=bpe_dropout,
        seed=plan.training.order_seed,
        max_source_length=plan.max_source_length,
        max_target_length=plan.max_target_length,
        directions=RowDirections(plan.texts.tokenizer, plan.search.settings),
    )


def _load_teachers(
    options: ModelArguments, tokenizer: Any, student: Any, device: Any
) -> Teachers | None:
    """Loads the models that the options name as teachers; None: they name none."""
    teachers = []
    for path in options.teacher or ():
        difference = first_difference(tokenizer, load_tokenizer(path))
        teachers.append(load_weights(path).to(device))
        for name in ("decoder_start_token_id", "vocab_size", "decoder_vocab_size"):
            ours, theirs = getattr(student.config, name), getattr(teachers[-1].config, name)
            if difference is None and ours != theirs:
                difference = f"`{name}` is {ours} and {theirs}"
        if difference is not None:
            raise ValueError(
                f"`teacher` {path!r} has another tokenizer than this training ({difference}): "
                f"give `--tokenizer-name-or-path {path}`, or teachers with the same tokenizer."
            )
    return Teachers(teachers, options.teacher_weight) if teachers else None
