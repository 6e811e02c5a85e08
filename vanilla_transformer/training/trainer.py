"""Batches of a fixed budget of tokens, for the stock Trainer.

Sentences differ in length, so batches of a fixed number of sentences are mostly padding and vary
in cost. Here a batch holds as many sentences of similar length as fit into `max_tokens`, padding
included.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)
from transformers.trainer_utils import IntervalStrategy, SchedulerType, has_length

from vanilla_transformer.data.streaming import TokenBudgetStream
from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler, token_lengths
from vanilla_transformer.training.callbacks import EarlyStopping
from vanilla_transformer.training.metrics import METRICS
from vanilla_transformer.training.rdrop import rdrop_loss
from vanilla_transformer.training.scheduled_sampling import mix_predictions
from vanilla_transformer.training.schedules import NOAM, NoamSchedule

__all__ = [
    "TokenBudgetBatchSampler",
    "TokenBudgetSeq2SeqTrainer",
    "TokenBudgetTrainingArguments",
    "token_lengths",
]

_SCHEDULES = (NOAM, *(kind.value for kind in SchedulerType))
_LOADER_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


@dataclass
class TokenBudgetTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with token budgets, the paper's schedule and other losses.

    `lr_scheduler_type` may also be "noam": `warmup_steps` is then that of the paper's formula, and
    `lr_scheduler_kwargs` may hold `factor` (1 by default) and `d_model` (by default the model's).
    For an error rate (wer, per, ter) as `metric_for_best_model`, less is better.

    Raises:
        ValueError: when `max_tokens` or `early_stopping_patience` is below 1, `rdrop_alpha` is
            negative, `scheduled_sampling` is no share, or when options contradict each other.
    """

    # None, which the base does not have: as there are data.
    do_train: bool | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Whether to train; by default if there are training data."}
    )
    do_eval: bool | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Whether to score the validation data at the end; by default if any."},
    )
    do_predict: bool | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Whether to score the test data; by default if any."}
    )
    max_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of source and target, padding included, in a training batch of one "
            "process. When set, batches hold sentences of similar length and "
            "per_device_train_batch_size is not used."
        },
    )
    # A plain name, because the base's type makes the command line refuse names that it lacks.
    lr_scheduler_type: str = field(
        default="linear",
        metadata={"help": f"Schedule of the learning rate: {', '.join(_SCHEDULES)}."},
    )
    stream_buffer: int = field(
        default=10_000,
        metadata={
            "help": "Examples held at a time to make batches of max_tokens from an IterableDataset."
        },
    )
    scheduled_sampling: float | None = field(
        default=None,
        metadata={
            "help": "Share of the decoder's inputs that are the model's own predictions at the end "
            "of training; it grows from 0 in proportion to the steps. Costs a forward pass a step."
        },
    )
    rdrop_alpha: float | None = field(
        default=None,
        metadata={
            "help": "Weight of R-Drop's divergence between two passes with other dropout; 5 in the "
            "paper. Doubles the memory and the time of a step."
        },
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop when so many evaluations in turn brought no better metric_for_best_model."
        },
    )

    def __post_init__(self) -> None:
        noam = self.lr_scheduler_type == NOAM
        if noam:
            self.lr_scheduler_type = SchedulerType.INVERSE_SQRT  # the base knows its own names only
        self.metric_is_chosen = self.metric_for_best_model is not None  # the base sets "loss"
        asked = self.greater_is_better
        # The base wants to be told, before it takes bf16.
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        super().__post_init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        if noam:
            self.lr_scheduler_type = NOAM
            self._check_noam()
        if self.do_eval is None and self.eval_strategy != IntervalStrategy.NO:
            self.do_eval = True  # as the base does for False
        self._choose_direction(asked)
        self._check_stopping()
        if self.scheduled_sampling is not None and not 0 <= self.scheduled_sampling <= 1:
            raise ValueError(
                f"scheduled_sampling is {self.scheduled_sampling}: it must be from 0 to 1"
            )
        if self.rdrop_alpha is not None and self.rdrop_alpha < 0:
            raise ValueError(f"rdrop_alpha is {self.rdrop_alpha}: it must not be negative")
        if self.max_tokens is not None:
            self._check_budget(self.max_tokens)

    def _check_noam(self) -> None:
        default = type(self).__dataclass_fields__["learning_rate"].default
        if self.learning_rate != default:
            raise ValueError(
                f"learning_rate={self.learning_rate} has no effect beside lr_scheduler_type="
                '"noam", whose formula gives the rate: set lr_scheduler_kwargs={"factor": ...}'
            )
        if self.warmup_steps <= 0:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}: lr_scheduler_type='noam' needs some; the "
                "paper has 4000"
            )
        given: Any = self.lr_scheduler_kwargs or {}
        if unknown := sorted(set(given) - {"factor", "d_model"}):
            raise ValueError(f"lr_scheduler_kwargs {unknown} are unknown: noam has factor, d_model")

    def _choose_direction(self, asked: bool | None) -> None:
        """Makes less be better where the metric that chooses the best model is an error rate."""
        name = (self.metric_for_best_model or "").rpartition("_")[2]
        if name not in METRICS or not METRICS[name].lower_is_better:
            return
        if asked:
            raise ValueError(
                f"greater_is_better=True does not fit metric_for_best_model={name!r}, an error "
                "rate: leave it out"
            )
        self.greater_is_better = False

    def _check_stopping(self) -> None:
        if self.early_stopping_patience is None:
            return
        if self.early_stopping_patience < 1:
            raise ValueError(
                f"early_stopping_patience is {self.early_stopping_patience}: it must be at least 1"
            )
        if self.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "early_stopping_patience counts evaluations: set eval_strategy to steps or epoch"
            )

    def _check_budget(self, max_tokens: int) -> None:
        for name, number in (("max_tokens", max_tokens), ("stream_buffer", self.stream_buffer)):
            if number < 1:
                raise ValueError(f"{name} is {number}: it must be at least 1")
        rivals: dict[str, Any] = {
            "train_sampling_strategy": "random",
            "auto_find_batch_size": False,
            "dataloader_drop_last": False,
        }
        for name, default in rivals.items():
            if (value := getattr(self, name)) != default:
                raise ValueError(
                    f"{name}={value!r} has no effect beside max_tokens={max_tokens}: "
                    "leave one of them out"
                )


