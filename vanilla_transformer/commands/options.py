"""The groups of options that subcommands share."""

import json
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.options import REQUIRED, SearchOptions, argument, option


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

    def named(self) -> dict[str, Any]:
        """Returns the languages by their names in `Translator`."""
        return {"src_lang": self.source_language, "tgt_lang": self.target_language}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The saved model that is read."""

    model: str = argument("directory of a saved model, or its name on the Hub", "MODEL")


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """Two files of parallel lines."""

    source: str = option("source texts, one per line", REQUIRED, metavar="FILE")
    target: str = option("target texts, one per line", REQUIRED, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file that is written, and whether it may replace one."""

    output: str | None = option("file to write (default: print)", metavar="FILE")
    overwrite: bool = option("replace an existing --output", False)


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
