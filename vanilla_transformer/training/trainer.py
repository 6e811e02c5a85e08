"""The trainer: the stock `Seq2SeqTrainer` with token-budget batches and other losses."""

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import DistributedType, gather_object
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, TrainingArguments, get_scheduler
from transformers.trainer_jit_checkpoint import JITCheckpointCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length
from transformers.utils import logging

from vanilla_transformer.batches.mixing import Mixture
from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler, token_lengths
from vanilla_transformer.columns import LINKS
from vanilla_transformer.files.atomic_files import explained_full_disk
from vanilla_transformer.model.directions import language_prompts
from vanilla_transformer.model.inputs import IGNORE_INDEX
from vanilla_transformer.model.losses import mean_per_item, token_loss
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.token_layout import is_packed
from vanilla_transformer.names import LEARNT_LINKS, MODEL_TYPE, MUON, NOAM
from vanilla_transformer.rules import refuse
from vanilla_transformer.search import Search
from vanilla_transformer.training.callbacks import CheckpointOnSignal, EarlyStopping
from vanilla_transformer.training.captured_steps import (
    CapturedSteps,
    can_be_recorded,
    collate_packed,
    sizes_for,
)
from vanilla_transformer.training.divergence import DivergenceCheck, check_weights
from vanilla_transformer.training.guided_alignment import (
    LinkCollator,
    guided_loss,
    learn_lexicon,
    recorded_heads,
)
from vanilla_transformer.training.loaders import evaluation_sampler, with_batches
from vanilla_transformer.training.metrics import deciding_scores
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.muon import make_muon
from vanilla_transformer.training.objectives import Teachers, rdrop_loss, simcut_loss
from vanilla_transformer.training.record import TrainingRecord
from vanilla_transformer.training.schedules import NoamSchedule, schedule_options
from vanilla_transformer.training.sharding import group_tied_modules
from vanilla_transformer.training.store import FILE_SIZES, Checkpoint, resumed_checkpoint
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

logger = logging.get_logger(__name__)
# transformers compares its `logging_steps`, a share here, with the number in the checkpoint;
# `TrainingRecord` compares the inputs that decide a resumed training.
getLogger("transformers.trainer_utils").addFilter(
    lambda record: "do not match the ones in the `trainer_state.json`" not in record.getMessage()
)

