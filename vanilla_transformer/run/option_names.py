"""The names of all options of a training, so that a wrong one is reported before torch is loaded.

The dataclasses of the config and of the training arguments import torch, which takes seconds. Their
fields are read from the source files instead, and nothing is executed.
"""

import ast
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.run import options

NO_ARCHITECTURE_OPTIONS = frozenset(
    {  # a tokenizer or a training decides these, or they are not for a translator
        *("vocab_size", "decoder_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"),
        *("decoder_start_token_id", "forced_eos_token_id", "is_encoder_decoder", "use_cache"),
        *("alignment_heads", "classifier_pooling", "classifier_dropout"),
    }
)
"""The fields of the config that are no options."""

OTHER_NAMES = {
    **{"source": "train_source", "src": "train_source", "dev_source": "validation_source"},
    **{"target": "train_target", "tgt": "train_target", "dev_target": "validation_target"},
    **{"save_dir": "output_dir", "model": "model_name_or_path", "resume": "resume_from_checkpoint"},
    **{"batch_size": "max_tokens", "lr": "learning_rate", "patience": "early_stopping_patience"},
    **{"layers": "encoder_layers", "heads": "encoder_attention_heads", "hidden_size": "d_model"},
    **{"beam": "generation_num_beams", "beam_size": "generation_num_beams", "device": "use_cpu"},
}
"""Names that other toolkits have for an option, where its own spelling is not close."""

_PACKAGE = Path(__file__).parents[1]
_TOPICS: tuple[Any, ...] = (
    options.ModelArguments,
    options.TokenizerArguments,
    options.PreparationArguments,
    DataArguments,
    options.SubwordArguments,
    options.AveragingArguments,
    options.ShowArguments,
    options.CardArguments,
)


def unknown_option_message(word: str) -> str:
    """Returns the error for a word that is no option, with the option that comes closest."""
    if not word.startswith("--"):
        return (
            f"The argument {word!r} is unexpected: give options as `--name value`, and a recipe "
            "(.yaml, .yml or .json) as the first argument."
        )
    name = word[2:].replace("-", "_")
    known = [f"--{name}" for name in option_names()]
    close = difflib.get_close_matches(f"--{name}", known, n=1)
    if name in OTHER_NAMES:
        close = [f"--{OTHER_NAMES[name]}"]
    hint = f"did you mean `{close[0]}`?" if close else "`--help` lists the options."
    return f"The option `{word}` is unknown: {hint}"


def first_unknown_option(words: Iterable[str]) -> str | None:
    """Returns the first word like `--name` or `--name=value` that is no option.

    None if there is no such word.
    """
    known = {"help", *option_names()}
    known |= {f"no_{name}" for name in known}  # what the parser offers beside a switch
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and option[2:].replace("-", "_") not in known:
            return option
    return None


@cache
def option_names() -> tuple[str, ...]:
    """Returns the names of all options, with underscores, in the order of their dataclasses."""
    names = []
    for topic in _TOPICS:
        for one in fields(topic):
            aliases = one.metadata.get("aliases", ())
            names += [one.name, *(alias.lstrip("-").replace("-", "_") for alias in aliases)]
    transformers = find_spec("transformers")
    folder = Path(str(transformers and transformers.origin)).parent
    config = _PACKAGE / "model" / "configuration_vanilla_transformer.py"
    for file, class_name in (
        (config, "VanillaTransformerConfig"),
        (_PACKAGE / "training" / "training_arguments.py", "TokenBudgetTrainingArguments"),
        (folder / "training_args_seq2seq.py", "Seq2SeqTrainingArguments"),
        (folder / "training_args.py", "TrainingArguments"),
    ):
        found = _annotated_names(file, class_name)
        names += [name for name in found if file != config or name not in NO_ARCHITECTURE_OPTIONS]
    return tuple(dict.fromkeys(names))


def _annotated_names(file: Path, class_name: str) -> Iterator[str]:
    """Yields the names that the body of a class annotates."""
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            for line in statement.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id
