"""Recipes: files that hold the options of a run, in YAML, which JSON is too."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vanilla_transformer.command_line import read_some_options
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.files.text_files import read_lines

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Recipe:
    """One recipe, also as words of a command: `["--d_model=64", "--metrics", "wer", "per"]`."""

    path: Path
    text: str
    words: list[str]  # without the options whose value is null

    @property
    def names(self) -> set[str]:
        """The names of the options."""
        options = (word.partition("=")[0] for word in self.words if word.startswith("--"))
        return {option.removeprefix("--").replace("-", "_") for option in options}


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Reads a recipe."""
    path = Path(path)
    text = "\n".join(read_lines(path))
    try:
        values = yaml.load(text, _RecipeLoader)
        # The same scalars as text: an option's type decides whether 1e-3 is a number or a name.
        written = yaml.load(text, yaml.BaseLoader)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(
            f"The recipe {os.fspath(path)!r} cannot be read: {error}. Correct the file."
        ) from error
    if not isinstance(values, dict):
        raise ValueError(
            f"The recipe {os.fspath(path)!r} must hold one mapping of option names to values."
        )
    words: list[str] = []
    for name, value in values.items():
        as_text = written.get(name, value)  # it lacks names that `<<` merges
        if isinstance(value, list):
            words += [f"--{name}", *map(_as_word, value, as_text)]
        elif value is not None:
            # One word, because argparse takes a value that begins with a hyphen for an option.
            words.append(f"--{name}={_as_word(value, as_text)}")
    return Recipe(path, text, words)


def expand_recipe(words: Sequence[str]) -> tuple[list[str], Recipe | None]:
    """Reads the recipe that the words of a command may begin with.

    Returns:
        The recipe's words followed by the command's, which override them; and the recipe.
    """
    if not words or words[0].startswith("-"):
        return [*words], None
    if not words[0].endswith(_SUFFIXES):
        raise ValueError(
            f"{words[0]!r} is no recipe ({', '.join(_SUFFIXES)}): give data as --train-file"
        )
    recipe = read_recipe(words[0])
    return [*recipe.words, *words[1:]], recipe


def data_of_recipe(path: str) -> tuple[DataArguments, list[str]]:
    """Returns the options of the data in a recipe, and the words of its other options."""
    return read_some_options(DataArguments, read_recipe(path).words)


def _as_word(value: Any, as_text: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(as_text)


class _RecipeLoader(yaml.SafeLoader):
    """Reads scalars by the core schema of YAML 1.2: `no`, `on`, 12:30 and 2024-05-01 are texts.

    It refuses names that occur twice in one mapping, of which YAML would take the last.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [str(key.value).replace("-", "_") for key, _ in node.value]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{repeated[0]!r} occurs twice")
        return super().construct_mapping(node, deep)


_RecipeLoader.yaml_implicit_resolvers = {}
for _tag, _pattern in {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?\d+",
    "float": r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?",
    "merge": "<<",
}.items():
    _RecipeLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"({_pattern})\Z", re.ASCII), None
    )
_RecipeLoader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