_MODES_WITH_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes of `torch.compile` that record CUDA graphs."""


class TokenBudgetSeq2SeqTrainer(Seq2SeqTrainer):
    """The stock `Seq2SeqTrainer` with the options of `TokenBudgetTrainingArguments`.

    A run that is resumed in the middle of an epoch sees the same batches as an uninterrupted run,
    on one process or several. A training resumes only from a checkpoint that has every file it
    needs, and with the settings of its optimizer; one that is complete trains no further step. A
    training that diverges stops with a `DivergenceError` and saves no bad weights.

    With `args.guided_alignment`, the training set has pairs of token indices in the column
    "alignment", or "auto" learns them from the training set. `model.config.alignment_heads` then
    names the guided head of the last layer but one.

    Evaluations with `args.predict_with_generate` search as `Translator` does; evaluations within a
    training cut outputs off at about twice the length of the labels. The loss of an evaluation is
    the mean over all its labels, whatever its batches and processes are.

    If `compute_metrics` has a `score_model` (see `GenerationMetrics`), evaluations compute the loss
    of token ids alone, unless the model is divided among processes.

    Args:
        mixture: Chooses the examples of each epoch. None: all of them.
        teachers: Models whose predictions the training learns beside the labels. None: no models.
        inputs: Whatever decides the course of the training beside its options, such as digests of
            its texts, by name.

    Attributes:
        record: The inputs that decide the course of the training.
        num_tokens: Source tokens ("attention_mask") and target tokens ("labels") that this process
            has trained on since the last call of `train`, without padding.
    """

    args: TokenBudgetTrainingArguments
    model: Any  # any model that has labels; of this package, where an option needs it
    num_tokens: dict[str, torch.Tensor]

    # The sampler of the current training loader, from which Trainer asks for the batch size.
    _batch_sampler: TokenBudgetBatchSampler | None = None
    # Whether the loader packs batches; the conditions for it may have changed since.
    _has_packed = False
    # Runs the steps of packed batches. None: there was none yet.
    _captured: CapturedSteps | None = None
    # The search of the current evaluation.
    _search: Search | None = None
    # Loss and number of labels of each batch that this process has evaluated.
    _scored: list[tuple[torch.Tensor, torch.Tensor]]

    def __init__(
        self,
        *args: Any,
        mixture: Mixture | None = None,
        teachers: Teachers | None = None,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.num_tokens, self.mixture, self.teachers = {}, mixture, teachers
        super().__init__(*args, **options)
        if self.args.torch_compile and isinstance(
            self.model, VanillaTransformerForConditionalGeneration
        ):
            backend: Any = self.args.torch_compile_backend
            compiled: Any = torch.compile(token_loss, backend=backend, dynamic=True)
            self.model.token_loss = compiled  # it is no part of a layer, which Accelerate compiles
        patience = self.args.early_stopping_patience
        callbacks = self.callback_handler.callbacks
        stops = any(isinstance(callback, EarlyStoppingCallback) for callback in callbacks)
        if patience is not None and not stops:
            self.add_callback(EarlyStopping(patience))
        if self.args.guided_alignment is not None:
            self._prepare_guide()
        self.record, self._divergence = TrainingRecord(inputs or {}), DivergenceCheck()
        self._scored = []
        self.add_callback(self.record)
        for index, callback in enumerate(callbacks):
            if isinstance(callback, JITCheckpointCallback) and callback.jit_manager is not None:
                callbacks[index] = CheckpointOnSignal(callback.jit_manager)

    def create_accelerator_and_postprocess(self) -> None:
        """Makes the accelerator, whose DDP looks for unused parameters only if there may be any."""
        config: Any = getattr(self.model, "config", None)
        if getattr(config, "model_type", None) == MODEL_TYPE:  # of other models it is unknown
            drops_layers = config.encoder_layerdrop or config.decoder_layerdrop
            if self.args.ddp_find_unused_parameters is None and not drops_layers:
                self.args.ddp_find_unused_parameters = False
        super().create_accelerator_and_postprocess()

    def _prepare_guide(self) -> None:
        """Sets `alignment_heads` in the model's config, and collates links of the data."""
        if self.args.n_gpu > 1 or self.get_tp_size() > 1:
            raise ValueError(
                "`guided_alignment` needs a process for each GPU, and a whole model in each: start "
                "the training with `accelerate launch`, without tensor parallelism."
            )
        if self.args.guided_alignment != LEARNT_LINKS:
            self.data_collator = LinkCollator(self.data_collator)
        layer = max(self.model.config.decoder_layers - 2, 0)  # the last but one, as in the paper
        self.model.config.alignment_heads = [[layer, 0]]

    # Private: Trainer has no option that names further columns to keep.
    def _set_signature_columns_if_needed(self) -> None:
        """Also keeps the column of links where a head is guided."""
        super()._set_signature_columns_if_needed()
        columns = cast("list[str]", self._signature_columns)
        if self.args.guided_alignment is not None and LINKS not in columns:
            columns.append(LINKS)

    @property
    def was_terminated(self) -> bool:
        """Whether SIGTERM has ended the training early (with `args.enable_jit_checkpoint`)."""
        return any(
            isinstance(callback, CheckpointOnSignal) and callback.has_stopped
            for callback in self.callback_handler.callbacks
        )

    def train(
        self,
        resume_from_checkpoint: str | bool | Checkpoint | None = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        """Trains, as in transformers; a `Checkpoint` has been checked, and others are here."""
        self.num_tokens, self._divergence = {}, DivergenceCheck()
        callbacks = self.callback_handler.callbacks
        means = [each for each in callbacks if isinstance(each, ExponentialMovingAverage)]
        # A mean comes after all that ask for evaluations, and the record completes checkpoints.
        for last in (*means, self.record):
            self.remove_callback(last)
            self.add_callback(last)
        chosen = resume_from_checkpoint or None
        if isinstance(chosen, str | bool):
            chosen = resumed_checkpoint(Path(str(self.args.output_dir)), chosen)
        self.record.inputs["ema_decay"] = None
        for mean in means:
            self.record.inputs["ema_decay"] = mean.decay
            mean.checkpoint = chosen and chosen.path
        if chosen is not None:  # with True, transformers reports that there is none
            self.record.compare(self.args, chosen)
            resume_from_checkpoint = str(chosen.path)
        try:
            return super().train(cast(Any, resume_from_checkpoint), *args, **options)
        finally:
            self._captured = None  # the graphs hold the memory of their steps

    # Private: callbacks can end a training only after a step.
    def _run_epoch(self, *args: Any, **options: Any) -> None:
        """Trains one epoch, unless the training was complete when it was resumed."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        if self.control.should_training_stop:
            return
        cast(Any, super())._run_epoch(*args, **options)

    def training_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> torch.Tensor:
        """Returns the loss of one batch, after its gradient has been added."""
        for name, empty in (("labels", IGNORE_INDEX), ("attention_mask", 0)):
            if name in inputs:
                count = (inputs[name] != empty).sum()
                self.num_tokens[name] = self.num_tokens.get(name, 0) + count
        packed = self._has_packed and is_packed(inputs)
        if packed and self._packs_batches and can_be_recorded(model):
            loss = self._captured_step(model, inputs, *args, **options)
        else:
            loss = super().training_step(model, inputs, *args, **options)
        if getattr(self.accelerator, "scaler", None) is None:
            self._divergence.add_loss(loss)
        return loss

    def _captured_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: torch.Tensor
    ) -> torch.Tensor:
        """Returns the loss of a packed batch, after its gradient has been added."""
        model.train()
        if hasattr(self.optimizer, "train"):  # a schedule-free one
            cast(Any, self.optimizer).train()
        if self._captured is None or not self._captured.is_current_for(model):
            is_half = self.accelerator.mixed_precision == "bf16"
            self._captured = CapturedSteps(model, torch.bfloat16 if is_half else None)
        return self._captured(self._prepare_inputs(inputs), num_items_in_batch)

    @property
    def _packs_batches(self) -> bool:
        """Whether batches are packed, so that one GPU records its steps and replays them."""
        model, args, accelerator = self.model, self.args, self.accelerator
        if not isinstance(model, VanillaTransformerForConditionalGeneration):
            return False
        other_losses = (
            *(args.guided_alignment, self.teachers, args.rdrop_alpha, args.simcut_alpha),
            *(self.label_smoother, self.compute_loss_func, args.neftune_noise_alpha),
            # A subclass or a program may have another one.
            getattr(self.compute_loss, "__func__", None)
            is not TokenBudgetSeq2SeqTrainer.compute_loss,
        )
        changing_steps = (
            *(model.config.encoder_layerdrop, model.config.decoder_layerdrop),
            *(args.activation_checkpointing, model.is_activation_checkpointing),
            accelerator.mixed_precision not in ("no", "bf16"),  # the scale of a loss changes
            args.optim.endswith(("lomo", "layerwise")),  # they step within backward passes
        )
        other_recorders = (
            args.torch_compile and not accelerator.state.dynamo_plugin.use_regional_compilation,
            args.torch_compile_mode in _MODES_WITH_GRAPHS,
            args.torch_compile_backend == "cudagraphs",
        )
        packs = model.is_padding_free and model.packs_sequences()
        is_alone = accelerator.distributed_type == DistributedType.NO and args.n_gpu <= 1
        return packs and is_alone and not any((*other_losses, *changing_steps, *other_recorders))

    # Private, here and below: Trainer keeps its sums of losses to itself, and logs their means.
    def sum_of_losses(self) -> float:
        """Returns the sum of the losses of the steps since the last call of `train`."""
        return float(self._total_loss_scalar + self._tr_loss.item())

    # Private: `on_pre_optimizer_step` does not tell callbacks the norm.
    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Returns the norm of the gradient; it and the losses of the step must be finite."""
        norm = cast(Any, super())._get_grad_norm(model, grad_norm=grad_norm)
        has_scaler = getattr(self.accelerator, "scaler", None) is not None
        self._divergence.check(norm, self.state.global_step, has_scaler)
        return norm

    def _prepare_to_save(self) -> None:
        """Refuses weights that are not finite; a schedule-free optimizer sets the weights to save.

        Trainer sets these when it evaluates, but not when it saves. The next step goes back to the
        training weights.
        """
        if callable(evaluate := getattr(self.optimizer, "eval", None)):
            evaluate()
        check_weights(self.model, self.state.global_step)

    # Private: Trainer takes the earlier one of two checkpoints with equal scores.
    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Returns whether the last evaluation is the best by `deciding_scores`, and records it."""
        watched, step = self.args.metric_for_best_model, self.state.global_step
        if watched is not None and f"eval_{watched.removeprefix('eval_')}" in metrics:
            _, scores = deciding_scores(
                self.state.log_history, watched, self.args.greater_is_better
            )
            if step not in scores or scores[step] < max(scores.values()):
                return False
            self.state.best_metric = None  # so that the base class takes this evaluation
        return bool(super()._determine_best_metric(metrics, trial))

    # Private: callbacks hear of a checkpoint when it has been saved, and older ones are deleted.
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Saves a checkpoint, unless the training has diverged."""
        self._prepare_to_save()
        run = Path(self._get_output_dir(trial=trial))
        self.record.folder = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:  # files of another training there are no longer whole
            (self.record.folder / FILE_SIZES).unlink(missing_ok=True)
        # The record deletes old checkpoints, when this one is whole.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            with explained_full_disk(self.record.folder):
                super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit

    # Private: Trainer warns of each tied weight, which a checkpoint holds once.
    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warns of missing keys, as in transformers, but not of keys that are tied to others."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

    # Private: callbacks hear of the end when the model that is saved has been chosen.
    def _finalize_training(self, *args: Any, **options: Any) -> Any:
        """Returns the figures of the training, unless it has diverged."""
        self._prepare_to_save()
        # Trainer has the mean of the losses of this process alone.
        self._tr_loss = self.accelerator.reduce(self._tr_loss, reduction="mean")
        output = cast(Any, super())._finalize_training(*args, **options)
        if self.state.global_step == self._initial_global_step:  # a loss of no step
            output.metrics.pop("train_loss")
        return output

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Returns the stock loader, or one of token-budget batches if `args.max_tokens` is set."""
        plain = self.data_collator
        if self.args.guided_alignment == LEARNT_LINKS:
            lexicon = learn_lexicon(self.train_dataset, self.model.config.decoder_vocab_size)
            self.data_collator = LinkCollator(plain, lexicon)
        try:
            return self._make_train_dataloader()
        finally:
            self.data_collator = plain  # for evaluations

    def _make_train_dataloader(self) -> DataLoader[Any]:
        max_tokens = self.args.max_tokens
        if max_tokens is None:
            refuse((self.mixture, "Corpora with shares need batches by tokens: set `max_tokens`."))
            return super().get_train_dataloader()
        refuse(
            (
                self._shares_batches,
                "`max_tokens` gives each process its own batches, which tensor, context and "
                "sequence parallelism do not allow: use `per_device_train_batch_size`.",
            ),
            (
                not has_length(self.train_dataset),  # it would be read whole, and may never end
                "`max_tokens` needs a training set with a length: use `datasets.Dataset`, or "
                "`per_device_train_batch_size`.",
            ),
        )
        stock = super().get_train_dataloader()
        self._batch_sampler = TokenBudgetBatchSampler(
            token_lengths(self.train_dataset, "input_ids"),
            token_lengths(self.train_dataset, "labels"),
            max_tokens,
            seed=self.args.order_seed,
            num_processes=self.args.world_size,
            process_index=self.args.process_index,
            mixture=self.mixture,
        )
        sampler, collate = self._batch_sampler, stock.collate_fn
        self._has_packed = self._packs_batches
        if self._has_packed:
            config, sizes = self.model.config, sizes_for(sampler)
            collate = partial(collate_packed, collate, config, sizes, max_tokens)
        return with_batches(stock, sampler, collate, self.accelerator.device)

    @property
    def _shares_batches(self) -> bool:
        """Whether several processes work on one batch."""
        return self.get_tp_size() * self.get_cp_size() * self.get_sp_size() > 1

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Returns the stock loader, or one of token-budget batches for `args.eval_max_tokens`.

        Where outputs are scored in the order of the data, it is the stock loader.
        """
        stock = super().get_eval_dataloader(eval_dataset)
        budget = self.args.eval_max_tokens
        computes_loss_alone = (
            self.args.prediction_loss_only or self._scores_texts or self.compute_metrics is None
        )
        if budget is None or not computes_loss_alone or self._shares_batches:
            return stock
        of_process = self.args.world_size, self.args.process_index
        sampler = evaluation_sampler(stock.dataset, budget, *of_process)
        if sampler is None:
            return stock
        return with_batches(stock, sampler, stock.collate_fn, self.accelerator.device)

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Returns the number of examples per optimizer step; its mean if `max_tokens` is set."""
        if (sampler := self._batch_sampler) is None:
            return int(super().get_total_train_batch_size(args))
        batches_per_step: int = args.gradient_accumulation_steps * args.world_size
        return round(len(sampler.source_lengths) * batches_per_step / sampler.num_batches)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Returns the optimizer that `args.optim` names; Muon needs whole matrices."""
        if self.accelerator.is_fsdp2:
            group_tied_modules(self.model, self.accelerator.state.fsdp_plugin)
        wants_muon = self.args.optim == MUON and self.optimizer_cls_and_kwargs is None
        if self.optimizer is None and wants_muon:
            if self.is_fsdp_enabled or self.is_deepspeed_enabled:
                raise ValueError(
                    "`optim` 'muon' needs whole matrices, which FSDP and DeepSpeed divide: use DDP "
                    "or another `optim`."
                )
            trained: Any = self.model if model is None else model
            self.optimizer = make_muon(
                trained,
                lr=self.args.learning_rate,
                muon_lr=self.args.muon_learning_rate,
                momentum=self.args.muon_momentum,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
                weight_decay=self.args.weight_decay,
                decayed=self.get_decay_parameter_names(trained),
            )
        return super().create_optimizer(model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Returns the schedule that `args.lr_scheduler_type` names.

        "noam" is the schedule of the paper; others have the defaults of `schedule_options`.
        """
        if self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        kind, warmup = self.args.lr_scheduler_type, self.args.get_warmup_steps(num_training_steps)
        chosen = cast(Any, optimizer or self.optimizer)
        options = schedule_options(self.args, num_training_steps)
        schedule: Any
        if kind == NOAM:
            options = {"d_model": self.model.config.hidden_size, **options}
            schedule = NoamSchedule(chosen, warmup_steps=int(warmup), **options)
        else:
            schedule = get_scheduler(kind, chosen, warmup, num_training_steps, options)
        self.lr_scheduler = schedule
        # Private, as in the base class: a second training then makes a new schedule.
        self._created_lr_scheduler = True
        return cast("torch.optim.lr_scheduler.LRScheduler", schedule)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Returns the stock loss; in training, with the additions of the arguments."""
        # A copy: the base class may take the labels out of it.
        given, inputs = inputs, {name: inputs[name] for name in inputs if name != LINKS}
        if not model.training:  # the mean of this batch, not its share of all processes' mean
            return super().compute_loss(model, inputs, return_outputs)
        if self.args.guided_alignment is None:
            loss, outputs = self._objective_loss(model, inputs, num_items_in_batch)
        else:
            with recorded_heads(self.model) as records:
                loss, outputs = self._objective_loss(model, inputs, num_items_in_batch)
            count = (given["labels"] != IGNORE_INDEX).sum()
            mean = mean_per_item(guided_loss(records, given), count, num_items_in_batch)
            mean = mean * self._share_of_processes(num_items_in_batch)
            loss = loss + self.args.guided_alignment_weight * mean
        return (loss, outputs) if return_outputs else loss

    def _objective_loss(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items: torch.Tensor | int | None
    ) -> tuple[torch.Tensor, Any]:
        """Returns the loss of the predicted tokens, and outputs, of one pass or of two."""
        rdrop, simcut = self.args.rdrop_alpha, self.args.simcut_alpha
        if not (rdrop or simcut or self.teachers):
            return cast(
                "tuple[torch.Tensor, Any]", super().compute_loss(model, inputs, True, num_items)
            )
        if is_packed(inputs):
            raise ValueError(
                "R-Drop, SimCut and teachers need padded batches, and the collator packs them."
            )
        if "decoder_input_ids" not in inputs:
            shifted = self.model.prepare_decoder_input_ids_from_labels(labels=inputs["labels"])
            inputs = {**inputs, "decoder_input_ids": shifted}
        smoothing = self.args.label_smoothing_factor
        smoothing = smoothing or getattr(self.model.config, "label_smoothing", 0.0)
        of_teachers = 0.0 if self.teachers is None else self.teachers.weight
        options: Any = (smoothing, num_items, 1 - of_teachers)
        outputs: Any
        if rdrop:
            loss, outputs = rdrop_loss(model, inputs, rdrop, *options)
        elif simcut:
            loss, outputs = simcut_loss(model, inputs, simcut, self.args.simcut_cutoff, *options)
        else:
            unlabelled = {name: value for name, value in inputs.items() if name != "labels"}
            outputs = model(**{"use_cache": False, **unlabelled})
            loss = token_loss(outputs["logits"], inputs["labels"], smoothing, num_items)
            loss = (1 - of_teachers) * loss
        if self.teachers is not None:
            total = self.teachers.divergence(outputs["logits"], inputs)
            mean = mean_per_item(total, (inputs["labels"] != IGNORE_INDEX).sum(), num_items)
            loss = loss + of_teachers * mean
        return loss * self._share_of_processes(num_items), outputs

    def _share_of_processes(self, num_items: torch.Tensor | int | None) -> int:
        """Returns the factor for the processes whose tokens `num_items` counts together."""
        if num_items is None or not self.args.average_tokens_across_devices:
            return 1
        return int(self.accelerator.num_processes // self.get_tp_size())

    @property
    def _scores_texts(self) -> bool:
        """Whether `compute_metrics` scores the model, which each process has as a whole."""
        is_sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled or self.get_tp_size() > 1
        return not is_sharded and getattr(self.compute_metrics, "score_model", None) is not None

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """Evaluates as in transformers, or with the scores of `score_model`.

        The loss is the mean over all labels; in the base class it is a mean of batches. Rows that
        Accelerate repeats so that all processes have equally many do not count.
        """
        only_loss = prediction_loss_only or self.args.prediction_loss_only
        scores_texts = self._scores_texts and not only_loss
        self._scored = []
        if self.args.predict_with_generate:
            # Private: the further arguments of `evaluate` and `predict`.
            given, config = getattr(self, "_gen_kwargs", {}), self.model.config
            search = Search.of_training(self.args, self.model.generation_config, config)
            self._search = Search.resolve(search.settings, given, config=config)
        self.gather_function = self.accelerator.gather_for_metrics  # leaves out repeated rows
        output = super().evaluation_loop(
            dataloader, description, only_loss or scores_texts, ignore_keys, metric_key_prefix
        )
        metrics = cast("dict[str, float]", output.metrics)
        if (name := f"{metric_key_prefix}_loss") in metrics:
            metrics[name] = self._mean_loss()
        if scores_texts:
            scores = cast(Any, self.compute_metrics).score_trained(self)
            metrics |= {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        return output

    def _mean_loss(self) -> float:
        """Returns the mean loss over the labels of all processes; 0 if there are none.

        With `args.logging_nan_inf_filter`, batches whose loss is not finite are left out, as in
        transformers, unless all are.
        """
        pairs = [(loss.item(), int(count)) for loss, count in self._scored]
        rows = gather_object(pairs) if self.args.world_size > 1 else pairs
        finite = [row for row in rows if math.isfinite(row[0])]
        if finite and self.args.logging_nan_inf_filter:
            rows = finite
        return sum(loss * count for loss, count in rows) / max(1, sum(count for _, count in rows))

    def _without_repetitions(self, labels: torch.Tensor) -> torch.Tensor:
        """Masks the labels of the rows that Accelerate has added to the last batch."""
        state = self.accelerator.gradient_state
        if not state.end_of_dataloader or state.remainder <= 0:
            return labels
        kept = max(0, state.remainder - self.args.process_index * len(labels))
        masked = labels.clone()
        masked[kept:] = IGNORE_INDEX
        return masked

    def prediction_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **options: Any
    ) -> Any:
        """Scores one batch, as in transformers, and keeps its loss; links have no part in it.

        The base class writes the default of each setting into the model's generation config, which
        is saved with the model. Here the config stays.
        """
        inputs = {name: value for name, value in inputs.items() if name != LINKS}
        prompts: dict[str, Any] = {}
        if (labels := inputs.get("labels")) is not None:
            if self._search is not None:
                start = self.model.config.decoder_start_token_id
                prompts = language_prompts(self.processing_class, start, labels)
            labels = inputs["labels"] = self._without_repetitions(labels)
        if self._search is not None and options.keys() <= {"ignore_keys"}:
            search = self._search
            if self.is_in_train and labels is not None:
                search = search.capped_by_reference_length(labels.shape[1])
            options = {**options, **prompts, "generation_config": search.settings}
        kept = deepcopy(getattr(self.model, "generation_config", None))
        try:
            loss, outputs, kept_labels = super().prediction_step(model, inputs, *args, **options)
        finally:
            if kept is not None:
                self.model.generation_config = kept
        if loss is not None and labels is not None:
            self._scored.append((cast(Any, loss), (labels != IGNORE_INDEX).sum()))
        return loss, outputs, kept_labels
