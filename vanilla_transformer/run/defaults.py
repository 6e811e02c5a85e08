"""Chooses the options of a new model that are not given, to fit its data and the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple, Self

import torch

from vanilla_transformer.names import ADAMW, LEARNT_LINKS, MUON, NOAM, WITHOUT_WARMUP
from vanilla_transformer.run.machine import Machine


class Sizes(NamedTuple):
    """The sizes of a model and its training: a row of `TABLE`, or values between two rows."""

    pairs: int | None  # largest number of training pairs; None: there is none
    layers: int  # of the encoder, and as many of the decoder
    d_model: int
    vocab_size: int
    dropout: float
    num_train_epochs: int
    max_tokens: int
    muon_learning_rate: float
    learning_rate: float  # of AdamW beside Muon
    adamw_rate: float  # of AdamW alone

    @property
    def least_pairs(self) -> int:
        """Pairs times epochs from which on this width is worth its time.

        They are those of the smallest data to which the table gives it: for 256, 10 epochs of
        50,000 pairs.
        """
        rows = pairwise(TABLE[1:])  # each row with the one before it
        fitting = ((before, row) for before, row in rows if row.d_model >= self.d_model)
        before, row = next(fitting, TABLE[-2:])
        return (before.pairs or 0) * row.num_train_epochs

    def for_data_of(self, other: Self) -> Self:
        """Returns these sizes with the dropout and epochs of `other`, which depend on the data."""
        return self._replace(dropout=other.dropout, num_train_epochs=other.num_train_epochs)


TABLE = (
    # pairs, layers, width, vocabulary, dropout, epochs, tokens; rates of Muon, beside it, of AdamW
    Sizes(1_000, 2, 128, 2_000, 0.3, 40, 1024, 0.02, 0.012, 0.002),
    Sizes(5_000, 3, 128, 4_000, 0.3, 30, 2048, 0.02, 0.012, 0.002),
    Sizes(20_000, 4, 128, 5_000, 0.2, 20, 2048, 0.02, 0.012, 0.002),
    Sizes(50_000, 4, 192, 8_000, 0.2, 10, 4096, 0.015, 0.012, 0.001),
    Sizes(200_000, 4, 256, 12_000, 0.1, 10, 8192, 0.015, 0.008, 0.001),
    Sizes(1_000_000, 6, 384, 16_000, 0.1, 10, 8192, 0.01, 0.008, 0.0007),
    Sizes(None, 6, 512, 32_000, 0.1, 5, 16384, 0.01, 0.004, 0.0005),
)
"""The sizes by the number of training pairs; docs/sizing.md has them too.

The row up to 50,000 was measured, on the 29,000 pairs of Multi30k, with 0.003 for AdamW beside
Muon. Four times that rate teaches more in short trainings at widths 64 to 256, and no less in that
of Multi30k. Smaller batches teach more at width 128. The rates of the rows before it are those of
the study of initial values (all in docs/log.md). Those of the rows after it were not searched: they
fall as the width grows.
"""

NARROWEST = Sizes(None, 2, 64, 2_000, 0.3, 40, 512, 0.02, 0.012, 0.002)
"""The sizes for a time that is too short for every row of the table.

