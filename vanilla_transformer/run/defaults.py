"""The defaults of a run that trains a new model: what fits the data, for options not given."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from datasets import Dataset

from vanilla_transformer.names import ADAMW, MUON, NOAM, SCHEDULES_OF_A_SCORE


class Sizes(NamedTuple):
    """One row of `TABLE`.

    Attributes:
        pairs: Largest number of training pairs that the row is for; None: any number.
        layers: Layers of the encoder, and of the decoder.
        muon_learning_rate: Peak rate of Muon.
        learning_rate: Peak rate of AdamW beside Muon.
        adamw_rate: Peak rate of AdamW alone.
    """

    pairs: int | None
    layers: int
    d_model: int
    vocab_size: int
    dropout: float
    num_train_epochs: int
    max_tokens: int
    muon_learning_rate: float
    learning_rate: float
    adamw_rate: float


TABLE = (
    Sizes(1_000, 2, 128, 2_000, 0.3, 40, 1024, 0.02, 0.003, 0.002),
    Sizes(5_000, 3, 128, 4_000, 0.3, 30, 2048, 0.02, 0.003, 0.002),
    Sizes(20_000, 4, 128, 5_000, 0.2, 20, 4096, 0.02, 0.003, 0.002),
    Sizes(50_000, 4, 192, 8_000, 0.2, 10, 4096, 0.015, 0.003, 0.001),
    Sizes(200_000, 4, 256, 12_000, 0.1, 10, 8192, 0.015, 0.002, 0.001),
    Sizes(1_000_000, 6, 384, 16_000, 0.1, 10, 8192, 0.01, 0.002, 0.0007),
    Sizes(None, 6, 512, 32_000, 0.1, 5, 16384, 0.01, 0.001, 0.0005),
)
"""The sizes by the number of training pairs; docs/sizing.md and docs/training.md have them too."""

LARGEST_ON_A_CPU = TABLE[4]
"""On a CPU, more pairs take the layers, width and rates of this row, with their own epochs."""

_HEAD_SIZE = {True: 32, False: 64}  # up to a width of 256, and beyond
_SUBWORDS = ("bpe", "unigram", "byte_bpe")
_AVERAGES = ("average_last", "average_best")
_ENVIRONMENT_OF_SHARDS = (
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
)


@dataclass(frozen=True)
class RunFacts:
    """What the defaults depend on, besides the options that are given.

    Attributes:
        pairs: Number of training pairs.
        characters: Number of different characters in them: a vocabulary of subwords has them all.
        has_bfloat16: Whether the device computes faster in bfloat16.
        is_sharded: Whether the launcher divides the model among processes.
    """

    pairs: int
    characters: int
    has_validation: bool
    on_cpu: bool
    has_bfloat16: bool
    is_sharded: bool = False

    @classmethod
    def before_loading(cls, given: Mapping[str, Any]) -> Self:
        """Supposes what the data are, so that options are checked before data are loaded."""
        files = ("train_file", "train_source")
        validation = ("validation_file", "validation_source", "dataset_name")
        has_validation = any(map(given.get, validation)) or not any(map(given.get, files))
        return cls.on_this_machine(1, 0, has_validation, bool(given.get("use_cpu")))

    @classmethod
    def on_this_machine(
        cls, pairs: int, characters: int, has_validation: bool, use_cpu: bool
    ) -> Self:
        """Adds what the machine decides to what is known of the data."""
        on_cpu = use_cpu or not torch.accelerator.is_available()
        return cls(
            pairs=pairs,
            characters=characters,
            has_validation=has_validation,
            on_cpu=on_cpu,
            has_bfloat16=has_bfloat16(on_cpu),
            is_sharded=divides_weights(),
        )

    @property
    def sizes(self) -> Sizes:
        """The row for the number of pairs, on a CPU with no more than its largest sizes."""
        row = next(row for row in TABLE if row.pairs is None or self.pairs <= row.pairs)
        if not self.on_cpu or row.d_model <= LARGEST_ON_A_CPU.d_model:
            return row
        return LARGEST_ON_A_CPU._replace(num_train_epochs=row.num_train_epochs)


def count_characters(sample: Dataset) -> int:
    """Counts the different characters of pairs."""
    characters = set[str]()
    for batch in sample.select_columns(["source", "target"]).iter(batch_size=1000):
        for texts in batch.values():
            characters.update("".join(texts))
    return len(characters)


def divides_weights() -> bool:
    """Returns whether the launcher divides the model among processes (FSDP, DeepSpeed)."""
    shards = [os.environ.get(name, "false").lower() for name in _ENVIRONMENT_OF_SHARDS]
    return "true" in shards or "1" in shards


def has_bfloat16(on_cpu: bool) -> bool:
    """Returns whether training in bfloat16 is faster on this machine: by its own instructions."""
    if on_cpu:
        return bool(torch.cpu._is_avx512_bf16_supported())
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


class _OptionResolver:
    """The options that are given, and those that have been chosen so far."""

    def __init__(self, given: Mapping[str, Any], facts: RunFacts) -> None:
        self.given, self.facts, self.sizes = given, facts, facts.sizes
        self.options: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Returns the value of an option; None: it is neither given nor chosen."""
        value = self.given.get(name, self.options.get(name))
        return getattr(value, "value", value)  # that of an enum


