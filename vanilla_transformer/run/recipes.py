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

_TAG = "tag:yaml.org,2002:"
_FORMS = {  # of YAML 1.2; in version 1.1, `no` is False, 010 is 8, 1:30 is 90 and 1e-3 a text
    "bool": (r"(?i:true|false)$", "tTfF"),
    "int": (r"[-+]?[0-9]+$", "-+0123456789"),
    "float": (
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    "null": (r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    "merge": (r"<<$", "<"),
}


class _RecipeLoader(yaml.SafeLoader):
    """Reads values as YAML 1.2 does, and refuses names that occur twice in one mapping."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the base class's own form


def _construct_mapping(loader: _RecipeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [key for key, _ in node.value if key.tag != f"{_TAG}merge"]
    _without_repetition([(loader.construct_object(key), None) for key in keys])
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


for _name, (_form, _first) in _FORMS.items():
    _RecipeLoader.add_implicit_resolver(_TAG + _name, re.compile(_form), list(_first))
_RecipeLoader.add_constructor(f"{_TAG}map", _construct_mapping)
_RecipeLoader.add_constructor(f"{_TAG}int", lambda _, node: int(node.value))


def _without_repetition(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Makes a dictionary of pairs, whose names must differ, also when hyphens are underscores."""
    names = [str(name).replace("-", "_") for name, _ in pairs]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{repeated[0]!r} occurs twice")
    return dict(pairs)


@dataclass(frozen=True)
class Recipe:
    """One recipe.

    Attributes:
        words: Its options as command-line arguments, e.g.
            `["--d_model=64", "--metrics", "wer", "per"]`. An option whose value is null is left
            out.
    """

    path: Path
    text: str
    words: list[str]


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Reads a recipe.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is damaged, or does not hold one mapping of names to values.
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
        if value == []:
            raise ValueError(
                f"The recipe {os.fspath(path)!r} has an empty list for {name!r}: give a value, or "
                "leave the option out."
            )
        if isinstance(value, list):
            words += [f"--{name}", *map(_value_as_word, value)]
        elif value is not None:
            # One word, because argparse takes a value that begins with a hyphen for an option.
            words.append(f"--{name}={_value_as_word(value)}")
    return Recipe(path, text, words)


def _value_as_word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)