In the time of 150 steps of the row up to 20,000, they reach a chrF of 11.4 in place of 2.8; in the
time of 500 steps, 17.1 in place of 15.4 (docs/log.md, 2026-11-29).
"""

LARGEST_ON_A_CPU = TABLE[4]
"""The sizes of all larger data on a CPU; only the epochs are those of their own row."""

REPLACED_BY = {
    "gated_ffn": ("activation_function",),
    "norm_placement": ("initializer",),
    "position_embedding_type": (
        *("position_offset", "relative_attention_num_buckets", "relative_attention_max_distance"),
    ),
    "label_smoothing": ("label_smoothing_factor",),
    "vocab_size": ("tokenizer_name_or_path",),
    "max_tokens": (
        *("per_device_train_batch_size", "train_sampling_strategy", "auto_find_batch_size"),
        *("dataloader_drop_last", "accelerator_config", "parallelism_config"),
    ),
    "eval_max_tokens": ("per_device_eval_batch_size",),
    "optim": ("optim_args", "fsdp", "fsdp_config", "deepspeed", "parallelism_config"),
    "bf16": ("fp16", "deepspeed"),
    "guided_alignment": (
        *("torch_compile", "torch_compile_backend", "torch_compile_mode", "parallelism_config"),
        *("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
    ),
    "generation_num_beams": ("generation_config",),
}
"""The options that replace an option: if one of them is given, the option is not chosen."""

_TOLD = (
    *("d_model", "encoder_layers", "decoder_layers", "vocab_size", "dropout", "num_train_epochs"),
    *("max_tokens", "optim", "muon_learning_rate", "learning_rate", "bf16"),
)
"""The options that the first line of a run names."""
_SUBWORDS_BY_WIDTH = 42
"""Subwords of a vocabulary for each unit of a width between two rows, about as in the table."""

EVALUATIONS_IN_MINUTES = 4
"""Number of evaluations in a run of given minutes; chosen, not measured."""

_MOST_WORKERS = 4  # each holds batches and a copy of Python in memory; chosen, not measured
_SUBWORDS = ("bpe", "unigram", "byte_bpe")


@dataclass(frozen=True)
class RunFacts:
    """The facts on which the defaults depend, besides the given options."""

    pairs: int  # of the training
    characters: int  # number of different ones, each a token of any vocabulary of subwords
    has_validation: bool
    machine: Machine
    sizes: Sizes
    has_time: bool = False  # whether the run ends after given minutes
    epochs: float | None = None  # that fit into this time

    @classmethod
    def of(cls, pairs: int, characters: int, has_validation: bool, machine: Machine) -> Self:
        """Returns the facts with the row of the table for the pairs and the device."""
        row = next(row for row in TABLE if row.pairs is None or pairs <= row.pairs)
        if machine.on_cpu and row.d_model > LARGEST_ON_A_CPU.d_model:
            row = LARGEST_ON_A_CPU._replace(num_train_epochs=row.num_train_epochs)
        return cls(pairs, characters, has_validation, machine, row)

    def narrowed(self, width: int) -> Self:
        """Returns these facts for a model of a smaller width.

        Its batches and rates are those of the widest row that is no wider; the others stay.
        """
        row = next((row for row in reversed(TABLE[2:]) if row.d_model <= width), TABLE[2])
        vocabulary = _SUBWORDS_BY_WIDTH * width
        row = row._replace(layers=self.sizes.layers, d_model=width, vocab_size=vocabulary)
        return replace(self, sizes=row.for_data_of(self.sizes))

    def rows_by_width(self) -> list[Sizes]:
        """Returns the sizes to choose from for a given time, the narrowest first, these last.

        The first two rows are left out: their steps are not faster than those of the third.
        """
        full = self.sizes
        narrower = [row for row in (NARROWEST, *TABLE[2:]) if row.d_model < full.d_model]
        return [*(row.for_data_of(full) for row in narrower), full]


class _OptionResolver:
    """The given options, and the options that have been chosen so far."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.chosen: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Returns the value of an option; None: it is neither given nor chosen."""
        value = self.given.get(name, self.chosen.get(name))
        return getattr(value, "value", value)  # an enum has its value inside

    def choose(self, name: str, value: Any) -> None:
        """Chooses an option, unless it or an option that replaces it is given."""
        if is_free(name, self.given):
            self.chosen[name] = value


def is_free(name: str, given: Mapping[str, Any]) -> bool:
    """Returns whether neither an option nor an option that replaces it is given."""
    return not any(other in given for other in (name, *REPLACED_BY.get(name, ())))


