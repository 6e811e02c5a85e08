"""The training arguments: those of transformers, and the options that this package adds."""

import math
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.trainer_utils import IntervalStrategy, SchedulerType
from transformers.training_args import OptimizerNames

from vanilla_transformer.training.metrics import METRICS
from vanilla_transformer.training.muon import MUON, MUON_LEARNING_RATE, MUON_MOMENTUM
from vanilla_transformer.training.option_checks import (
    check_accelerator_options,
    check_direction,
    check_json_options,
    check_names,
    check_numbers,
    check_schedule,
)
from vanilla_transformer.training.schedules import NOAM

_SCHEDULES = (NOAM, *(kind.value for kind in SchedulerType))
_OPTIMIZERS = (MUON, *(kind.value for kind in OptimizerNames))


@dataclass
class TokenBudgetTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with token budgets, the paper's schedule, Muon and other losses.

    `lr_scheduler_type` may also be "noam". Then `warmup_steps` is that of the paper's formula, and
    `lr_scheduler_kwargs` may hold `factor` (default 1) and `d_model` (default: the model's). If
    `metric_for_best_model` is an error rate (wer, per, ter), lower is better.

    `optim` may also be "muon": Muon updates the matrices of the layers with `muon_learning_rate`,
    and AdamW all else with `learning_rate`, `adam_beta1`, `adam_beta2` and `adam_epsilon`. The
    schedule, `weight_decay` and `max_grad_norm` apply to both.

    Attributes:
        metric_is_chosen: Whether `metric_for_best_model` was given, not set by transformers.
        chosen_direction: `greater_is_better` as it was given; None: it was not.

    Raises:
        ValueError: If a number is out of range, `lr_scheduler_kwargs` do not fit the schedule, or
            options contradict each other.
    """

    # None is not a value of the base class: it means "if there are such data".
    do_train: bool | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Whether to train. By default, if training data are given."},
    )
    do_eval: bool | None = field(  # type: ignore[assignment]
        default=None,
        metadata={
            "help": "Whether to score the validation data after training. By default, if "
            "validation data are given."
        },
    )
    do_predict: bool | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Whether to score the test data. By default, if test data are given."},
    )
    max_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Largest number of tokens in a training batch of one process: source and "
            "target together, padding included. If set, batches hold sentences of similar length, "
            "and per_device_train_batch_size is not used."
        },
    )
    # Strings, because the command line refuses values that the base class's enums lack.
    optim: str = field(
        default=OptimizerNames.ADAMW_TORCH_FUSED.value,
        metadata={"help": f"Optimizer: {', '.join(_OPTIMIZERS)}."},
    )
    lr_scheduler_type: str = field(
        default="linear",
        metadata={"help": f"Schedule of the learning rate: {', '.join(_SCHEDULES)}."},
    )
    muon_learning_rate: float = field(
        default=MUON_LEARNING_RATE,
        metadata={
            "help": "Peak learning rate of the layers' matrices with `optim` muon; all else has "
            "`learning_rate`."
        },
    )
    muon_momentum: float = field(
        default=MUON_MOMENTUM, metadata={"help": "Momentum with `optim` muon."}
    )
    stream_buffer: int = field(
        default=10_000,
        metadata={
            "help": "Number of examples that are held in memory to make batches of max_tokens from "
            "an IterableDataset."
        },
    )
    scheduled_sampling: float | None = field(
        default=None,
        metadata={
            "help": "Share of the decoder's input tokens that are replaced by the model's own "
            "predictions at the end of training, from 0 to 1. The share grows linearly from 0. "
            "Each step takes one more forward pass."
        },
    )
    rdrop_alpha: float | None = field(
        default=None,
        metadata={
            "help": "Weight of R-Drop's divergence between two passes with different dropout; 5 in "
            "the paper. Doubles the memory and the time of a step."
        },
    )
    guided_alignment: str | None = field(
        default=None,
        metadata={
            "help": "Train a head of cross-attention to align (Garg et al. 2019): a file with the "
            "word links of each training pair in Pharaoh's format (0-0 1-2), or own for what the "
            "heads of the layer attend to on average. In Python, the training set has the links of "
            "tokens in its column alignment."
        },
    )
    guided_alignment_weight: float = field(
        default=0.05, metadata={"help": "Weight of the loss of guided_alignment."}
    )
    guided_alignment_layer: int | None = field(
        default=None,
        metadata={
            "help": "Layer of the decoder that guided_alignment trains, counted from 0. Default: "
            "the last but one."
        },
    )
    guided_alignment_head: int = field(
        default=0, metadata={"help": "Head that guided_alignment trains, counted from 0."}
    )
    generation_length_penalty: float | None = field(
        default=None,
        metadata={
            "help": "Exponent of the length by which a beam search divides scores: above 1 favours "
            "longer outputs. Default: as saved with the model, or 1 for a new one."
        },
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop after this many evaluations in a row without a better "
            "metric_for_best_model."
        },
    )

    def __post_init__(self) -> None:
        if self.lr_scheduler_type not in _SCHEDULES:  # an enum of these texts is one of them, too
            raise ValueError(
                f"`lr_scheduler_type` {self.lr_scheduler_type!r} is unknown: choose from "
                f"{', '.join(_SCHEDULES)}."
            )
        if self.optim not in _OPTIMIZERS:
            raise ValueError(
                f"`optim` {self.optim!r} is unknown: choose from {', '.join(_OPTIMIZERS)}."
            )
        is_noam, is_muon = self.lr_scheduler_type == NOAM, self.optim == MUON
        if is_noam:  # the base class only accepts its own names
            self.lr_scheduler_type = SchedulerType.INVERSE_SQRT
        if is_muon:
            self.optim = OptimizerNames.ADAMW_TORCH_FUSED
        self.metric_is_chosen = self.metric_for_best_model is not None  # the base sets "loss"
        self.chosen_direction = self.greater_is_better
        check_json_options(self)
        check_accelerator_options(self)
        check_names(self)
        check_numbers(self)
        # Without this, the base class refuses bf16 on a machine without an accelerator.
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        super().__post_init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        if is_noam:
            self.lr_scheduler_type = NOAM
            self._check_noam_options()
        else:
            check_schedule(self)
        if is_muon:
            self.optim = MUON
        self._check_muon_options()
        if self.do_eval is None and self.eval_strategy != IntervalStrategy.NO:
            self.do_eval = True  # as the base class does for False
        self._choose_direction()
        self._check_early_stopping()
        self._check_losses()
        if self.max_tokens is not None:
            self._check_token_budget(self.max_tokens)

    def has_default(self, name: str) -> bool:
        """Returns whether an option has the value that it has if it is not given.

        Args:
            name: Name of the option.
        """
        return bool(getattr(self, name) == type(self).__dataclass_fields__[name].default)

    def _check_noam_options(self) -> None:
        if not self.has_default("learning_rate"):
            raise ValueError(
                f"`learning_rate` of {self.learning_rate} has no effect with `lr_scheduler_type` "
                '"noam", whose formula sets the rate: use lr_scheduler_kwargs={"factor": ...}.'
            )
        if self.warmup_steps <= 0:
            raise ValueError(
                f"`warmup_steps` is {self.warmup_steps}: with `lr_scheduler_type` 'noam' it must "
                "be at least 1; the paper has 4000."
            )
        options = cast("dict[str, Any]", self.lr_scheduler_kwargs or {})
        if unknown := sorted(options.keys() - {"factor", "d_model"}):
            raise ValueError(
                f"`lr_scheduler_kwargs` {unknown} are unknown: the schedule 'noam' takes factor "
                "and d_model."
            )
        for name, value in options.items():
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(
                    f"`lr_scheduler_kwargs` have a {name} of {value!r}: it must be a number above "
                    "0."
                )

    def _check_muon_options(self) -> None:
        if self.optim == MUON:
            given = {"optim_args": self.optim_args, "fsdp": self.fsdp, "deepspeed": self.deepspeed}
            for name, remedy in {
                "optim_args": "use `muon_learning_rate` and `muon_momentum`",
                "fsdp": "Muon needs whole matrices, so use DDP or another `optim`",
                "deepspeed": "Muon needs whole matrices, so use DDP or another `optim`",
            }.items():
                if given[name]:
                    raise ValueError(
                        f"`{name}` {given[name]!r} does not work with `optim` 'muon': {remedy}."
                    )
            return
        for name in ("muon_learning_rate", "muon_momentum"):
            if not self.has_default(name):
                raise ValueError(
                    f"`{name}` of {getattr(self, name)} has no effect with `optim` "
                    f"{OptimizerNames(self.optim).value!r}: set "
                    "`optim` to muon, or leave it out."
                )

    def _choose_direction(self) -> None:
        """Sets `greater_is_better` to False if an error rate chooses the best model."""
        metric = self.metric_for_best_model or ""
        check_direction(metric, self.chosen_direction if self.metric_is_chosen else None)
        name = metric.rpartition("_")[2]
        if name in METRICS and METRICS[name].lower_is_better:
            self.greater_is_better = False

    def _check_early_stopping(self) -> None:
        if self.early_stopping_patience is None:
            return
        if self.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "`early_stopping_patience` counts evaluations, but `eval_strategy` is 'no': set "
                "`eval_strategy` to steps or epoch."
            )

    def _check_losses(self) -> None:
        if self.scheduled_sampling is not None and not 0 <= self.scheduled_sampling <= 1:
            raise ValueError(
                f"`scheduled_sampling` is {self.scheduled_sampling}: it must be from 0 to 1."
            )
        if self.guided_alignment is not None:
            self._check_guided_alignment()
            return
        for name in ("weight", "layer", "head"):
            if not self.has_default(f"guided_alignment_{name}"):
                raise ValueError(
                    f"`guided_alignment_{name}` of {getattr(self, f'guided_alignment_{name}')} has "
                    "no effect without `guided_alignment`: give both, or leave it out."
                )

    def _check_guided_alignment(self) -> None:
        if self.guided_alignment_weight == 0:
            raise ValueError(
                "`guided_alignment_weight` is 0, which trains no alignment: give a number above 0, "
                "e.g. 0.05, or leave `guided_alignment` out."
            )
        if self.torch_compile:
            raise ValueError(
                "`guided_alignment` reads queries and keys inside the model, which `torch_compile` "
                "hides: leave one of them out."
            )
        for name in ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"):
            if (getattr(self, name, None) or {}).get("use_reentrant"):
                raise ValueError(
                    f"`guided_alignment` does not work with `use_reentrant` True in `{name}`: it "
                    "keeps no gradient of queries and keys. Set it to False."
                )

    def _check_token_budget(self, max_tokens: int) -> None:
        for name, number in (("max_tokens", max_tokens), ("stream_buffer", self.stream_buffer)):
            if number < 1:
                raise ValueError(f"`{name}` is {number}: it must be at least 1.")
        ignored: dict[str, Any] = {
            "train_sampling_strategy": "random",
            "auto_find_batch_size": False,
            "dataloader_drop_last": False,
        }
        for name, default in ignored.items():
            if (value := getattr(self, name)) != default:
                raise ValueError(
                    f"`{name}` of {value!r} has no effect with `max_tokens` of {max_tokens}: leave "
                    "one of them out."
                )
