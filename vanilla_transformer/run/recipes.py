"""Recipes: YAML and JSON files that hold the options of a run."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vanilla_transformer.data.text_files import read_lines

RECIPE_SUFFIXES = (".yaml", ".yml", ".json")

_BOOL_TAG = "tag:yaml.org,2002:bool"
_MERGE_TAG = "tag:yaml.org,2002:merge"


class _RecipeLoader(yaml.SafeLoader):
    """Reads only true and false as booleans, and `no`, `yes`, `on` and `off` as text.

    `no` is a value of `save_strategy` and the code of a language.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class's own form
        first: [(tag, form) for tag, form in forms if tag != _BOOL_TAG]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _construct_mapping(loader: _RecipeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [key for key, _ in node.value if key.tag != _MERGE_TAG]
    _without_repetition([(loader.construct_object(key), None) for key in keys])
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


def _without_repetition(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Makes a dictionary of pairs, whose names must differ."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated!r} occurs twice")
    return values


_RecipeLoader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_RecipeLoader.add_implicit_resolver(_BOOL_TAG, re.compile(r"(?i:true|false)$"), list("tTfF"))


@dataclass(frozen=True)
class Recipe:
    """One recipe.

    Attributes:
        path: Its file.
        text: What the file holds.
        words: Its options as command-line arguments, e.g.
            `["--d_model=64", "--metrics", "wer", "per"]`. An option whose value is null is left
            out.
    """

    path: Path
    text: str
    words: list[str]


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Reads a recipe.

    Args:
        path: YAML or JSON file with one mapping of option names to values.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is damaged, or does not hold one mapping.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The recipe {os.fspath(path)!r} does not exist: check the path.")
    text = "\n".join(read_lines(path))
    try:
        # YAML reads most of JSON, but neither tabs nor characters written as two escapes.
        if path.suffix == ".json":
            values = json.loads(text, object_pairs_hook=_without_repetition)
        else:
            values = yaml.load(text, _RecipeLoader)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(
            f"The recipe {os.fspath(path)!r} cannot be read: {error}. Correct the file."
        ) from error
    if not isinstance(values, dict):
        raise ValueError(
            f"The recipe {os.fspath(path)!r} must hold one mapping of option names to values."
        )
    words: list[str] = []
    for name, value in values.items():
        if value is not None:
            words += _command_line_form(f"--{name}", value)
    return Recipe(path, text, words)


def _command_line_form(option: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [option, *(str(item) for item in value)]
    # One argument, because argparse takes a value that begins with a hyphen for an option.
    return [f"{option}={json.dumps(value) if isinstance(value, dict) else value}"]
