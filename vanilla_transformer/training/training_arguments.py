"""The training arguments: those of transformers, and the options that this package adds."""

import json
import math
import os
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import DynamoBackend
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.trainer_utils import IntervalStrategy, SchedulerType
from transformers.training_args import OptimizerNames

from vanilla_transformer.data.arguments import option
from vanilla_transformer.names import ERROR_RATES, METRIC_NAMES, MUON, NOAM
from vanilla_transformer.rules import (
    Rule,
    at_least,
    check_rules,
    is_given,
    one_of,
    only_with,
    within,
)
from vanilla_transformer.training.muon import MUON_LEARNING_RATE, MUON_MOMENTUM
from vanilla_transformer.training.schedules import check_schedule

_SCHEDULES = (NOAM, *(kind.value for kind in SchedulerType))
_OPTIMIZERS = (MUON, *(kind.value for kind in OptimizerNames))
_JSON_OPTIONS = (
    "accelerator_config",
    "activation_checkpointing_kwargs",
    "deepspeed",
    "fsdp_config",
    "gradient_checkpointing_kwargs",
    "lr_scheduler_kwargs",
)


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
        ImportError: If the package of an optimizer is missing.
        ValueError: If an option breaks one of `RULES_BEFORE` or `RULES_AFTER`, is no JSON object
            where it should be one, or if `lr_scheduler_kwargs` do not fit the schedule.
    """

    # None is not a value of the base class: it means "if there are such data".
    do_train: bool | None = option(  # type: ignore[assignment]
        "Whether to train. By default, if training data are given."
    )
    do_eval: bool | None = option(  # type: ignore[assignment]
        "Whether to score the validation data after training. By default, if validation data are "
        "given."
    )
    do_predict: bool | None = option(  # type: ignore[assignment]
        "Whether to score the test data. By default, if test data are given."
    )
    predict_with_generate: bool | None = option(  # type: ignore[assignment]
        "Whether evaluations generate texts and score them. A run of the command always does."
    )
    max_tokens: int | None = option(
        "Largest number of tokens in a training batch of one process: source and target together, "
        "padding included. If set, batches hold sentences of similar length, and "
        "per_device_train_batch_size is not used."
    )
    eval_max_tokens: int | None = option(
        "The same for a batch of an evaluation that computes the loss alone, as those of a run do. "
        "If set, per_device_eval_batch_size is not used there."
    )
    # Strings, because the command line refuses values that the base class's enums lack.
    optim: str = option(
        f"Optimizer: {', '.join(_OPTIMIZERS)}.", OptimizerNames.ADAMW_TORCH_FUSED.value
    )
    lr_scheduler_type: str = option(
        f"Schedule of the learning rate: {', '.join(_SCHEDULES)}.", "linear"
    )
    muon_learning_rate: float = option(
        "Peak learning rate of the layers' matrices with `optim` muon; all else has "
        "`learning_rate`.",
        MUON_LEARNING_RATE,
    )
    muon_momentum: float = option("Momentum with `optim` muon.", MUON_MOMENTUM)
    stream_buffer: int = option(
        "Number of examples that are held in memory to make batches of max_tokens from an "
        "IterableDataset.",
        10_000,
    )
    rdrop_alpha: float | None = option(
        "Weight of R-Drop's divergence between two passes with different dropout; 5 in the paper. "
        "Doubles the memory and the time of a step."
    )
    simcut_alpha: float | None = option(
        "Weight of SimCut's divergence between a pass and one that does not see some tokens; 3 in "
        "the paper. Doubles the memory and the time of a step."
    )
    simcut_cutoff: float = option(
        "Probability that simcut_alpha's second pass does not see a token of source or target.",
        0.05,
    )
    guided_alignment: str | None = option(
        "Train a head of cross-attention to align (Garg et al. 2019): a file with the word links "
        "of each training pair in Pharaoh's format (0-0 1-2), or own for what the heads of the "
        "layer attend to on average. In Python, the training set has the links of tokens in its "
        "column alignment."
    )
    guided_alignment_weight: float = option("Weight of the loss of guided_alignment.", 0.05)
    guided_alignment_layer: int | None = option(
        "Layer of the decoder that guided_alignment trains, counted from 0. Default: the last but "
        "one."
    )
    guided_alignment_head: int = option("Head that guided_alignment trains, counted from 0.", 0)
    generation_length_penalty: float | None = option(
        "Exponent of the length by which a beam search divides scores: above 1 favours longer "
        "outputs. Default: as saved with the model, or 1 for a new one."
    )
    logging_nan_inf_filter: bool = option(
        "Leave batches whose loss is not finite out of the logged loss. A training stops at such a "
        "loss anyway, except with fp16; on a GPU, the filter waits for each batch.",
        False,
    )
    early_stopping_patience: int | None = option(
        "Stop after this many evaluations in a row without a better metric_for_best_model."
    )

    def __post_init__(self) -> None:
        check_rules(RULES_BEFORE, self)
        _check_json_options(self)
        schedule, optimizer = self.lr_scheduler_type, self.optim
        if schedule == NOAM:  # the base class only accepts its own names
            self.lr_scheduler_type = SchedulerType.INVERSE_SQRT
        if optimizer == MUON:
            self.optim = OptimizerNames.ADAMW_TORCH_FUSED
        self.metric_is_chosen = self.metric_for_best_model is not None  # the base sets "loss"
        self.chosen_direction = self.greater_is_better
        # Without this, the base class refuses bf16 on a machine without an accelerator.
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        super().__post_init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        # Names a package that the optimizer needs and that is missing, before data are encoded.
        Seq2SeqTrainer.get_optimizer_cls_and_kwargs(self, cast(Any, torch.nn.Linear(1, 1)))
        if schedule == NOAM:
            self.lr_scheduler_type = NOAM
        else:
            check_schedule(self)
        if optimizer == MUON:
            self.optim = MUON
        if self.do_eval is None and self.eval_strategy != IntervalStrategy.NO:
            self.do_eval = True  # as the base class does for False
        metric = self.metric_for_best_model or ""
        check_direction(metric, self.chosen_direction if self.metric_is_chosen else None)
        if metric.rpartition("_")[2] in ERROR_RATES:
            self.greater_is_better = False
        check_rules(RULES_AFTER, self)
        is_on_gpus = self.world_size > 1 and self.distributed_state.distributed_type != "MULTI_CPU"
        if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true" and not is_on_gpus:
            raise ValueError(
                f"The launch file asks for FSDP, which divides the weights over several GPUs, but "
                f"this training has {self.world_size} process(es) on "
                f"{'the CPU' if self.use_cpu else 'a GPU'}: start it with "
                "scripts/accelerate/ddp.yaml."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a pickle of the arguments holds: not the token of the Hub."""
        return {**vars(self), "hub_token": None}