class TokenBudgetSeq2SeqTrainer(Seq2SeqTrainer):
    """The stock `Seq2SeqTrainer`, training on token-budget batches when `args.max_tokens` is set.

    Lengths are those of the columns "input_ids" and "labels". A training set without a length is
    batched as a `TokenBudgetStream`; that needs `max_steps`. Evaluation is unchanged. A run that
    is resumed in the middle of an epoch sees the batches that the uninterrupted run would have
    seen, on one process or several. With `args.rdrop_alpha` the training loss is R-Drop's,
    `args.lr_scheduler_type` may be "noam", and `args.early_stopping_patience` adds the callback
    that stops.
    """

    _batch_sampler: TokenBudgetBatchSampler | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        patience = getattr(self.args, "early_stopping_patience", None)
        callbacks = self.callback_handler.callbacks
        stops = any(isinstance(callback, EarlyStoppingCallback) for callback in callbacks)
        if patience is not None and not stops:
            self.add_callback(EarlyStopping(patience))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the stock loader, with another batch sampler when `args.max_tokens` is set.

        Raises:
            ValueError: when several processes work on one batch (tensor, context or sequence
                parallelism), or as `TokenBudgetBatchSampler` and `TokenBudgetStream` do.
        """
        if self._max_tokens is not None and not has_length(self.train_dataset):
            return self._stream_loader(self._max_tokens)
        stock = super().get_train_dataloader()
        if self._max_tokens is None:
            return stock
        options = {name: getattr(stock, name) for name in _LOADER_OPTIONS}
        sampler = self._batch_sampler = self.token_budget_sampler(self._max_tokens)
        loader: DataLoader[Any] = DataLoader(stock.dataset, batch_sampler=sampler, **options)
        # The sampler picks this process's batches itself. Under Accelerate's sharding wrapper it
        # would miss the epoch that Trainer sets on resuming, which reaches one wrapper deep.
        prepared = prepare_data_loader(
            loader, self.accelerator.device, num_processes=1, process_index=0, put_on_device=True
        )
        return cast("DataLoader[Any]", prepared)

    def token_budget_sampler(self, max_tokens: int) -> TokenBudgetBatchSampler:
        """Return this process's batch sampler over the training set.

        Args:
            max_tokens: the budget of a batch, in tokens of source and target.

        Raises:
            ValueError: as `get_train_dataloader`.
        """
        self._check_parallelism()
        return TokenBudgetBatchSampler(
            token_lengths(self.train_dataset, "input_ids"),
            token_lengths(self.train_dataset, "labels"),
            max_tokens,
            seed=self._order_seed,
            num_processes=self.args.world_size,
            process_index=self.args.process_index,
        )

    def _stream_loader(self, max_tokens: int) -> DataLoader[Any]:
        """Makes the loader of a training set without a length, each process with its share."""
        self._check_parallelism()
        stream = TokenBudgetStream(
            cast(Any, self.train_dataset),
            max_tokens,
            getattr(self.args, "stream_buffer", 10_000),
            seed=self._order_seed,
            num_processes=self.args.world_size,
            process_index=self.args.process_index,
        )
        loader: DataLoader[Any] = DataLoader(
            stream,
            batch_size=None,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            pin_memory=self.args.dataloader_pin_memory,
        )
        # Each process reads its own batches; Accelerate would hand out those of the first one.
        prepared = prepare_data_loader(
            loader,
            self.accelerator.device,
            num_processes=1,
            process_index=0,
            put_on_device=True,
            dispatch_batches=False,
        )
        return cast("DataLoader[Any]", prepared)

    @property
    def _order_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _check_parallelism(self) -> None:
        if self.get_tp_size() * self.get_cp_size() * self.get_sp_size() > 1:
            raise ValueError(
                "max_tokens gives each process its own batches, which tensor, context and sequence "
                "parallelism do not allow: use per_device_train_batch_size"
            )

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Return the examples of an optimisation step: their mean when `max_tokens` is set."""
        if (sampler := self._batch_sampler) is None:
            return int(super().get_total_train_batch_size(args))
        batches_per_step: int = args.gradient_accumulation_steps * args.world_size
        return round(len(sampler.source_lengths) * batches_per_step / sampler.num_batches)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Return the scheduler that `args.lr_scheduler_type` names, the paper's among them."""
        if self.args.lr_scheduler_type != NOAM or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        model: Any = self.model
        given = cast("dict[str, Any]", self.args.lr_scheduler_kwargs or {})
        options = {"d_model": model.config.hidden_size} | given
        warmup = self.args.get_warmup_steps(num_training_steps)
        schedule = NoamSchedule(
            cast(Any, optimizer or self.optimizer), warmup_steps=warmup, **options
        )
        self.lr_scheduler = cast("torch.optim.lr_scheduler.LambdaLR", schedule)
        self._created_lr_scheduler = True  # as the base does: a second training makes a new one
        return schedule

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Return the stock loss; in training as `scheduled_sampling` and `rdrop_alpha` say."""
        if model.training and (final_rate := getattr(self.args, "scheduled_sampling", None)):
            rate = final_rate * min(1.0, self.state.global_step / self.state.max_steps)
            inputs = mix_predictions(self.model, inputs, rate)
        alpha = getattr(self.args, "rdrop_alpha", None)
        if not alpha or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        plain: Any = self.model
        if "decoder_input_ids" not in inputs:
            shifted = plain.prepare_decoder_input_ids_from_labels(labels=inputs["labels"])
            inputs = {**inputs, "decoder_input_ids": shifted}
        smoothing = self.args.label_smoothing_factor
        smoothing = smoothing or getattr(plain.config, "label_smoothing", 0.0)
        loss, outputs = rdrop_loss(model, inputs, alpha, smoothing, num_items_in_batch)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        return (loss, outputs) if return_outputs else loss

    @property
    def _max_tokens(self) -> int | None:
        return cast("int | None", getattr(self.args, "max_tokens", None))