def choose_before_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of scoring and saving that are chosen before the data are known.

    They can be checked with the given ones. They suppose that there are validation data.
    """
    options = _OptionResolver(given)
    if _are_chosen(given):
        _choose_scoring_and_saving(options, has_validation=given.get("do_eval") is not False)
    return options.chosen


def choose_defaults(given: Mapping[str, Any], facts: RunFacts) -> dict[str, Any]:
    """Returns the options that are chosen for a new model; {} for a saved model."""
    if not _are_chosen(given):
        return {}
    options = _OptionResolver(given)
    _choose_architecture(options, facts)
    _choose_batches(options, facts)
    _choose_optimizer(options, facts)
    weight = options["guided_alignment_weight"]
    # A GPU would lose its packed and recorded steps.
    if weight or (weight is None and facts.machine.on_cpu):
        options.choose("guided_alignment", LEARNT_LINKS)
    _choose_scoring_and_saving(options, facts.has_validation, facts.has_time)
    return options.chosen


def trains_with_muon(given: Mapping[str, Any]) -> bool:
    """Returns whether Muon is given, or may be chosen when the data are known."""
    if "optim" in given:
        return bool(given["optim"] == MUON)
    return may_be_chosen("optim", given)


def may_be_chosen(name: str, given: Mapping[str, Any]) -> bool:
    """Returns whether an option may be chosen when the data are known."""
    return name in CHOSEN_NAMES and _are_chosen(given) and is_free(name, given)


def _are_chosen(given: Mapping[str, Any]) -> bool:
    """Returns whether a run chooses options: it makes a new model, and nothing forbids it."""
    return given.get("model_name_or_path") is None and given.get("choose_defaults", True)


def _choose_architecture(options: _OptionResolver, facts: RunFacts) -> None:
    """Chooses the sizes of the model, its kinds of layers, its dropout and its label smoothing."""
    sizes = facts.sizes
    options.choose("d_model", sizes.d_model)
    options.choose("encoder_layers", sizes.layers)
    options.choose("decoder_layers", sizes.layers)
    width = int(options["d_model"])
    options.choose("encoder_attention_heads", _attention_heads(width))
    options.choose("decoder_attention_heads", _attention_heads(width))
    options.choose("gated_ffn", True)
    if options["gated_ffn"]:
        options.choose("activation_function", "silu")
    # A gated network has 3 matrices instead of 2: with 2/3 of the width, as many weights.
    ffn_dim = 8 * ceil(width / 3) if options["gated_ffn"] else 4 * width
    options.choose("encoder_ffn_dim", ffn_dim)
    options.choose("decoder_ffn_dim", ffn_dim)
    options.choose("norm_placement", "pre")
    heads = [max(1, options[f"{side}_attention_heads"]) for side in ("encoder", "decoder")]
    head_sizes = [options["head_dim"] or width // count for count in heads]
    if all(size % 2 == 0 for size in head_sizes):  # rotation takes pairs of units
        options.choose("position_embedding_type", "rope")
    epochs = facts.epochs or options["num_train_epochs"] or sizes.num_train_epochs
    # A model that sees its data less often learns less by heart, and needs less dropout.
    options.choose("dropout", round(sizes.dropout * min(1.0, epochs / sizes.num_train_epochs), 3))
    options.choose("label_smoothing", 0.1)


def _attention_heads(width: int) -> int:
    """Returns the number of heads with the usual size, or with the nearest even size."""
    usual = 32 if width <= 256 else 64
    counts = [count for count in range(1, width + 1) if width % count == 0]
    even = [count for count in counts if width // count % 2 == 0]
    return min(even or counts, key=lambda count: abs(width // count - usual), default=1)


def _choose_batches(options: _OptionResolver, facts: RunFacts) -> None:
    """Chooses the vocabulary, the batches with the limits of lengths, and the epochs."""
    sizes = facts.sizes
    kind = options["tokenizer_kind"] or "bpe"
    if {kind, options["target_tokenizer_kind"] or kind} <= set(_SUBWORDS):
        # Room for subwords beside all characters, which may be thousands.
        needed = facts.characters + sizes.vocab_size // 2
        options.choose("vocab_size", max(sizes.vocab_size, needed))
    # A batch must hold the longest pair; a side without a limit gets what the other leaves.
    source_limit, target_limit = options["max_source_length"], options["max_target_length"]
    limits = [limit for limit in (source_limit, target_limit) if limit is not None]
    needed = sum(limits) + (sizes.max_tokens // 4 if len(limits) == 1 else 0)
    options.choose("max_tokens", max(sizes.max_tokens, needed))
    if (tokens := options.chosen.get("max_tokens")) is not None:
        half = tokens // 2
        options.choose("max_source_length", half if target_limit is None else tokens - target_limit)
        options.choose("max_target_length", half if source_limit is None else tokens - source_limit)
    options.choose("eval_max_tokens", options["max_tokens"] or sizes.max_tokens)
    if cores := facts.machine.spare_cores:  # a GPU computes a batch faster than one core makes it
        options.choose("dataloader_num_workers", min(_MOST_WORKERS, cores))
    if (options["max_steps"] or -1) <= 0:
        options.choose("num_train_epochs", sizes.num_train_epochs)


def _choose_optimizer(options: _OptionResolver, facts: RunFacts) -> None:
    """Chooses the optimizer with its rates and warm-up, and the number format."""
    sizes, machine, schedule = facts.sizes, facts.machine, options["lr_scheduler_type"]
    if not machine.is_sharded:
        options.choose("optim", MUON)
    optimizer = options["optim"] or ADAMW
    if optimizer == MUON:
        options.choose("muon_learning_rate", sizes.muon_learning_rate)
    if schedule != NOAM and optimizer.startswith((MUON, ADAMW)):
        rate = sizes.learning_rate if optimizer == MUON else sizes.adamw_rate
        options.choose("learning_rate", rate)
    if schedule not in (NOAM, *WITHOUT_WARMUP):  # noam takes a number of steps
        options.choose("warmup_steps", 0.1)
    options.choose("adam_beta2", 0.98)
    if machine.is_faster_in_bfloat16(options["d_model"]):
        options.choose("bf16", True)
    # For what is computed in float32; transformers refuses it on a GPU of AMD.
    if machine.has_bfloat16 and not machine.on_cpu and torch.version.hip is None:
        options.choose("tf32", True)


def _choose_scoring_and_saving(
    options: _OptionResolver, has_validation: bool, has_time: bool = False
) -> None:
    """Chooses when a model is scored and saved; the best one is loaded if all saved are scored."""
    if has_validation:
        if has_time and options["eval_strategy"] in (None, "steps"):
            options.choose("eval_steps", 1 / EVALUATIONS_IN_MINUTES)
        options.choose("eval_strategy", "steps" if options["eval_steps"] else "epoch")
    scored = options["eval_strategy"]
    if options["save_steps"]:
        options.choose("save_strategy", "steps")
    else:
        options.choose("save_strategy", "epoch" if scored in (None, "no") else scored)
    saved = options["save_strategy"]
    # Without `eval_steps`, a model is scored when the loss is logged.
    steps_of_scores = options["eval_steps"] or options["logging_steps"]
    if scored == saved == "steps" and steps_of_scores is not None:
        options.choose("save_steps", steps_of_scores)
    options.choose("save_total_limit", 2)
    each_is_scored = scored not in (None, "no") and saved in (scored, "best")
    if each_is_scored and (saved != "steps" or options["save_steps"] == steps_of_scores):
        options.choose("load_best_model_at_end", True)
    options.choose("generation_num_beams", 5)


def describe_choice(options: Mapping[str, Any], facts: RunFacts) -> str:
    """Describes the chosen options and the facts that decide them, in one sentence."""
    parts = [f"{name} {options[name]}" for name in _TOLD if name in options]
    pairs = "training pair" if facts.pairs == 1 else "training pairs"
    where = " on a CPU" if facts.machine.on_cpu else ""
    return (
        f"{facts.pairs:,} {pairs}{where}: "
        f"{', '.join(parts) or 'all sizes are given'}. Each can be given as an option, e.g. "
        "`--d-model 256`."
    )


_MACHINES = (Machine(on_cpu=True), Machine(on_cpu=False, has_bfloat16=True, spare_cores=1))
_FACTS = [replace(RunFacts.of(1, 1, True, machine), has_time=True) for machine in _MACHINES]
CHOSEN_NAMES = frozenset(name for facts in _FACTS for name in choose_defaults({}, facts))
"""The names of all options that may be chosen, by runs of given minutes on a CPU or a GPU."""