_NOT_INFINITE = tuple(
    field.name for field in fields(TokenBudgetTrainingArguments) if field.name != "max_grad_norm"
)
RULES_BEFORE = (
    one_of(_SCHEDULES, "lr_scheduler_type"),
    one_of(_OPTIMIZERS, "optim"),
    Rule(
        ("optim_args",),
        lambda value, _: any(part.count("=") != 1 for part in value.split(",") if value),
        "`{name}` {value!r} cannot be read: give options as name=value, with commas between them.",
    ),
    Rule(
        ("report_to",),
        lambda value, _: (
            not {*([value] if isinstance(value, str) else value)} - {"all", "none"}
            <= INTEGRATION_TO_CALLBACK.keys()
        ),
        "`{name}` {value!r} is unknown: choose from all, none, "
        f"{', '.join(sorted(INTEGRATION_TO_CALLBACK))}.",
    ),
    Rule(
        _NOT_INFINITE,
        lambda value, _: isinstance(value, float) and not math.isfinite(value),
        "`{name}` is {value}: give a finite number.",
    ),
    at_least(
        1,
        *("gradient_accumulation_steps", "eval_accumulation_steps", "early_stopping_patience"),
        *("per_device_train_batch_size", "per_device_eval_batch_size", "generation_num_beams"),
        *("max_tokens", "eval_max_tokens", "stream_buffer"),
    ),
    at_least(2, "generation_max_length"),
    at_least(
        0,
        *("learning_rate", "muon_learning_rate", "weight_decay", "adam_epsilon", "max_grad_norm"),
        *("warmup_steps", "rdrop_alpha", "simcut_alpha", "guided_alignment_weight"),
        *("dataloader_num_workers", "logging_steps", "eval_steps", "save_steps"),
    ),
    within(
        *(0, 1, "adam_beta1", "adam_beta2", "muon_momentum"),
        *("label_smoothing_factor", "simcut_cutoff"),
        ends="[)",
    ),
    within(0, 2**32 - 1, "seed", "data_seed"),
    within(0, math.inf, "num_train_epochs", ends="()"),
    Rule(
        ("max_steps",),
        lambda value, _: value < 1,
        "`{name}` is {value}: it must be at least 1, or -1 for epochs.",
    ),
    Rule(
        ("use_liger_kernel",),
        lambda _, options: find_spec("liger_kernel") is None,
        "`{name}` {value} needs the package liger-kernel: install it, or leave the option out.",
    ),
    Rule(
        ("torch_compile_backend",),
        lambda value, _: (
            value.upper() not in DynamoBackend.__members__
            or value not in torch.compiler.list_backends(())
        ),
        "`{name}` {value!r} is no backend that is installed: leave it out.",
    ),
)
"""The rules that are checked before transformers reads the options."""

