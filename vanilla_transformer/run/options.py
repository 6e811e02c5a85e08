"""The options of a training run, one dataclass per topic.

This module imports nothing heavy, so a program can check and list the options before it
imports torch. `run.arguments` reads them from a command line; the options of the data are in
`data.arguments`, those of the Trainer in `training.training_arguments`.
"""

from dataclasses import dataclass
from typing import Any

from vanilla_transformer.names import METRIC_NAMES, SCORE_TOKENIZERS, TOKENIZER_KINDS
from vanilla_transformer.options import option
from vanilla_transformer.rules import Rule, check_rules


def _read_size(text: str) -> int:
    """Reads a number of bytes, such as 8000000 or 8MB."""
    unit = 10**6 if text.upper().endswith("MB") else 1
    try:
        return int(float(text.upper().removesuffix("MB")) * unit)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no size: give bytes or MB, as 8000000 or 8MB") from error


RULES = (
    Rule(
        ("size",),
        lambda _, options: options.model_name_or_path is not None or not options.choose_defaults,
        "`{name}` {value} chooses the width of a new model: leave it out beside a saved model, and "
        "with `choose_defaults` False.",
    ),
    Rule(
        ("lora_rank",),
        lambda _, options: options.model_name_or_path is None,
        "`{name}` {value} needs `model_name_or_path`: a new model trains all of its weights.",
    ),
)
"""The rules of the options of this module."""


class _Checked:
    """Checks the options of a dataclass by `RULES` when they are given."""

    def __post_init__(self) -> None:
        check_rules(RULES, self)


@dataclass
class ModelArguments(_Checked):
    """Selects the model that is trained, where it replaces an old one, and how it is scored."""

    _argument_group_name = "model"

    model_name_or_path: str | None = option(
        "Saved model to fine-tune, a directory or a name on the Hub; its tokenizer is "
        "used too. Default: a new model is trained."
    )
    choose_defaults: bool = option(
        "For a new model, choose the options that you do not give, by the size of the training "
        "data and the device. False: the sizes of the paper, and the values of transformers.",
        True,
    )
    size: int | None = option(
        "Largest size of the new model when quantized to 8 bits, such as 8MB. Default: no limit.",
        type=_read_size,
        metavar="SIZE",
        ge=1,
    )
    minutes: float | None = option(
        "Minutes after which the run ends, with loading and scoring. It times its first steps to "
        "choose the sizes of a new model and the number of steps, but no more steps than "
        "`num_train_epochs` gives.",
        gt=0,
    )
    overwrite: bool = option(
        "Replace the training in output_dir by a new one, unless resume_from_checkpoint continues "
        "it. At the first training step, it deletes what a training has written, nothing else.",
        False,
    )
    attn_implementation: str | None = option(
        "Attention kernel: sdpa, eager, flex_attention, ... Default: sdpa, or eager for half "
        "precision on a CPU, where sdpa is slow."
    )
    lora_rank: int | None = option(
        "Train adapters of this rank beside the linear layers of a saved model (LoRA, Hu et al. "
        "2021) in place of its weights, and merge them at the end. Needs the package peft.",
        ge=1,
    )
    lora_embeddings: bool = option(
        "With `lora_rank`, also train the embeddings and the output projection. Tokens that were "
        "added to the vocabulary need it.",
        False,
    )
    teacher: list[str] | None = option(
        "Saved models with the same tokenizer: the model also learns the mean of their predictions "
        "of each token."
    )
    teacher_weight: float = option(
        "Share of `teacher` in the loss, above 0 and up to 1.", 0.5, gt=0, le=1
    )
    ema_decay: float | None = option(
        "Score and save an exponential moving average of the weights with this decay per step, "
        "such as 0.999.",
        gt=0,
        lt=1,
    )
    metrics: list[str] = option(
        f"Scores of the generated text: any of {', '.join(METRIC_NAMES)}. The first one selects "
        "the best checkpoint unless metric_for_best_model is set.",
        ["bleu", "chrf"],
        choices=METRIC_NAMES,
    )
    bleu_tokenize: str | None = option(
        f"Words that BLEU, TER and WER compare: {', '.join(SCORE_TOKENIZERS)}. Default: by the "
        "target's language, or by the script of most references.",
        choices=SCORE_TOKENIZERS,
    )
    show_examples: int = option(
        "Number of short validation texts that each evaluation shows, with the model's outputs.",
        1,
        ge=1,
    )


@dataclass
class TokenizerArguments(_Checked):
    """Selects the tokenizer: a saved one, or a new one that is trained on the training split.

    Beside a saved tokenizer, the options of the training must be those that it was trained with.
    """

    _argument_group_name = "tokenizer"

    tokenizer_name_or_path: str | None = option(
        "Saved tokenizer, a directory or a name on the Hub. Default: the tokenizer of the saved "
        "model, or a new one from the training data."
    )
    tokenizer_kind: str | None = option(
        f"Kind of a new vocabulary: {', '.join(TOKENIZER_KINDS)}. Default: bpe.",
        choices=TOKENIZER_KINDS,
    )
    target_tokenizer_kind: str | None = option(
        "Kind of the target vocabulary; needs separate_vocabularies. Default: as tokenizer_kind.",
        choices=TOKENIZER_KINDS,
    )
    vocab_size: int = option(
        "Maximum number of tokens of a new vocabulary, special tokens included.", 8000
    )
    target_vocab_size: int | None = option(
        "Maximum number of tokens of a separate target vocabulary. Default: as vocab_size."
    )
    separate_vocabularies: bool | None = option(
        "Learn one vocabulary for the source and one for the target. Default: one shared one."
    )
    lowercase: bool | None = option("Convert all text to lower case. Default: no.")

    def training_options(self) -> dict[str, Any]:
        """Returns the given options by their names in `VanillaTransformerTokenizer.train`."""
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
class PreparationArguments(_Checked):
    """Selects how the pairs become token ids before the training."""

    _argument_group_name = "preparation"

    prepared: str | None = option(
        "Directory that keeps texts, tokenizer and token ids of the data, for all runs with the "
        "same data and tokenizer options. `vanilla-transformer prepare` makes it beforehand."
    )
    num_proc: int | None = option(
        "Processes that encode the pairs. Default: one, with a thread for each processor.", ge=1
    )
    tokenizer_sample: int = option(
        "Train a new tokenizer on at most this many pairs, drawn at random; the same texts give "
        "the same tokenizer.",
        1_000_000,
        ge=1,
    )


@dataclass
class SubwordArguments(_Checked):
    """Switches on subword regularisation: the training text is split differently in each epoch."""

    _argument_group_name = "subword regularisation"

    bpe_dropout: float | None = option(
        "Probability that a merge is skipped, for bpe and byte_bpe (BPE-dropout); often 0.1.",
        ge=0,
        le=1,
    )


@dataclass
class CardArguments:
    """Describes the model on its model card."""

    _argument_group_name = "model card"

    dataset_label: str | None = option("Name of the data set on the model card.")
    license: str | None = option("Licence of the weights on the model card. Default: none.")
    task: str = option("Pipeline tag on the model card, in the Hub's terms.", "translation")
