"""What a training run is told: one dataclass per topic, from the command line or a file."""

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from transformers import HfArgumentParser

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.training.metrics import METRICS
from vanilla_transformer.training.trainer import TokenBudgetTrainingArguments

# The tokenizer decides these, or they are no choice of architecture.
_BOOL = "tag:yaml.org,2002:bool"
_NOT_ARCHITECTURE = {
    "classifier_pooling",
    "classifier_dropout",
    "vocab_size",
    "decoder_vocab_size",
    "is_encoder_decoder",
    "use_cache",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_eos_token_id",
}


@dataclass
class ModelArguments:
    """Which model is trained: a saved one, or a new one."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Saved model to train on, with its tokenizer. None: a new model."},
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Delete what output_dir holds and start anew."}
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={
            "help": "How attention is computed: sdpa, eager, flex_attention, ... None: sdpa, but "
            "eager in half precision on a CPU, where sdpa is slow."
        },
    )
    metrics: list[str] = field(
        default_factory=lambda: ["bleu", "chrf"],
        metadata={
            "help": f"Scores of generated text, of {', '.join(METRICS)}; the first one chooses "
            "the best checkpoint unless metric_for_best_model is set."
        },
    )


@dataclass
class TokenizerArguments:
    """Which tokenizer is used: a saved one, or one trained on the training split.

    Beside a saved one, the options of the training must be those that it was trained with.
    """

    tokenizer_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Saved tokenizer. None: the model's, or a new one from the training text."
        },
    )
    tokenizer_kind: str | None = field(
        default=None,
        metadata={"help": "One of bpe (the default), unigram, word, char, byte_bpe."},
    )
    target_tokenizer_kind: str | None = field(
        default=None,
        metadata={"help": "Kind of the target's vocabulary; needs separate_vocabularies."},
    )
    vocab_size: int | None = field(
        default=None,
        metadata={"help": "Largest number of tokens, special ones included; by default 8000."},
    )
    target_vocab_size: int | None = field(
        default=None, metadata={"help": "The same for a separate target vocabulary."}
    )
    separate_vocabularies: bool | None = field(
        default=None, metadata={"help": "One vocabulary per side instead of a shared one."}
    )
    lowercase: bool | None = field(default=None, metadata={"help": "Lowercase all text."})

    def training_options(self) -> dict[str, Any]:
        """Returns what was said about how the tokenizer is trained, by the names of `train`."""
        given = {
            "kind": self.tokenizer_kind,
            "target_kind": self.target_tokenizer_kind,
            "vocab_size": self.vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "shared": None
            if self.separate_vocabularies is None
            else not self.separate_vocabularies,
            "lowercase": self.lowercase,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass
class SubwordArguments:
    """Whether the words of the training text fall into other subwords in each epoch."""

    bpe_dropout: float | None = field(
        default=None,
        metadata={"help": "Probability of leaving out a merge; for bpe and byte_bpe. Often 0.1."},
    )
    unigram_alpha: float | None = field(
        default=None,
        metadata={"help": "Smoothness of sampled subwords; for unigram. Often 0.2."},
    )
    sampled_sides: str = field(
        default="both", metadata={"help": "Texts that are sampled: both, source or target."}
    )


@dataclass
class AveragingArguments:
    """Which weights a run ends with: by default those of its last step, or of its best model.

    Raises:
        ValueError: When more than one average is asked for.
    """

    average_last: int | None = field(
        default=None, metadata={"help": "End with the mean of the last so many checkpoints."}
    )
    average_best: int | None = field(
        default=None,
        metadata={"help": "End with the mean of the so many checkpoints that scored best."},
    )
    ema_decay: float | None = field(
        default=None,
        metadata={
            "help": "Evaluate and save a running mean of the weights, which keeps this share of "
            "itself at each step, e.g. 0.999."
        },
    )

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) > 1:
            raise ValueError(f"`{'`, `'.join(given)}` exclude each other: give one of them.")
        for name, value in given.items():
            if value <= 0:
                raise ValueError(f"`{name}` is {value}: it must be positive, or left out.")


@dataclass
class ShowArguments:
    """Which sentences a run shows while it trains, and how often.

    Raises:
        ValueError: When a number is below 1.
    """

    show_every: int | None = field(
        default=None,
        metadata={
            "help": "Print what the model makes of some validation examples every so many steps."
        },
    )
    show_examples: int = field(default=3, metadata={"help": "How many examples are shown."})

    def __post_init__(self) -> None:
        for name in ("show_every", "show_examples"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"`{name}` is {value}: it must be at least 1, or left out.")


@dataclass
class CardArguments:
    """What the model card says beyond what the run knows."""

    dataset_label: str | None = field(
        default=None, metadata={"help": "Name of the data, for the card."}
    )
    language: list[str] | None = field(
        default=None, metadata={"help": "ISO codes of the languages, for the card."}
    )
    license: str = field(
        default="apache-2.0", metadata={"help": "Licence of the weights, for the card."}
    )
    task: str = field(
        default="translation", metadata={"help": "Pipeline tag of the card, as the Hub names it."}
    )


def _architecture_fields() -> list[tuple[str, Any, Any]]:
    """Makes an optional argument of each architecture field of the config: None keeps its value."""
    own = VanillaTransformerConfig.__annotations__
    defaults = VanillaTransformerConfig()
    described = []
    for name, kind in own.items():
        if name in _NOT_ARCHITECTURE:
            continue
        simple: Any = next(
            k for k in (bool, int, str, float, dict) if kind in (k, k | None, float | int)
        )
        text = f"Field of VanillaTransformerConfig, by default {getattr(defaults, name, None)!r}."
        simple = {dict: dict | str}.get(simple, simple)  # a string of JSON on the command line
        argument_type = float | None if kind == float | int else simple | None
        described.append((name, argument_type, field(default=None, metadata={"help": text})))
    return described


ArchitectureArguments = make_dataclass("ArchitectureArguments", _architecture_fields())
ArchitectureArguments.__doc__ = "The fields of `VanillaTransformerConfig` that a run may change."


@dataclass
class RunArguments:
    """All arguments of one run, with the command that gave them and the file that it names."""

    model: ModelArguments
    architecture: Any
    tokenizer: TokenizerArguments
    data: DataArguments
    subwords: SubwordArguments
    averaging: AveragingArguments
    show: ShowArguments
    card: CardArguments
    training: TokenBudgetTrainingArguments
    command: Sequence[str]
    recipe: Path | None = None

    def architecture_changes(self) -> dict[str, Any]:
        """Returns the architecture fields that were given, by name."""
        values = {f.name: getattr(self.architecture, f.name) for f in fields(self.architecture)}
        if isinstance(values["rope_parameters"], str):
            values["rope_parameters"] = _from_json("rope_parameters", values["rope_parameters"])
        return {name: value for name, value in values.items() if value is not None}


def _from_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"`{name}` {text!r} is no JSON ({error}): mend it.") from error


def parse_arguments(argv: Sequence[str] | None = None) -> RunArguments:
    """Reads arguments from the command line, or from a file with the command line on top of it.

    Args:
        argv: Arguments; None: those of the process. If the first ends in .yaml, .yml or .json, it
            is a file of `name: value` pairs, and the arguments after it override it.

    Returns:
        The arguments.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file cannot be read or does not hold one mapping, or a metric is unknown.
        SystemExit: If an argument is unknown or has the wrong type.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    command = ["python", sys.argv[0], *argv]
    recipe = None
    if argv and argv[0].endswith((".yaml", ".yml", ".json")):
        recipe = Path(argv[0])
        argv = [*_file_as_arguments(recipe), *argv[1:]]
    parser = HfArgumentParser(
        cast(
            Any,
            (
                ModelArguments,
                ArchitectureArguments,
                TokenizerArguments,
                DataArguments,
                SubwordArguments,
                AveragingArguments,
                ShowArguments,
                CardArguments,
                TokenBudgetTrainingArguments,
            ),
        ),
        allow_abbrev=False,
    )
    parsed: Any = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    arguments = RunArguments(*[*parsed, command, recipe])
    _check_metrics(arguments)
    _check_search(arguments)
    return arguments