RULES_AFTER = (
    Rule(
        ("metric_for_best_model",),
        lambda value, options: options.prediction_loss_only and not value.endswith("loss"),
        "`{name}` {value!r} is not computed with `prediction_loss_only`: leave one of them out.",
    ),
    Rule(
        ("lr_scheduler_type",),
        lambda value, options: value == NOAM and is_given(options, "learning_rate"),
        "`learning_rate` of {options.learning_rate} has no effect with `{name}` {value!r}, whose "
        'formula sets the rate: use lr_scheduler_kwargs={{"factor": ...}}.',
    ),
    Rule(
        ("lr_scheduler_type",),
        lambda value, options: value == NOAM and options.warmup_steps <= 0,
        "`warmup_steps` is {options.warmup_steps}: with `{name}` {value!r} it must be at least 1; "
        "the paper has 4000.",
    ),
    Rule(
        ("lr_scheduler_kwargs",),
        lambda value, options: (
            bool(value)
            and options.lr_scheduler_type
            in (SchedulerType.CONSTANT, SchedulerType.CONSTANT_WITH_WARMUP)
        ),
        "`{name}` {value} have no effect with `lr_scheduler_type` "
        "{options.lr_scheduler_type.value!r}: leave them out.",
    ),
    Rule(
        ("lr_scheduler_kwargs",),
        lambda value, options: (
            options.lr_scheduler_type == NOAM and not value.keys() <= {"factor", "d_model"}
        ),
        "`{name}` {value} has unknown names: the schedule 'noam' takes factor and d_model.",
    ),
    Rule(
        ("lr_scheduler_kwargs",),
        lambda value, options: (
            options.lr_scheduler_type == NOAM
            and not all(isinstance(x, int | float) and 0 < x < math.inf for x in value.values())
        ),
        "`{name}` {value}: each must be a number above 0.",
    ),
    Rule(
        ("muon_learning_rate", "muon_momentum"),
        lambda _, options: options.optim != MUON,
        "`{name}` of {value} has no effect with `optim` {options.optim.value!r}: set `optim` to "
        "muon, or leave it out.",
    ),
    Rule(
        ("optim_args",),
        lambda value, options: bool(value) and options.optim == MUON,
        "`{name}` {value!r} does not work with `optim` 'muon': use `muon_learning_rate` and "
        "`muon_momentum`.",
    ),
    Rule(
        ("fsdp", "deepspeed"),
        lambda value, options: bool(value) and options.optim == MUON,
        "`{name}` {value!r} does not work with `optim` 'muon', which needs whole matrices: use DDP "
        "or another `optim`.",
    ),
    Rule(
        ("fsdp",),
        lambda value, options: bool(value) and options.use_cpu,
        "`{name}` {value!r} has no effect on a CPU: leave it out.",
    ),
    Rule(
        ("fp16", "fp16_full_eval"),
        lambda value, options: value and options.use_cpu,
        "`{name}` {value} needs a GPU: use `bf16`, which a CPU computes too, or leave it out.",
    ),
    Rule(
        ("early_stopping_patience",),
        lambda _, options: options.eval_strategy == IntervalStrategy.NO,
        "`{name}` of {value} counts evaluations, but `eval_strategy` is 'no': set `eval_strategy` "
        "to steps or epoch.",
    ),
    Rule(
        ("hub_strategy",),
        lambda value, options: options.push_to_hub and value not in ("end", "every_save"),
        "`{name}` {value.value!r} would push the state of the optimizer, which is a pickle file: "
        "use end or every_save, and keep checkpoints in `output_dir`.",
    ),
    Rule(
        ("simcut_alpha",),
        lambda _, options: options.rdrop_alpha is not None,
        "`{name}` of {value} and `rdrop_alpha` of {options.rdrop_alpha} both add a second pass: "
        "leave one of them out.",
    ),
    Rule(
        ("simcut_alpha",),
        lambda _, options: options.torch_compile,
        "`{name}` of {value} changes embeddings inside the model, which `torch_compile` hides: "
        "leave one of them out.",
    ),
    only_with("simcut_alpha", "simcut_cutoff"),
    only_with(
        "guided_alignment",
        *("guided_alignment_weight", "guided_alignment_layer", "guided_alignment_head"),
    ),
    Rule(
        ("guided_alignment_weight",),
        lambda value, _: value == 0,
        "`{name}` is {value}, which trains no alignment: give a number above 0, e.g. 0.05, or "
        "leave `guided_alignment` out.",
    ),
    Rule(
        ("guided_alignment",),
        lambda _, options: options.torch_compile,
        "`{name}` {value!r} reads queries and keys inside the model, which `torch_compile` hides: "
        "leave one of them out.",
    ),
    Rule(
        ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"),
        lambda value, options: options.guided_alignment and bool(value.get("use_reentrant")),
        "`guided_alignment` does not work with `use_reentrant` True in `{name}` {value}: it keeps "
        "no gradient of queries and keys. Set it to False.",
    ),
    Rule(
        ("train_sampling_strategy", "auto_find_batch_size", "dataloader_drop_last"),
        lambda _, options: options.max_tokens is not None,
        "`{name}` of {value!r} has no effect with `max_tokens` of {options.max_tokens}: leave one "
        "of them out.",
    ),
    Rule(
        ("accelerator_config",),
        lambda value, options: (
            options.max_tokens is not None and bool(value.split_batches or value.dispatch_batches)
        ),
        "`{name}` has `split_batches` {value.split_batches} and `dispatch_batches` "
        "{value.dispatch_batches}, which have no effect with `max_tokens` of "
        "{options.max_tokens}: leave them out.",
    ),
    Rule(
        ("accelerator_config",),
        lambda value, _: not value.even_batches,
        "`{name}` has `even_batches` {value.even_batches}, with which processes wait forever for "
        "the batches that others lack: leave it out. An evaluation does not count repeated rows.",
    ),
)
"""The rules that are checked after transformers has read the options and derived others."""


