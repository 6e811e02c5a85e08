"""Reads the files that a conversion starts from: weights, and rules that rename them."""

from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file


def read_state_dict(path: str | Path, key: str | None = None) -> dict[str, torch.Tensor]:
    """Reads names and weights from a file. Code that the file may hold is never run.

    Args:
        path: A safetensors file, or a file written by `torch.save(model.state_dict(), path)`.
        key: Entry that holds the weights, if the file holds more: "model_state_dict", for example.

    Returns:
        Names and weights.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file cannot be read, holds no weights, or holds more than weights.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The checkpoint {str(path)!r} does not exist.")
    content = _load_tensors(path)
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            names = list(content)[:8] if isinstance(content, dict) else type(content).__name__
            raise ValueError(
                f"`key` is {key!r}, but {str(path)!r} has no such entry: choose one of {names}."
            )
        content = content[key]
    if not isinstance(content, dict) or not content:
        kind = type(content).__name__
        raise ValueError(
            f"{str(path)!r} holds no weights but {kind}: save `model.state_dict()` instead."
        )
    unnamed = [name for name in content if not isinstance(name, str)]
    if unnamed:
        raise ValueError(
            f"{str(path)!r} has keys that are not names of weights: {unnamed[:8]}. Save "
            "`model.state_dict()` instead."
        )
    others = [name for name, value in content.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise ValueError(
            f"{str(path)!r} holds more than weights: {others[:8]}. Name the entry that holds the "
            "weights with `key`, or save `model.state_dict()` instead."
        )
    return content


def _load_tensors(path: Path) -> Any:
    """Loads a safetensors file or a torch file without running its code."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # the unpickler raises errors of any type on bytes of any kind
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"{str(path)!r} cannot be read as weights: save `model.state_dict()` rather than the "
            f"model ({reason})"
        ) from error


def read_rename_rules(path: str | Path) -> dict[str, str | None]:
    """Reads the rules that rename weights from a YAML file.

    Args:
        path: YAML file that maps regular expressions to names, as `interop.systems.convert`
            takes them.

    Returns:
        The rules, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not YAML, or not a mapping of strings.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The file of rules {str(path)!r} does not exist.")
    try:
        rules = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{str(path)!r} is not valid YAML: {error}") from error
    if not isinstance(rules, dict) or not all(isinstance(name, str) for name in rules):
        raise ValueError(
            f"{str(path)!r} must map regular expressions to names, one per line: "
            "'old\\.(.*)': 'new.\\1'."
        )
    return rules