def _check_search(arguments: RunArguments) -> None:
    """Refuses before the training what generation would refuse after it."""
    least = {"generation_max_length": 2, "generation_num_beams": 1}
    for name, number in least.items():
        value = getattr(arguments.training, name)
        if value is not None and value < number:
            raise ValueError(f"`{name}` is {value}: it must be at least {number}.")


def _check_metrics(arguments: RunArguments) -> None:
    names = arguments.model.metrics
    if unknown := [name for name in names if name not in METRICS]:
        raise ValueError(f"`metrics` {unknown} are unknown: choose of {sorted(METRICS)}.")
    best = arguments.training.metric_for_best_model
    if best is not None and best.removeprefix("eval_") not in (*names, "loss", "gen_len"):
        raise ValueError(
            f"`metric_for_best_model` {best!r} is not computed: choose of loss, "
            f"{', '.join(names)}, or add it to `metrics`."
        )


class _RecipeLoader(yaml.SafeLoader):
    """Reads `no` and `on` as the words that they are: a strategy, a language."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class's own form
        first: [(tag, form) for tag, form in forms if tag != _BOOL]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_RecipeLoader.add_implicit_resolver(_BOOL, re.compile(r"(?i:true|false)$"), list("tTfF"))


def _file_as_arguments(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"The arguments file {os.fspath(path)!r} does not exist.")
    text = "\n".join(read_lines(path))
    try:
        # YAML reads most of JSON, but neither tabs nor characters written as two escapes.
        values = json.loads(text) if path.suffix == ".json" else yaml.load(text, _RecipeLoader)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{os.fspath(path)!r} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{os.fspath(path)!r} must hold one mapping of argument names to values.")
    arguments: list[str] = []
    for name, value in values.items():
        if value is not None:
            arguments += _as_arguments(f"--{name}", value)
    return arguments


def _as_arguments(option: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [option, *(str(item) for item in value)]
    # In one argument, or a value that begins with a hyphen would be taken for an option.
    return [f"{option}={json.dumps(value) if isinstance(value, dict) else value}"]
