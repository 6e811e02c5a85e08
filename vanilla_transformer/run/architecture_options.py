"""The options of a new model's architecture: the fields of the config, which documents them."""

import inspect
import re
from dataclasses import make_dataclass
from typing import Any, get_args

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.options import option

_DECIDED_OTHERWISE = (  # by a tokenizer or a training, or they are not for a translator
    *("vocab_size", "decoder_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("decoder_start_token_id", "forced_eos_token_id", "is_encoder_decoder", "use_cache"),
    *("alignment_heads", "classifier_pooling", "classifier_dropout"),
)
ARCHITECTURE_FIELDS = tuple(
    name for name in VanillaTransformerConfig.__annotations__ if name not in _DECIDED_OTHERWISE
)
"""The fields of the config that are options."""


def field_descriptions() -> dict[str, str]:
    """Returns the description of each field, on one line, from the docstring of the config.

    So the docstring, the help and docs/config.md have one source.
    """
    text = inspect.cleandoc(VanillaTransformerConfig.__doc__ or "")
    block = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    entry = re.compile(r"^ {4}(\w[\w, ]*): (.*?)(?=^ {4}\S|\Z)", re.DOTALL | re.MULTILINE)
    return {
        name: " ".join(description.split())
        for names, description in entry.findall(block[1] if block else "")
        for name in names.split(", ")
    }


def _architecture_option(name: str, description: str) -> tuple[str, Any, Any]:
    """Returns name, type and field of an option; None is always allowed, and is its default."""
    annotation = VanillaTransformerConfig.__annotations__[name]
    types = set(get_args(annotation) or (annotation,)) - {type(None)}
    default = getattr(VanillaTransformerConfig, name, None)
    declared = option(f"{description} Default: {default!r}.".replace("%", "%%"))
    kind: Any = float if types == {float, int} else types.pop()
    return name, kind | None, declared


_DESCRIPTIONS = field_descriptions()
ArchitectureArguments = make_dataclass(
    "ArchitectureArguments",
    [_architecture_option(name, _DESCRIPTIONS[name]) for name in ARCHITECTURE_FIELDS],
    namespace={
        "__doc__": "Changes the architecture of a new model; None keeps a field.",
        "_argument_group_name": "architecture of a new model",
    },
)
