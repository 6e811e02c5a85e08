"""An option is declared once, as a field of a dataclass: its type, range, default and help.

The command line (`command_line`), the fields of a request, the controls of the page and the
tables of the docs are made from these fields. This file imports nothing heavy.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import isfinite
from typing import Any

from vanilla_transformer.names import COMPUTE_TYPES, ENGINES

REQUIRED = MISSING
"""The default of an option that must be given."""
_RANGE_ENDS = ("ge", "gt", "le", "lt")


class _Help(str):
    """The help of an option, which holds its range: transformers' parser takes no other names."""

    limits: dict[str, Any]


def option(help_text: str, default: Any = None, **settings: Any) -> Any:
    """Declares an option.

    Args:
        settings: Settings of argparse; the range of a number as `ge`, `gt`, `le` and `lt` (at
            least, above, at most, below); and `flag`, if the name differs from the field's.
    """
    described = _Help(help_text)
    described.limits = {end: settings.pop(end) for end in _RANGE_ENDS if end in settings}
    metadata = {"help": described, **settings}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def argument(help_text: str, metavar: str, **settings: Any) -> Any:
    """Declares an argument that a command line names by its position."""
    return field(metadata={"help": help_text, "metavar": metavar, "positional": True, **settings})


def same_option(topic: Any, name: str) -> Any:
    """Declares an option as another dataclass has it."""
    declared = topic.__dataclass_fields__[name]
    return field(default=declared.default, metadata=declared.metadata)


def range_of(topic: Any, name: str) -> Mapping[str, Any]:
    """Returns the range of an option, by the names that `option` and pydantic have for its ends."""
    return getattr(topic.__dataclass_fields__[name].metadata.get("help"), "limits", {})


def range_problem(value: float, limits: Mapping[str, float]) -> str:
    """Says how a number is out of its range; "": it is not."""
    if "ge" in limits and not value >= limits["ge"]:
        return f"is below {limits['ge']}"
    if "gt" in limits and not value > limits["gt"]:
        return f"is not above {limits['gt']}"
    if "le" in limits and not value <= limits["le"]:
        return f"is above {limits['le']}"
    if "lt" in limits and not value < limits["lt"]:
        return f"is not below {limits['lt']}"
    return "" if not limits or isfinite(value) else "is not finite"


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How outputs are searched for, by the names of `GenerationConfig`; None: as saved."""

    _argument_group_name = "search (default: as saved with the model)"

    num_beams: int | None = option("beam width; 1 is greedy search", ge=1)
    max_new_tokens: int | None = option("longest output, in tokens", ge=1)
    length_penalty: float | None = option(
        "exponent of the length by which a beam search divides scores: above 1 favours longer "
        "outputs",
        ge=-10,
        le=10,
    )
    do_sample: bool | None = option("sample tokens")
    temperature: float | None = option("below 1 samples likely tokens more", gt=0, le=100)
    top_k: int | None = option("sample from the N likeliest tokens", ge=0)
    top_p: float | None = option(
        "sample from the likeliest tokens whose probabilities add up to X", gt=0, le=1
    )

    def given(self) -> dict[str, Any]:
        """Returns the options that are given, by name."""
        values = {declared.name: getattr(self, declared.name) for declared in fields(SearchOptions)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Where batches are computed, and how large they are."""

    _argument_group_name = "computation"

    batch_tokens: int | None = option(
        "largest size of a batch, in tokens with padding (default: 1024 on a CPU, 4096 on a GPU)",
        ge=1,
    )
    device: str | None = option(
        "cpu, cuda, cuda:1, ... (default: a GPU if there is one)", metavar="DEVICE"
    )


@dataclass(frozen=True, kw_only=True)
class EngineOptions(BatchOptions):
    """The engine that computes the batches."""

    engine: str = option(
        "auto: CTranslate2 where it is installed and can compute the model", "auto", choices=ENGINES
    )


@dataclass(frozen=True, kw_only=True)
class TypedEngineOptions(EngineOptions):
    """The engine that computes the batches, and the type of its numbers."""

    compute_type: str = option(
        "type of CTranslate2's computation; int8 is the fastest on a CPU",
        "float32",
        choices=COMPUTE_TYPES,
        metavar="TYPE",
    )


@dataclass(frozen=True, kw_only=True)
class LanguageOptions:
    """The languages of sources and targets."""

    _argument_group_name = "languages"

    source_language: str | None = option(
        "language of the sources, e.g. en, pt-BR or eng_Latn (default: that of the model)",
        metavar="CODE",
    )
    target_language: str | None = option(
        "language of the targets, which a model of several target languages needs", metavar="CODE"
    )


def read_assignment(text: str) -> tuple[str, Any]:
    """Reads a setting, or a field of a config; the value is JSON, or else a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), {"True": True, "False": False}.get(value, value)


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(SearchOptions):
    """The search, with every setting of `generate()`."""

    generation: list[tuple[str, Any]] = option(
        "any other setting of generate(), such as no_repeat_ngram_size=3; may be repeated",
        [],
        type=read_assignment,
        action="append",
        metavar="NAME=VALUE",
    )

    def given(self) -> dict[str, Any]:
        """Returns the settings that are given, by name."""
        return {**super().given(), **dict(self.generation)}
