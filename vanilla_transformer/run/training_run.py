"""One training run, from its options to a directory that every Hugging Face tool can load."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from logging import ERROR, INFO, getLogger
from math import isfinite
from pathlib import Path
from signal import SIGTERM
from typing import Any, cast

import datasets
import torch
from datasets import DatasetDict
from huggingface_hub import HfApi
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PrinterCallback,
    TrainerCallback,
    set_seed,
)
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.utils import logging

from vanilla_transformer.data.atomic_files import explained_full_disk, write_atomic
from vanilla_transformer.data.directory_lock import locked_directory
from vanilla_transformer.data.encoding import RowDirections
from vanilla_transformer.data.mixing import Mixture
from vanilla_transformer.data.row_languages import languages_of_rows
from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.data.token_budget import token_lengths
from vanilla_transformer.inference.loading import load_weights
from vanilla_transformer.interop.probe import store_probe
from vanilla_transformer.languages import known_tag
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.progress import MessageHandler, hide_bars_of_loading, shows_bars
from vanilla_transformer.run.adapters import add_adapters, merge_adapters
from vanilla_transformer.run.calibration import calibrate
from vanilla_transformer.run.encoded_data import encode_texts
from vanilla_transformer.run.evaluation import score_training
from vanilla_transformer.run.loading import load_teachers
from vanilla_transformer.run.model_card import PREFIXES, write_model_card
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.run.plan import RunPlan, make_plan
from vanilla_transformer.run.preparation import read_texts
from vanilla_transformer.run.score_tokenizers import references_of
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.training.averaging import load_average, rank_checkpoints
from vanilla_transformer.training.callbacks import PICKLES, CompletePushes, SubwordEpochs
from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.sharding import refuse_sharded_weights
from vanilla_transformer.training.store import (
    FILE_SIZES,
    RESULTS,
    OverwriteGuard,
    checkpoints_with_state,
    finished_figures,
    write_file_sizes,
)
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_log import TrainingLog, describe_figures

logger = logging.get_logger(__name__)

STATUS_OF_SIGTERM = 128 + SIGTERM
"""What a shell shows for a process that this signal has ended."""


def show_messages(arguments: RunArguments) -> None:
    """Shows what a run tells on standard error; without this call it only gives warnings.

    The main process tells the plan, the progress and the scores, and with `verbose` all messages of
    transformers; the other processes tell errors.
    """
    is_main, verbose = arguments.training.process_index == 0, arguments.show.verbose
    package = getLogger("vanilla_transformer")
    package.setLevel(INFO if is_main else ERROR)
    if not package.handlers:
        package.addHandler(MessageHandler())
    if not is_main:
        logging.set_verbosity_error()
    elif verbose:
        logging.set_verbosity_info()
    if verbose:
        logging.enable_progress_bar()
    else:
        hide_bars_of_loading()
    if not (is_main and shows_bars()):
        datasets.disable_progress_bars()


def run(
    arguments: RunArguments,
    data: DatasetDict | None = None,
    callbacks: Iterable[TrainerCallback] = (),
) -> dict[str, float]:
    """Trains, evaluates and saves a model, and writes its model card.

    What contradicts itself, the data or the output directory is refused before anything is written
    or deleted.

    Args:
        arguments: Options of the run. They are not changed.
        data: Any of the splits "train", "validation" and "test", with the columns "source" and
            "target", and "references" where an example has several. None: the data that the
            options name.

    Returns:
        The figures of all_results.json: train_*, eval_* and test_*.
    """
    training = arguments.training
    with locked_directory(Path(str(training.output_dir)), training.process_index == 0):
        texts = compute_on_main_process(training, partial(read_texts, arguments, data))
        plan = make_plan(arguments, texts)
        encoded = compute_on_main_process(training, partial(encode_texts, plan))
        set_seed(plan.training.seed)
        model = make_model(plan)
        scorer = GenerationMetrics(plan.tokenizer, plan.options.model.metrics)
        trainer = make_trainer(plan, model, scorer, encoded)
        for callback in callbacks:
            trainer.add_callback(callback)
        logger.info(_describe_data(plan, encoded, model))
        for report in plan.texts.data.reports:
            logger.info(report.describe())
        trainer.record.inputs = plan.fingerprint(encoded)
        run = _Run(plan, trainer, scorer, encoded)
        return run.finished_figures() or run.train_and_score()


def _describe_data(plan: RunPlan, encoded: DatasetDict, model: Any) -> str:
    """Says how much a run has read, and how large its model is."""
    pairs = ", ".join(f"{len(rows):,} {name} pairs" for name, rows in encoded.items())
    parameters = sum(weight.numel() for weight in model.parameters())
    origin = "" if (path := plan.texts.init_from) is None else f" of {path!r}"
    case = "; sources are lower-cased" if getattr(plan.tokenizer, "do_lower_case", False) else ""
    return (
        f"{pairs}; a vocabulary of {len(plan.tokenizer):,} tokens{case}; the model{origin} has "
        f"{parameters:,} parameters."
    )


def make_model(plan: RunPlan) -> Any:
    """Loads the weights that the run starts from, or initialises a new model.

    The generation config of the model holds the search of the run.
    """
    rank, checkpoint = plan.options.model.lora_rank, plan.directory.checkpoint
    if (init_from := plan.texts.init_from) is None or (rank is not None and checkpoint is not None):
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
    if (shares := plan.texts.data.shares) is not None:
        sizes = {report.corpus: report.used + report.copies for report in plan.texts.data.reports}
        trainer.mixture = Mixture(sizes, shares, trainer.order_seed)
    trainer.teachers = load_teachers(plan.options.model, tokenizer, model, plan.training.device)
    averaging, subwords, show = plan.options.averaging, plan.options.subwords, plan.options.show
    bars = PrinterCallback if plan.training.disable_tqdm else DEFAULT_PROGRESS_CALLBACK
    trainer.remove_callback(bars)
    if show.verbose:
        trainer.add_callback(PrinterCallback)
    sources = plan.splits["validation"]["source"] if "validation" in plan.splits else None
    trainer.add_callback(TrainingLog(trainer, scorer, sources, show.show_examples))
    if averaging.ema_decay is not None:
        trainer.add_callback(ExponentialMovingAverage(averaging.ema_decay))
    if averaging.num_averaged is not None:
        refuse_sharded_weights(
            "A mean of checkpoints", "run `vanilla-transformer average` after the training"
        )
    if subwords.enabled:
        sampled = SampledSubwords(
            plan.splits["train"],
            encoded["train"],
            tokenizer,
            bpe_dropout=subwords.bpe_dropout,
            unigram_alpha=subwords.unigram_alpha,
            sides=subwords.sampled_sides,
            seed=trainer.order_seed,
            max_source_length=plan.max_source_length,
            max_target_length=plan.max_target_length,
            directions=RowDirections(tokenizer, plan.search.settings),
        )
        trainer.train_dataset = sampled
        trainer.add_callback(SubwordEpochs(sampled))
    return trainer


@dataclass(frozen=True)
class _Run:
    """A run whose model and Trainer are made."""

    plan: RunPlan
    trainer: TokenBudgetSeq2SeqTrainer
    scorer: GenerationMetrics
    encoded: DatasetDict

    @property
    def folder(self) -> Path:
        return self.plan.directory.folder

    @property
    def is_main(self) -> bool:
        return self.trainer.is_world_process_zero()

    def finished_figures(self) -> dict[str, float]:
        """Returns the figures of a run that is resumed although it is finished; otherwise none."""
        plan, trainer = self.plan, self.trainer
        if plan.directory.checkpoint is None or plan.training.push_to_hub:
            return {}
        figures = finished_figures(plan.directory, trainer.record.inputs)
        trainer.accelerator.wait_for_everyone()  # all processes have read the files
        if figures:
            logger.warning(
                f"The run in {str(self.folder)!r} is finished: nothing is changed. To train "
                "further, give a larger `--num_train_epochs` or `--max_steps`."
            )
        return figures

    def train_and_score(self) -> dict[str, float]:
        """Trains, and saves the model; scores it, and saves figures, history and model card."""
        # What the run replaces is deleted, but not too early.
        guard = OverwriteGuard(self.plan.directory, self.plan.training.process_index == 0)
        self.trainer.accelerator.wait_for_everyone()
        self.trainer.add_callback(guard)
        self._score_texts_of("validation")
        figures = self._train(guard)
        self._save_figures(figures)
        logger.info(f"Saved in {str(self.folder)!r}: {self._describe_weights()}.")
        figures = self._score_splits(figures)
        with explained_full_disk(self.folder):
            self.trainer.save_state()
        if self.is_main:
            model, repo_id = cast(PreTrainedModel, self.trainer.model), self.trainer.hub_model_id
            write_model_card(self.plan, model, figures, self.scorer.signatures, repo_id)
            write_file_sizes(self.folder)
            if self.plan.training.push_to_hub:
                self._push_to_hub()
        return figures

    def _train(self, guard: OverwriteGuard) -> dict[str, float]:
        plan, trainer = self.plan, self.trainer
        if plan.directory.checkpoint is not None:
            logger.info(f"The training goes on from {str(plan.directory.checkpoint.path)!r}.")
        try:
            metrics: dict[str, float] = trainer.train(plan.directory.checkpoint).metrics
            if trainer.was_terminated:
                raise SystemExit(STATUS_OF_SIGTERM)
        except (KeyboardInterrupt, SystemExit):
            for callback in trainer.callback_handler.callbacks:
                if isinstance(callback, TrainingLog):
                    callback.close()
            if self.is_main:
                logger.warning(self._describe_early_end())
            raise
        guard.delete()
        if (count := plan.options.averaging.num_averaged) is not None:
            self._load_average(count)
        if plan.options.model.lora_rank is not None:
            merge_adapters(trainer.model)
        if self.is_main:
            (self.folder / FILE_SIZES).unlink(missing_ok=True)
        with explained_full_disk(self.folder):  # without a push: the run pushes when all is there
            trainer.save_model(_internal_call=True)
        if self.is_main and list(self.folder.glob("*.safetensors")):
            store_probe(self.folder)
        return {f"train_{name.removeprefix('train_')}": value for name, value in metrics.items()}

    def _load_average(self, count: int) -> None:
        """Sets the weights to the mean of the last or the best checkpoints."""
        self.trainer.accelerator.wait_for_everyone()  # the main process may still write one
        training, best = self.plan.training, self.plan.options.averaging.average_best
        metric = None if best is None else training.metric_for_best_model
        chosen = rank_checkpoints(self.folder, metric, training.greater_is_better)[-count:]
        if len(chosen) < count:
            logger.warning(f"The run has only {len(chosen)} of {count} checkpoints to average.")
        if chosen:
            load_average(cast(Any, self.trainer.model), chosen)

    def _score_splits(self, figures: dict[str, float]) -> dict[str, float]:
        """Adds the scores of the validation and the test split to the figures of the training."""
        plan = self.plan
        self.scorer.with_intervals = True
        for split, prefix in PREFIXES.items():
            if split not in plan.splits:
                continue
            self._score_texts_of(split)
            scores = self.trainer.evaluate(self.encoded[split], metric_key_prefix=prefix)
            scores.pop("epoch", None)
            logger.info(f"{split.capitalize()}: {describe_figures(scores, f'{prefix}_')}.")
            if self.scorer.num_cut:
                logger.warning(
                    f"{split.capitalize()}: outputs that are cut off at the longest length of "
                    f"{plan.search.max_new_tokens} tokens (shorter during the training): "
                    f"{self.scorer.num_cut:,}. Give a larger `generation_max_length`, or train "
                    "longer if they repeat themselves."
                )
            figures = {**figures, **scores}
            self._save_figures(figures)  # a kill loses no score
            if split == "validation" and self.is_main and self.scorer.outputs:
                self._calibrate(plan.splits[split])
        return figures

    def _calibrate(self, rows: Any) -> None:
        """Writes what tells the quality of outputs, learnt from those of the last evaluation."""
        targets = [known_tag(target) for _, target in languages_of_rows(rows)]
        logger.info(calibrate(self.folder, self.scorer.outputs, references_of(rows), targets))

    def _score_texts_of(self, split: str) -> None:
        """Lets the next evaluations score the texts of a split, if there is one.

        Where no process holds the whole model, the Trainer generates from the encoded sources.
        """
        plan, trainer, scorer = self.plan, self.trainer, self.scorer
        scorer.references = scorer.corpora = scorer.tokenizers = scorer.directions = None
        scorer.outputs = ()
        if split not in plan.splits:
            return
        rows = plan.splits[split]
        scorer.references = references_of(rows)
        scorer.tokenizers = plan.score_tokenizers[split]
        if plan.options.data.corpora and "corpus" in rows.column_names:
            scorer.corpora = rows["corpus"]
        languages = languages_of_rows(rows)
        scorer.directions = [f"{a}-{b}" if a and b else "" for a, b in languages]
        is_sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
        if not is_sharded and trainer.get_tp_size() == 1:
            lengths = token_lengths(self.encoded[split], "labels").tolist()
            texts, calibrates = list(rows["source"]), split == "validation"
            trainer.score_texts = partial(
                score_training, trainer, scorer, texts, lengths, languages, calibrates
            )

    def _describe_early_end(self) -> str:
        """Says what is left of a training that a signal has ended."""
        kept = "no checkpoint was saved, so nothing is kept."
        if saved := checkpoints_with_state(self.folder):
            kept = (
                f"{str(saved[-1].path)!r} is kept. To go on from there, give the same command "
                "(`train`: with `--resume_from_checkpoint True`)."
            )
        step = self.trainer.state.global_step
        return f"The training ended early, after step {step:,}: {kept}"

    def _describe_weights(self) -> str:
        """Says which weights a training has ended with."""
        state, averaging = self.trainer.state, self.plan.options.averaging
        if averaging.num_averaged is not None:
            return "the mean weights of checkpoints"
        if self.plan.training.load_best_model_at_end and state.best_global_step:
            return f"the checkpoint of step {state.best_global_step:,}, which has the best score"
        return f"the weights of step {state.global_step:,}"

    def _save_figures(self, figures: dict[str, float]) -> None:
        if self.is_main:
            finite = {name: value if isfinite(value) else None for name, value in figures.items()}
            text = json.dumps(finite, indent=4, sort_keys=True) + "\n"
            write_atomic(self.folder / RESULTS, text)

    def _push_to_hub(self) -> None:
        """Pushes the directory of a finished run, without pickle files and checkpoints."""
        HfApi().upload_folder(
            repo_id=str(self.trainer.hub_model_id),
            folder_path=self.folder,
            commit_message="End of training",
            token=self.plan.training.hub_token,
            revision=self.plan.training.hub_revision,
            ignore_patterns=[*PICKLES, "_*", "checkpoint-*"],
            delete_patterns=list(PICKLES),
        )
