"""The training arguments: transformers' own, and the options that this package adds."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.trainer_utils import IntervalStrategy, SchedulerType
from transformers.training_args import OptimizerNames

from vanilla_transformer.names import MUON, NOAM, is_error_rate
from vanilla_transformer.options import option
from vanilla_transformer.rules import Rule, check_rules
from vanilla_transformer.training.muon import MUON_LEARNING_RATE, MUON_MOMENTUM

_SCHEDULES = (NOAM, *(kind.value for kind in SchedulerType))
_OPTIMIZERS = (MUON, *(kind.value for kind in OptimizerNames))

RULES = (
    Rule(
        ("lr_scheduler_type",),
        lambda value, options: value == NOAM and options.warmup_steps <= 0,
        "`warmup_steps` is {options.warmup_steps}: with `{name}` {value!r} it must be at least 1; "
        "the paper has 4000.",
    ),
    Rule(
        ("simcut_alpha",),
        lambda _, options: options.rdrop_alpha is not None,
        "`{name}` of {value} and `rdrop_alpha` of {options.rdrop_alpha} both add a second pass: "
        "leave one of them out.",
    ),
    Rule(
        ("simcut_alpha", "guided_alignment"),
        lambda _, options: options.torch_compile,
        "`{name}` {value!r} works inside the model, which `torch_compile` hides: leave one of them "
        "out.",
    ),
    Rule(
        ("activation_checkpointing_kwargs",),
        lambda value, options: options.guided_alignment and bool(value.get("use_reentrant")),
        "`guided_alignment` does not work with `use_reentrant` True in `{name}` {value}: it keeps "
        "no gradient of queries and keys. Set it to False.",
    ),
)


@dataclass
class TokenBudgetTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with token budgets, the paper's schedule, Muon and other losses.

    `lr_scheduler_type` may also be "noam". Then `warmup_steps` is as in the paper's formula, and
    `lr_scheduler_kwargs` may hold `factor` (default 1) and `d_model` (default: the model's). If
    `metric_for_best_model` is an error rate (wer, mismatch, ...), lower is better.

    `optim` may also be "muon": Muon updates the matrices of the layers with `muon_learning_rate`,
    and AdamW all else with `learning_rate`, `adam_beta1`, `adam_beta2` and `adam_epsilon`. The
    schedule, `weight_decay` and `max_grad_norm` apply to both.

    Attributes:
        metric_is_chosen: Whether `metric_for_best_model` was given, not set by transformers.
    """

    _argument_group_name = "training"  # in the help

    # None is not a value of the base class: it means "if there are such data".
    do_eval: bool | None = option(  # type: ignore[assignment]
        "Whether to score the validation data after training. Default: if there are any."
    )
    do_predict: bool | None = option(  # type: ignore[assignment]
        "Whether to score the test data. Default: if there are any."
    )
    predict_with_generate: bool | None = option(  # type: ignore[assignment]
        "Whether evaluations generate texts and score them. A run of the command always does."
    )
    max_tokens: int | None = option(
        "Largest number of tokens in a training batch of one process: source and target together, "
        "padding included. If set, batches hold sentences of similar length, and "
        "per_device_train_batch_size and train_sampling_strategy are not used.",
        ge=1,
    )
    eval_max_tokens: int | None = option(
        "Largest number of tokens in a batch of an evaluation that computes the loss. If set, "
        "per_device_eval_batch_size is not used there.",
        ge=1,
    )
    # Strings, because the command line refuses values that the base class's enums lack.
    optim: str = option(
        f"Optimizer: {', '.join(_OPTIMIZERS)}.",
        OptimizerNames.ADAMW_TORCH_FUSED.value,
        choices=_OPTIMIZERS,
        metavar="NAME",
    )
    lr_scheduler_type: str = option(
        f"Schedule of the learning rate: {', '.join(_SCHEDULES)}. With noam, learning_rate has no "
        "effect.",
        "linear",
        choices=_SCHEDULES,
        metavar="NAME",
    )
    muon_learning_rate: float = option(
        "Peak learning rate of the layers' matrices with `optim` muon; all else has "
        "`learning_rate`.",
        MUON_LEARNING_RATE,
        ge=0,
    )
    muon_momentum: float = option("Momentum with `optim` muon.", MUON_MOMENTUM, ge=0, lt=1)
    rdrop_alpha: float | None = option(
        "Weight of R-Drop's divergence between two passes with different dropout; 5 in the paper. "
        "Doubles the memory and the time of a step.",
        ge=0,
    )
    simcut_alpha: float | None = option(
        "Weight of SimCut's divergence between a pass and one that does not see some tokens; 3 in "
        "the paper. Costs as much as R-Drop.",
        ge=0,
    )
    simcut_cutoff: float = option(
        "Probability that simcut_alpha's second pass does not see a token of source or target.",
        0.05,
        ge=0,
        lt=1,
    )
    guided_alignment: str | None = option(
        "Train a head of each decoder layer to align (Garg et al. 2019): `auto` learns the links "
        "from the training pairs, a file has the word links of each pair in Pharaoh's format "
        "(0-0 1-2)."
    )
    guided_alignment_weight: float = option(
        "Weight of the loss of guided_alignment; 0 turns it off.", 0.3, ge=0
    )
    generation_length_penalty: float | None = option(
        "Exponent of the length by which a beam search divides scores: above 1 favours longer "
        "outputs. Default: as saved with the model, or 1 for a new one."
    )
    logging_steps: float | None = option(  # type: ignore[assignment]
        "Log the training loss every N steps. A number below 1 is a share of all steps. "
        "Default: 0.01."
    )
    logging_nan_inf_filter: bool = option(
        "Leave batches whose loss is not finite out of the logged loss. A training stops at such a "
        "loss anyway, except with fp16; on a GPU, the filter waits for each batch.",
        False,
    )
    early_stopping_patience: int | None = option(
        "Stop after this many evaluations in a row without a better metric_for_best_model.", ge=1
    )

    def __post_init__(self) -> None:
        schedule, optimizer = self.lr_scheduler_type, self.optim
        if schedule == NOAM:  # the base class only accepts its own names
            self.lr_scheduler_type = SchedulerType.INVERSE_SQRT
        if optimizer == MUON:
            self.optim = OptimizerNames.ADAMW_TORCH_FUSED
        if self.logging_steps is None:
            self.logging_steps = 0.01
            if self.eval_strategy == IntervalStrategy.STEPS:  # the base takes logging_steps
                self.eval_steps = self.eval_steps or 500
        if self.guided_alignment_weight == 0:
            self.guided_alignment = None
        self.metric_is_chosen = self.metric_for_best_model is not None  # the base sets "loss"
        if is_error_rate(self.metric_for_best_model or ""):
            self.greater_is_better = bool(self.greater_is_better)  # the base takes None for True
        # Without this, the base class refuses bf16 on a machine without an accelerator.
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        super().__post_init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        if schedule == NOAM:
            self.lr_scheduler_type = NOAM
        if optimizer == MUON:
            self.optim = MUON
        if self.do_eval is None and self.eval_strategy != IntervalStrategy.NO:
            self.do_eval = True  # as the base class does for False
        if self.torch_compile:  # a layer once for batches of all sizes, and not the whole model
            os.environ.setdefault("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true")
            os.environ.setdefault("ACCELERATE_DYNAMO_USE_DYNAMIC", "true")
        check_rules(RULES, self)

    @property
    def order_seed(self) -> int:
        """Seed of the order of the examples."""
        return self.seed if self.data_seed is None else self.data_seed

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for a pickle of the arguments, without the token of the Hub."""
        return {**vars(self), "hub_token": None}
