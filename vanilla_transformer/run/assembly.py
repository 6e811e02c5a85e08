"""The working parts of a run, made by its plan: token ids, model, Trainer, scorers."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic
from typing import Any, Self

import torch
from datasets import Dataset, DatasetDict
from transformers import DataCollatorForSeq2Seq, PrinterCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from vanilla_transformer.batches.encoding import RowDirections
from vanilla_transformer.batches.mixing import Mixture
from vanilla_transformer.batches.subwords import SampledSubwords
from vanilla_transformer.batches.token_budget import token_lengths
from vanilla_transformer.columns import languages_of_rows, references_of
from vanilla_transformer.data.near_twins import TWIN, WITHOUT_TWINS
from vanilla_transformer.files.loading import load_weights
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.progress import tells_all
from vanilla_transformer.run.adapters import add_adapters
from vanilla_transformer.run.encoded_data import encode_texts
from vanilla_transformer.run.evaluation import score_training
from vanilla_transformer.run.loading import load_teachers
from vanilla_transformer.run.plan import PREFIXES, RunPlan
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.training.callbacks import CompletePushes, SubwordEpochs
from vanilla_transformer.training.metrics import GenerationMetrics, Scored
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_log import TrainingLog

SCORED_WITHIN_MINUTES = 200
"""Validation texts that a run of some minutes scores as it trains; chosen, not measured."""


@dataclass(frozen=True)
class EvaluatedTexts:
    """The texts of a split that are translated and scored."""

    rows: Dataset
    encoded: Dataset
    tokenizers: list[str]  # sacrebleu's, for each text

    @classmethod
    def of(cls, plan: RunPlan, encoded: DatasetDict, split: str, most: int | None = None) -> Self:
        """Takes all texts, or a sample of at most so many, which is always the same."""
        count = len(encoded[split])
        drawn = sorted(Random(0).sample(range(count), min(most or count, count)))
        tokenizers = plan.score_tokenizers[split]
        return cls(
            plan.texts.splits[split].select(drawn),
            encoded[split].select(drawn),
            [tokenizers[index] for index in drawn],
        )

    def make_scorer(
        self, plan: RunPlan, calibrates: bool, with_intervals: bool = False
    ) -> GenerationMetrics:
        """Makes the scorer of these texts.

        Args:
            calibrates: Whether outputs have what a calibration weighs.
        """
        languages = languages_of_rows(self.rows)
        groups: list[Sequence[str]] = [[f"{a}-{b}" if a and b else "" for a, b in languages]]
        if plan.arguments.data.corpora and "corpus" in self.rows.column_names:
            groups.insert(0, list(self.rows["corpus"]))
        if TWIN in self.rows.column_names:
            groups.append(["" if is_twin else WITHOUT_TWINS for is_twin in self.rows[TWIN]])
        return GenerationMetrics(
            plan.texts.tokenizer,
            plan.arguments.model.metrics,
            references_of(self.rows),
            self.tokenizers,
            groups,
            partial(
                score_training,
                sources=list(self.rows["source"]),
                reference_lengths=token_lengths(self.encoded, "labels").tolist(),
                languages=languages,
                calibrates=calibrates,
            ),
            with_intervals,
        )


@dataclass(frozen=True)
class Assembly:
    """A run whose token ids, model and Trainer are made."""

    plan: RunPlan
    encoded: DatasetDict
    trainer: TokenBudgetSeq2SeqTrainer

    @classmethod
    def of(cls, plan: RunPlan) -> Self:
        """Makes all that the run of a plan works with."""
        encoded = compute_on_main_process(plan.training, encode_texts, plan)
        set_seed(plan.training.seed)
        return cls(plan, encoded, make_trainer(plan, encoded, make_model(plan)))

    def score(
        self, split: str, most: int | None = None
    ) -> tuple[Dataset, Scored | None, dict[str, float]]:
        """Scores the model on a split, or on a sample of at most so many texts.

        Returns:
            The texts, their scores (None: only the loss was computed) and all figures.
        """
        texts = EvaluatedTexts.of(self.plan, self.encoded, split, most)
        scorer = texts.make_scorer(self.plan, split == "validation", with_intervals=True)
        self.trainer.compute_metrics = scorer
        figures = self.trainer.evaluate(texts.encoded, metric_key_prefix=PREFIXES[split])
        return texts.rows, scorer.last, figures

    def seconds_per_text(self, split: str, most: int, with_intervals: bool) -> float:
        """Times the scores of a sample; their figures are not logged."""
        texts = EvaluatedTexts.of(self.plan, self.encoded, split, most)
        self.trainer.compute_metrics = texts.make_scorer(self.plan, False, with_intervals)
        began = monotonic()
        self.trainer.evaluation_loop(self.trainer.get_eval_dataloader(texts.encoded), "Timing")
        return (monotonic() - began) / len(texts.rows)


def make_model(plan: RunPlan) -> Any:
    """Loads the weights that the run starts from, or initialises a new model.

    The generation config of the model holds the search of the run.
    """
    rank, checkpoint = plan.arguments.model.lora_rank, plan.loaded.directory.checkpoint
    config, init_from = deepcopy(plan.texts.config), plan.loaded.init_from
    if init_from is None or (rank is not None and checkpoint is not None):
        # Where a checkpoint has adapters beside the weights, Trainer loads both.
        model: Any = VanillaTransformerForConditionalGeneration(config)
    else:  # half precision would lose small changes of the weights
        model = load_weights(init_from, config=config, dtype=torch.float32)
    if rank is not None:
        add_adapters(model, rank, plan.arguments.model.lora_embeddings)
    model.set_attn_implementation(plan.attention)
    model.generation_config = plan.search.to_save()
    return model


def make_trainer(plan: RunPlan, encoded: DatasetDict, model: Any) -> TokenBudgetSeq2SeqTrainer:
    """Makes the Trainer of a run with its callbacks."""
    texts, training, options = plan.texts, plan.training, plan.arguments.model
    rows: Any = encoded["train"]
    if (bpe_dropout := plan.arguments.subwords.bpe_dropout) is not None:
        rows = SampledSubwords(
            texts.splits["train"],
            rows,
            texts.tokenizer,
            bpe_dropout=bpe_dropout,
            seed=training.order_seed,
            max_source_length=plan.max_source_length,
            max_target_length=plan.max_target_length,
            directions=RowDirections(texts.tokenizer, plan.search.settings),
        )
    mixture = None
    if (shares := plan.loaded.data.shares) is not None:
        sizes = {report.corpus: report.used + report.copies for report in plan.loaded.data.reports}
        mixture = Mixture(sizes, shares, training.order_seed)
    scored = scorer = None
    if "validation" in encoded:
        most = None if options.minutes is None else SCORED_WITHIN_MINUTES
        scored = EvaluatedTexts.of(plan, encoded, "validation", most)
        scorer = scored.make_scorer(plan, calibrates=True)
    trainer = TokenBudgetSeq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=rows,
        eval_dataset=scored and scored.encoded,
        data_collator=DataCollatorForSeq2Seq(texts.tokenizer, model=model),
        processing_class=texts.tokenizer,
        compute_metrics=scorer,
        callbacks=[CompletePushes()] if training.push_to_hub else None,
        mixture=mixture,
        teachers=load_teachers(options, texts.tokenizer, model, training.device),
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
