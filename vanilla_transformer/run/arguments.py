"""The options of a training run, one dataclass per topic.

This module imports only the standard library, so a program can check and list the options before it
imports torch. `run.parsing` reads them from a command line; the options of the data are in
`data.arguments`, those of the Trainer in `training.training_arguments`.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any

METRIC_NAMES = ("bleu", "chrf", "ter", "wer", "per")
"""The keys of `training.metrics.METRICS`."""

TOKENIZER_KINDS = ("bpe", "unigram", "word", "char", "byte_bpe")
"""The kinds of vocabulary that `VanillaTransformerTokenizer.train` learns."""

SAMPLED_SIDES = ("both", "source", "target")


def option(help_text: str, default: Any = None, *aliases: str) -> Any:
    """Declares a dataclass field that is a command-line option.

    Args:
        help_text: Shown by `--help`.
        default: Value when the option is not given.
        *aliases: Further names on the command line, with their hyphens.

    Returns:
        The field.
    """
    metadata: dict[str, Any] = {"help": help_text}
    if aliases:
        metadata["aliases"] = list(aliases)
    return field(default=default, metadata=metadata)


@dataclass
class ModelArguments:
    """Selects the model that is trained, where it replaces an old one, and how it is scored.

    Raises:
        ValueError: If a metric is unknown.
    """

    _argument_group_name = "model"

    model_name_or_path: str | None = option(
        "Saved model to fine-tune or to score, a directory or a name on the Hub; its tokenizer is "
        "used too. Default: a new model is trained."
    )
    overwrite: bool = option(
        "Delete the contents of output_dir and start a new training. Nothing is deleted before "
        "the first training step.",
        False,
        "--overwrite_output_dir",
        "--overwrite-output-dir",
    )
    attn_implementation: str | None = option(
        "Attention kernel: sdpa, eager, flex_attention, ... Default: sdpa, or eager for half "
        "precision on a CPU, where sdpa is slow."
    )
    metrics: list[str] = field(
        default_factory=lambda: ["bleu", "chrf"],
        metadata={
            "help": f"Scores of the generated text: any of {', '.join(METRIC_NAMES)}. The first "
            "one selects the best checkpoint unless metric_for_best_model is set."
        },
    )

    def __post_init__(self) -> None:
        if unknown := [name for name in self.metrics if name not in METRIC_NAMES]:
            raise ValueError(
                f"`metrics` has unknown names {unknown}: choose from {', '.join(METRIC_NAMES)}."
            )


@dataclass
class TokenizerArguments:
    """Selects the tokenizer: a saved one, or a new one that is trained on the training split.

    With a saved tokenizer, the options of the training must be those it was trained with.

    Raises:
        ValueError: If a kind is unknown.
    """

    _argument_group_name = "tokenizer"

    tokenizer_name_or_path: str | None = option(
        "Saved tokenizer, a directory or a name on the Hub. Default: the tokenizer of the saved "
        "model, or a new one that is trained on the training split."
    )
    tokenizer_kind: str | None = option(
        f"Kind of a new vocabulary: {', '.join(TOKENIZER_KINDS)}. Default: bpe."
    )
    target_tokenizer_kind: str | None = option(
        "Kind of the target vocabulary; needs separate_vocabularies. Default: as tokenizer_kind."
    )
    vocab_size: int | None = option(
        "Maximum number of tokens of a new vocabulary, special tokens included. Default: 8000."
    )
    target_vocab_size: int | None = option(
        "Maximum number of tokens of a separate target vocabulary. Default: as vocab_size."
    )
    separate_vocabularies: bool | None = option(
        "Learn one vocabulary for the source and one for the target. Default: one shared one."
    )
    lowercase: bool | None = option("Convert all text to lower case. Default: no.")

    def __post_init__(self) -> None:
        for name in ("tokenizer_kind", "target_tokenizer_kind"):
            kind = getattr(self, name)
            if kind is not None and kind not in TOKENIZER_KINDS:
                raise ValueError(
                    f"`{name}` {kind!r} is unknown: choose from {', '.join(TOKENIZER_KINDS)}."
                )

    def training_options(self) -> dict[str, Any]:
        """Returns the given options, by the argument names of `VanillaTransformerTokenizer.train`.

        Returns:
            Argument names and values, without those that are None.
        """
        separate = self.separate_vocabularies
        options = {
            "kind": self.tokenizer_kind,
            "target_kind": self.target_tokenizer_kind,
            "vocab_size": self.vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "shared": None if separate is None else not separate,
            "lowercase": self.lowercase,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass
class SubwordArguments:
    """Switches on subword regularisation: the training text is split differently in each epoch.

    Raises:
        ValueError: If a number is out of range or `sampled_sides` is unknown.
    """

    _argument_group_name = "subword regularisation"

    bpe_dropout: float | None = option(
        "Probability that a merge is skipped, for bpe and byte_bpe (BPE-dropout); often 0.1."
    )
    unigram_alpha: float | None = option(
        "Smoothing of sampled segmentations, for unigram; often 0.2."
    )
    sampled_sides: str = option("Texts that are sampled: both, source or target.", "both")

    def __post_init__(self) -> None:
        if self.bpe_dropout is not None and not 0 <= self.bpe_dropout <= 1:
            raise ValueError(
                f"`bpe_dropout` is {self.bpe_dropout}: give a probability from 0 to 1, e.g. 0.1."
            )
        if self.unigram_alpha is not None and not 0 <= self.unigram_alpha < math.inf:
            raise ValueError(
                f"`unigram_alpha` is {self.unigram_alpha}: it must be 0 or greater, e.g. 0.2."
            )
        if self.sampled_sides not in SAMPLED_SIDES:
            raise ValueError(
                f"`sampled_sides` is {self.sampled_sides!r}: choose from "
                f"{', '.join(SAMPLED_SIDES)}."
            )
        if self.sampled_sides != "both" and not self.enabled:
            raise ValueError(
                f"`sampled_sides` of {self.sampled_sides!r} has no effect without `bpe_dropout` "
                "or `unigram_alpha`: give one of them, or leave it out."
            )

    @property
    def enabled(self) -> bool:
        """Whether the training text is sampled."""
        return self.bpe_dropout is not None or self.unigram_alpha is not None


@dataclass
class AveragingArguments:
    """Selects the weights that a run ends with.

    By default these are the weights of the last step, or with `load_best_model_at_end` those of the
    best checkpoint.

    Raises:
        ValueError: If more than one average is given, or a number is out of range.
    """

    _argument_group_name = "averaging"

    average_last: int | None = option(
        "End with the mean weights of the last N checkpoints. Needs save_strategy."
    )
    average_best: int | None = option(
        "End with the mean weights of the N checkpoints with the best scores. Needs save_strategy "
        "and eval_strategy."
    )
    ema_decay: float | None = option(
        "Evaluate and save an exponential moving average of the weights with this decay per step, "
        "e.g. 0.999."
    )

    def __post_init__(self) -> None:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: value for name, value in values.items() if value is not None}
        if len(given) > 1:
            raise ValueError(f"`{'`, `'.join(given)}` exclude each other: give one of them.")
        for name, value in given.items():
            if not value > 0:
                raise ValueError(f"`{name}` is {value}: it must be positive, or left out.")
        if self.ema_decay is not None and not self.ema_decay < 1:
            raise ValueError(f"`ema_decay` is {self.ema_decay}: it must be below 1, e.g. 0.999.")


@dataclass
class ShowArguments:
    """Prints example translations during training.

    Raises:
        ValueError: If a number is below 1.
    """

    _argument_group_name = "examples during training"

    show_every: int | None = option(
        "Print the model's output for some validation examples every N steps. Default: never."
    )
    show_examples: int = option("Number of examples to print.", 3)

    def __post_init__(self) -> None:
        for name in ("show_every", "show_examples"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"`{name}` is {value}: it must be at least 1, or left out.")


@dataclass
class CardArguments:
    """Describes the model on its model card."""

    _argument_group_name = "model card"

    dataset_label: str | None = option("Name of the data set on the model card.")
    language: list[str] | None = field(
        default=None, metadata={"help": "ISO codes of the languages on the model card."}
    )
    license: str = option("Licence of the weights on the model card.", "apache-2.0")
    task: str = option("Pipeline tag on the model card, in the Hub's terms.", "translation")