class Default(NamedTuple):
    """How one option is chosen.

    Attributes:
        value: Computes its value; None: it stays as it is.
        instead_of: Options that leave it out when one of them is given.
    """

    name: str
    value: Callable[[_OptionResolver], Any]
    instead_of: tuple[str, ...] = ()

    def is_free(self, given: Mapping[str, Any]) -> bool:
        """Returns whether neither the option nor one that replaces it is given."""
        return not any(name in given for name in (self.name, *self.instead_of))


def _of_sizes(name: str, *instead_of: str) -> Default:
    return Default(name, lambda chosen: getattr(chosen.sizes, name), instead_of)


def _attention_heads(chosen: _OptionResolver) -> int:
    """Divides the width into heads of the usual size, or of the nearest even one."""
    width = int(chosen["d_model"])
    usual = _HEAD_SIZE[width <= 256]
    counts = [count for count in range(1, width + 1) if width % count == 0]
    even = [count for count in counts if width // count % 2 == 0]
    return min(even or counts, key=lambda count: abs(width // count - usual))


def _ffn_dim(chosen: _OptionResolver) -> int:
    """Returns 4 times the width; in a gated network, which has 3 matrices, about 8/3 times."""
    width = int(chosen["d_model"])
    return -(-width // 3) * 8 if chosen["gated_ffn"] else 4 * width


def _position_type(chosen: _OptionResolver) -> str | None:
    """Chooses rotary positions where they can divide the heads into pairs of units."""
    sizes = [
        chosen["head_dim"] or chosen["d_model"] // max(1, chosen[f"{side}_attention_heads"])
        for side in ("encoder", "decoder")
    ]
    return None if any(size % 2 for size in sizes) else "rope"


def _vocab_size(chosen: _OptionResolver) -> int | None:
    """Leaves room for subwords beside all characters, which may be thousands."""
    source = chosen["tokenizer_kind"] or "bpe"
    if not {source, chosen["target_tokenizer_kind"] or source} <= set(_SUBWORDS):
        return None
    size = chosen.sizes.vocab_size
    return max(size, chosen.facts.characters + size // 2)


def _max_tokens(chosen: _OptionResolver) -> int:
    """Takes the size of the table, or as much as one pair of the longest texts needs."""
    limits = [chosen[f"max_{side}_length"] for side in ("source", "target")]
    known = [int(limit) for limit in limits if limit is not None]
    needed = sum(known) + (chosen.sizes.max_tokens // 4 if len(known) == 1 else 0)
    return max(chosen.sizes.max_tokens, needed)


def _length_limit(other: str) -> Callable[[_OptionResolver], int | None]:
    """Limits texts so that every pair fits into a batch, where the size of batches is chosen."""

    def limit(chosen: _OptionResolver) -> int | None:
        if (tokens := chosen.options.get("max_tokens")) is None:
            return None
        given = chosen.given.get(other)
        return int(tokens // 2 if given is None else tokens - given)

    return limit


def _learning_rate(chosen: _OptionResolver) -> float | None:
    optimizer = chosen["optim"] or ADAMW
    if chosen["lr_scheduler_type"] == NOAM or not optimizer.startswith((MUON, ADAMW)):
        return None
    return chosen.sizes.learning_rate if optimizer == MUON else chosen.sizes.adamw_rate


def _eval_strategy(chosen: _OptionResolver) -> str | None:
    if not chosen.facts.has_validation:
        return None
    return "steps" if chosen["eval_steps"] else "epoch"


def _save_strategy(chosen: _OptionResolver) -> str:
    if chosen["save_steps"]:
        return "steps"
    return "epoch" if chosen["eval_strategy"] in (None, "no") else str(chosen["eval_strategy"])


def _save_steps(chosen: _OptionResolver) -> float | None:
    """Saves when the model is scored; without `eval_steps` that is when the loss is logged."""
    if {chosen["eval_strategy"], chosen["save_strategy"]} != {"steps"}:
        return None
    steps: float | None = chosen["eval_steps"] or chosen["logging_steps"]
    return steps


def _load_best_model(chosen: _OptionResolver) -> bool | None:
    """Ends with the best checkpoint where each checkpoint has a score."""
    scored, saved = chosen["eval_strategy"], chosen["save_strategy"]
    if scored in (None, "no") or saved not in (scored, "best"):
        return None
    return None if saved == "steps" and chosen["save_steps"] != _save_steps(chosen) else True


_WITHOUT_SHARE = (NOAM, "constant", *SCHEDULES_OF_A_SCORE)
"""Schedules with another warm-up than a share of the steps, or none."""

DEFAULTS = (
    _of_sizes("d_model"),
    Default("encoder_layers", lambda chosen: chosen.sizes.layers),
    Default("decoder_layers", lambda chosen: chosen.sizes.layers),
    Default("encoder_attention_heads", _attention_heads),
    Default("decoder_attention_heads", _attention_heads),
    Default("gated_ffn", lambda _: True, ("activation_function",)),
    Default("activation_function", lambda chosen: "silu" if chosen["gated_ffn"] else None),
    Default("encoder_ffn_dim", _ffn_dim),
    Default("decoder_ffn_dim", _ffn_dim),
    Default("norm_placement", lambda _: "pre", ("initializer",)),
    Default(
        "position_embedding_type",
        _position_type,
        (
            "position_offset",
            "relative_attention_num_buckets",
            "relative_attention_max_distance",
        ),
    ),
    _of_sizes("dropout"),
    Default("label_smoothing", lambda _: 0.1, ("label_smoothing_factor",)),
    Default("vocab_size", _vocab_size, ("tokenizer_name_or_path",)),
    Default(
        "max_tokens",
        _max_tokens,
        (
            *("per_device_train_batch_size", "train_sampling_strategy", "auto_find_batch_size"),
            *("dataloader_drop_last", "accelerator_config", "parallelism_config"),
        ),
    ),
    Default("max_source_length", _length_limit("max_target_length")),
    Default("max_target_length", _length_limit("max_source_length")),
    Default(
        "eval_max_tokens",
        lambda chosen: chosen["max_tokens"] or chosen.sizes.max_tokens,
        ("per_device_eval_batch_size",),
    ),
    Default(
        "num_train_epochs",
        lambda chosen: None if (chosen["max_steps"] or -1) > 0 else chosen.sizes.num_train_epochs,
    ),
    Default(
        "optim",
        lambda chosen: None if chosen.facts.is_sharded else MUON,
        ("optim_args", "fsdp", "fsdp_config", "deepspeed", "parallelism_config"),
    ),
    Default(
        "muon_learning_rate",
        lambda chosen: chosen.sizes.muon_learning_rate if chosen["optim"] == MUON else None,
    ),
    Default("learning_rate", _learning_rate),
    Default(
        "warmup_steps",
        lambda chosen: None if chosen["lr_scheduler_type"] in _WITHOUT_SHARE else 0.1,
        ("warmup_ratio",),
    ),
    Default("adam_beta2", lambda _: 0.98),
    Default(
        "bf16",
        lambda chosen: True if chosen.facts.has_bfloat16 else None,
        ("fp16", "deepspeed"),
    ),
    Default("eval_strategy", _eval_strategy),
    Default("save_strategy", _save_strategy),
    Default("save_steps", _save_steps),
    Default("save_total_limit", lambda _: 2, _AVERAGES),
    Default("load_best_model_at_end", _load_best_model, _AVERAGES),
    Default("generation_num_beams", lambda _: 5, ("generation_config",)),
)
"""How each option of a new model is chosen, in this order: later rows read earlier ones."""

CHOSEN_NAMES = frozenset(default.name for default in DEFAULTS)
"""The options that may be chosen."""


@dataclass(frozen=True)
class ChosenDefaults:
    """The options that a run has chosen itself, decided once when its data are known.

    Attributes:
        sentence: What was chosen and why, in one sentence for the log and the model card.
    """

    options: Mapping[str, Any]
    sentence: str

    def words(self) -> str:
        """Returns the options as words of a command line."""
        return " ".join(f"--{name} {value}" for name, value in self.options.items())


def choose_defaults(given: Mapping[str, Any], facts: RunFacts) -> ChosenDefaults | None:
    """Chooses the options of a new model that are not given.

    Returns:
        The chosen options; None if nothing is to be chosen: a saved model is trained further, or
        the option `choose_defaults` is false.
    """
    if given.get("model_name_or_path") is not None or not given.get("choose_defaults", True):
        return None
    chosen = _OptionResolver(given, facts)
    for default in DEFAULTS:
        if default.is_free(given) and (value := default.value(chosen)) is not None:
            chosen.options[default.name] = value
    return ChosenDefaults(chosen.options, _reason_of_choice(chosen.options, facts))


def recorded_defaults(
    record: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> ChosenDefaults | None:
    """Restores what `choose_defaults` has chosen when a resumed run began.

    Args:
        record: The fields of the former choice; None: nothing was chosen.
        given: The options that are given now. They win.
    """
    if record is None or not given.get("choose_defaults", True):
        return None
    rows = {default.name: default for default in DEFAULTS}
    options = {
        name: value
        for name, value in record["options"].items()
        if name not in given and (name not in rows or rows[name].is_free(given))
    }
    return ChosenDefaults(options, record["sentence"])


def _reason_of_choice(options: Mapping[str, Any], facts: RunFacts) -> str:
    parts = [text for text in _sentence_parts(options) if text]
    pairs = f"{facts.pairs:,} training pair{'s' * (facts.pairs != 1)}"
    where = " on a CPU" if facts.on_cpu else ""
    if not parts:
        return f"{pairs}{where}: all sizes are given."
    return (
        f"{pairs}{where}: {', '.join(parts)}. These fit a new model and so many pairs; each can be "
        "given as an option, e.g. `--d_model 256`."
    )


def _sentence_parts(options: Mapping[str, Any]) -> Iterable[str]:
    def of(name: str, form: str) -> str:
        return form.format(options[name]) if name in options else ""

    layers = [options.get(f"{side}coder_layers") for side in ("en", "de")]
    yield f"{layers[0]}+{layers[1]} layers" if None not in layers else ""
    yield of("d_model", "width {}")
    yield of("vocab_size", "vocabulary {:,}")
    yield of("dropout", "dropout {}")
    yield of("num_train_epochs", "{} epochs")
    yield of("max_tokens", "batches of {:,} tokens")
    if options.get("optim") == MUON:
        yield "Muon"
    yield of("muon_learning_rate", "Muon's rate {}")
    yield of("learning_rate", "AdamW's rate {}")
    yield "bfloat16" if options.get("bf16") else ""
