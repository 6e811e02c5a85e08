"""The working parts of a run, made by its plan: token ids, model, Trainer, scorers."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from datasets import DatasetDict
from transformers import DataCollatorForSeq2Seq, PrinterCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from vanilla_transformer.data.encoding import RowDirections
from vanilla_transformer.data.mixing import Mixture
from vanilla_transformer.data.row_languages import languages_of_rows
from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.data.token_budget import token_lengths
from vanilla_transformer.files.loading import load_weights
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.progress import tells_all
from vanilla_transformer.run.adapters import add_adapters
from vanilla_transformer.run.encoded_data import encode_texts
from vanilla_transformer.run.evaluation import score_training
from vanilla_transformer.run.loading import load_teachers
from vanilla_transformer.run.model_card import PREFIXES
from vanilla_transformer.run.plan import RunPlan
from vanilla_transformer.run.score_tokenizers import references_of
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.training.callbacks import CompletePushes, SubwordEpochs
from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_log import TrainingLog


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
        self, split: str, with_intervals: bool = True
    ) -> tuple[GenerationMetrics, dict[str, float]]:
        """Scores the model on a split; returns the scorer and the figures."""
        scorer = make_scorer(self.plan, self.encoded, split, with_intervals)
        self.trainer.compute_metrics = scorer
        prefix = PREFIXES[split]
        return scorer, self.trainer.evaluate(self.encoded[split], metric_key_prefix=prefix)


def make_scorer(
    plan: RunPlan, encoded: DatasetDict, split: str, with_intervals: bool = False
) -> GenerationMetrics:
    """Makes the scorer of the texts of a split."""
    rows = plan.texts.splits[split]
    languages = languages_of_rows(rows)
    groups: list[Sequence[str]] = [[f"{a}-{b}" if a and b else "" for a, b in languages]]
    if plan.arguments.data.corpora and "corpus" in rows.column_names:
        groups.insert(0, list(rows["corpus"]))
    return GenerationMetrics(
        plan.texts.tokenizer,
        plan.arguments.model.metrics,
        references_of(rows),
        plan.score_tokenizers[split],
        groups,
        partial(
            score_training,
            sources=list(rows["source"]),
            reference_lengths=token_lengths(encoded[split], "labels").tolist(),
            languages=languages,
            calibrates=split == "validation",
        ),
        with_intervals,
    )


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
    scorer = make_scorer(plan, encoded, "validation") if "validation" in encoded else None
    trainer = TokenBudgetSeq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=rows,
        eval_dataset=encoded.get("validation"),
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
    sources = texts.splits["validation"]["source"] if scorer else []
    trainer.add_callback(TrainingLog(trainer, scorer, sources, options.show_examples))
    if options.ema_decay is not None:
        trainer.add_callback(ExponentialMovingAverage(options.ema_decay))
    if isinstance(rows, SampledSubwords):
        trainer.add_callback(SubwordEpochs(rows))
    return trainer
