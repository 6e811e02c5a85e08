"""What a run works with: its plan, its token ids, its model and its Trainer."""

from dataclasses import dataclass
from functools import partial
from typing import Any

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
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.run.plan import RunPlan, make_plan
from vanilla_transformer.run.preparation import LoadedData, prepare_texts
from vanilla_transformer.run.score_tokenizers import references_of
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.training.callbacks import CompletePushes, SubwordEpochs
from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_log import TrainingLog


@dataclass(frozen=True)
class Assembly:
    """A run whose model and Trainer are made."""

    plan: RunPlan
    trainer: TokenBudgetSeq2SeqTrainer
    scorer: GenerationMetrics
    encoded: DatasetDict

    def score_texts_of(self, split: str) -> None:
        """Lets the next evaluations score the texts of a split, if there is one.

        Where no process holds the whole model, the Trainer generates from the encoded sources.
        """
        plan, trainer, scorer = self.plan, self.trainer, self.scorer
        scorer.references, scorer.tokenizers, scorer.groups, scorer.outputs = None, None, [], ()
        if split not in plan.splits:
            return
        rows = plan.splits[split]
        scorer.references = references_of(rows)
        scorer.tokenizers = plan.score_tokenizers[split]
        if plan.options.data.corpora and "corpus" in rows.column_names:
            scorer.groups.append(list(rows["corpus"]))
        languages = languages_of_rows(rows)
        scorer.groups.append([f"{a}-{b}" if a and b else "" for a, b in languages])
        is_sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
        if not is_sharded and trainer.get_tp_size() == 1:
            lengths = token_lengths(self.encoded[split], "labels").tolist()
            texts, calibrates = list(rows["source"]), split == "validation"
            trainer.score_texts = partial(
                score_training, trainer, scorer, texts, lengths, languages, calibrates
            )


def assemble(arguments: RunArguments, loaded: LoadedData) -> Assembly:
    """Makes all that a run works with, of the data that it has loaded."""
    training = arguments.training
    texts = compute_on_main_process(training, prepare_texts, arguments, loaded)
    plan = make_plan(arguments, texts)
    encoded = compute_on_main_process(training, encode_texts, plan)
    set_seed(plan.training.seed)
    scorer = GenerationMetrics(plan.tokenizer, plan.options.model.metrics)
    return Assembly(plan, make_trainer(plan, make_model(plan), scorer, encoded), scorer, encoded)


def make_model(plan: RunPlan) -> Any:
    """Loads the weights that the run starts from, or initialises a new model.

    The generation config of the model holds the search of the run.
    """
    rank, checkpoint = plan.options.model.lora_rank, plan.directory.checkpoint
    if (init_from := plan.init_from) is None or (rank is not None and checkpoint is not None):
        # Where a checkpoint has adapters beside the weights, Trainer loads both.
        model: Any = VanillaTransformerForConditionalGeneration(plan.config)
    else:  # half precision would lose small changes of the weights
        model = load_weights(init_from, config=plan.config, dtype=torch.float32)
    if rank is not None:
        add_adapters(model, rank, plan.options.model.lora_embeddings)
    model.set_attn_implementation(plan.attention)
    model.generation_config = plan.search.to_save()
    return model


def make_trainer(
    plan: RunPlan, model: Any, scorer: GenerationMetrics, encoded: DatasetDict
) -> TokenBudgetSeq2SeqTrainer:
    """Makes the Trainer of a run with its callbacks."""
    tokenizer = plan.tokenizer
    trainer = TokenBudgetSeq2SeqTrainer(
        model=model,
        args=plan.training,
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=scorer,
        callbacks=[CompletePushes()] if plan.training.push_to_hub else None,
    )
    if (shares := plan.data.shares) is not None:
        sizes = {report.corpus: report.used + report.copies for report in plan.data.reports}
        trainer.mixture = Mixture(sizes, shares, trainer.order_seed)
    trainer.teachers = load_teachers(plan.options.model, tokenizer, model, plan.training.device)
    subwords = plan.options.subwords
    bars = PrinterCallback if plan.training.disable_tqdm else DEFAULT_PROGRESS_CALLBACK
    trainer.remove_callback(bars)
    if tells_all():
        trainer.add_callback(PrinterCallback)
    sources = plan.splits["validation"]["source"] if "validation" in plan.splits else None
    shown = plan.options.model.show_examples
    trainer.add_callback(TrainingLog(trainer, scorer, sources, shown))
    if (decay := plan.options.model.ema_decay) is not None:
        trainer.add_callback(ExponentialMovingAverage(decay))
    if subwords.bpe_dropout is not None:
        sampled = SampledSubwords(
            plan.splits["train"],
            encoded["train"],
            tokenizer,
            bpe_dropout=subwords.bpe_dropout,
            seed=trainer.order_seed,
            max_source_length=plan.max_source_length,
            max_target_length=plan.max_target_length,
            directions=RowDirections(tokenizer, plan.search.settings),
        )
        trainer.train_dataset = sampled
        trainer.add_callback(SubwordEpochs(sampled))
    return trainer
