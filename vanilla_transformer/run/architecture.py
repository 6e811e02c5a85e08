"""The architecture options of a run, generated from the fields of `VanillaTransformerConfig`."""

import inspect
import json
import re
from dataclasses import asdict, field, make_dataclass
from typing import Any, get_args

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig

_NOT_OPTIONS = {  # a tokenizer or a training decides these, or they are not for a translator
    "alignment_heads",
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


def field_descriptions() -> dict[str, str]:
    """Returns the description of each field of the config, from the docstring of its class.

    Returns:
        Descriptions on one line each, by field name.
    """
    text = inspect.cleandoc(VanillaTransformerConfig.__doc__ or "")
    block = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    entry = re.compile(r"^ {4}(\w[\w, ]*): (.*?)(?=^ {4}\S|\Z)", re.DOTALL | re.MULTILINE)
    return {
        name: " ".join(description.split())
        for names, description in entry.findall(block[1] if block else "")
        for name in names.split(", ")
    }


def _option_type(annotation: Any) -> Any:
    """Returns the type of the option for a field of this type; None is always allowed."""
    members = set(get_args(annotation) or (annotation,)) - {type(None)}
    if dict in members:
        return dict | str | None  # the command line gives JSON
    return (float if members == {float, int} else members.pop()) | None


def _option_fields() -> list[tuple[str, Any, Any]]:
    descriptions = field_descriptions()
    described = []
    for name, annotation in VanillaTransformerConfig.__annotations__.items():
        if name not in _NOT_OPTIONS:
            text, default = (
                descriptions.get(name, ""),
                getattr(VanillaTransformerConfig, name, None),
            )
            if default is not None:
                text += f" Default of a new model: {default!r}."
            metadata = {"help": text.replace("%", "%%")}
            described.append(
                (name, _option_type(annotation), field(default=None, metadata=metadata))
            )
    return described


ArchitectureArguments = make_dataclass("ArchitectureArguments", _option_fields())
ArchitectureArguments.__doc__ = "Changes the architecture of a new model; None keeps a field."
setattr(ArchitectureArguments, "_argument_group_name", "architecture")  # noqa: B010

ARCHITECTURE_FIELDS = tuple(name for name, _, _ in _option_fields())
"""The names of the architecture options, which are fields of the config."""


def architecture_changes(options: Any) -> dict[str, Any]:
    """Returns the architecture fields that were given.

    Args:
        options: An `ArchitectureArguments`.

    Returns:
        The fields that are not None, by name.

    Raises:
        ValueError: If `rope_parameters` is not valid JSON.
    """
    changes = {name: value for name, value in asdict(options).items() if value is not None}
    if isinstance(text := changes.get("rope_parameters"), str):
        try:
            changes["rope_parameters"] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"`rope_parameters` {text!r} is not valid JSON ({error}): give an object, e.g. "
                '\'{"rope_type": "linear", "factor": 2.0}\'.'
            ) from error
    return changes