def _check_json_options(args: TokenBudgetTrainingArguments) -> None:
    """Refuses options that begin like a JSON object and are none, and those of no Accelerate."""
    for name in _JSON_OPTIONS:
        if not isinstance(text := getattr(args, name, None), str) or not text:
            continue
        if name == "lr_scheduler_kwargs" or text.startswith("{"):
            try:
                is_object = isinstance(json.loads(text), dict)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"`{name}` {text!r} is not valid JSON ({error}).") from error
            if not is_object:
                raise ValueError(f"`{name}` {text!r} is no JSON object: give e.g. '{{\"a\": 1}}'.")
        elif not Path(text).is_file():
            raise ValueError(f"`{name}` {text!r} is neither a JSON object nor a file: give one.")
    given: Any = args.accelerator_config
    if isinstance(given, str) and given.startswith("{"):
        given = json.loads(given)
    known = [field.name for field in fields(AcceleratorConfig)]
    if isinstance(given, dict) and not given.keys() <= set(known):
        raise ValueError(
            f"`accelerator_config` {given} has unknown names: choose from {', '.join(known)}."
        )


def check_direction(metric: str, greater_is_better: bool | None) -> None:
    """Refuses a direction that contradicts a score whose direction is known."""
    name = metric.rpartition("_")[2]
    if greater_is_better is None or name not in ("loss", *METRIC_NAMES):
        return
    if greater_is_better == (name in ("loss", *ERROR_RATES)):
        kind = {"loss": "a loss", **dict.fromkeys(ERROR_RATES, "an error rate")}
        raise ValueError(
            f"`greater_is_better` is {greater_is_better}, but {metric!r} is "
            f"{kind.get(name, 'a score')}, and {'lower' if greater_is_better else 'higher'} is "
            "better: leave `greater_is_better` out."
        )
