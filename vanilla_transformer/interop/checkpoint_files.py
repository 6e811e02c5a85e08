"""Reads the files that a conversion starts from: weights, and rules that rename them.

Code that a file may hold is never run.
"""

import re
import zipfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file


def read_state_dict(path: str | Path, key: str | None = None) -> dict[str, torch.Tensor]:
    """Reads names and weights from a file of safetensors or torch, whose code is never run.

    Args:
        key: Entry that holds the weights, if the file holds more: "model_state_dict", for example.
    """
    content = _load_tensors(path)
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            names = list(content)[:8] if isinstance(content, dict) else type(content).__name__
            raise ValueError(
                f"`key` is {key!r}, but {str(path)!r} has no such entry: choose one of {names}."
            )
        content = content[key]
    if not isinstance(content, dict) or not content:
        problem = f"holds no weights but {type(content).__name__}"
    elif others := [name for name, value in content.items() if not torch.is_tensor(value)]:
        problem = f"holds more than weights: {others[:8]}. Name the entry of the weights with `key`"
    else:
        return content
    raise ValueError(f"{str(path)!r} {problem}, or save `model.state_dict()` instead.")


class InertObject:
    """The stored values of an object whose class is not loaded; it does nothing."""

    def __init__(self, *args: Any) -> None:
        self.args = args


def read_training_checkpoint(path: str | Path, inert: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a checkpoint that holds options beside weights. Code that it may hold is never run.

    `argparse.Namespace` and objects of inert classes become dictionaries, and an object of an inert
    class that was made from one value becomes that value. Inert are the classes whose full names
    match an expression: `InertObject` stands for each. Other unknown classes are refused.
    """
    content = _load_tensors(path, inert)
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ValueError(f"{str(path)!r} holds no checkpoint but {kind}: give another file.")
    return {str(name): _to_plain(value) for name, value in content.items()}


def _to_plain(value: Any) -> Any:
    """Turns namespaces and inert objects, with their contents, into dictionaries, lists and values.

    The nodes of omegaconf keep their value as `_content` or `_val`.
    """
    if isinstance(value, InertObject):
        state = vars(value)
        for name in ("_content", "_val"):
            if name in state:
                return _to_plain(state[name])
        arguments = state.get("args", ())
        return _to_plain(arguments[0]) if len(arguments) == 1 else _to_plain(state)
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: _to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(entry) for entry in value]
    return value


def _load_tensors(path: str | Path, inert: Sequence[str] = ()) -> Any:
    """Loads a safetensors file or a torch file without running its code."""
    path = Path(path)
    is_zip = zipfile.is_zipfile(path)  # unlike torch's old layout
    unsafe = torch.serialization.get_unsafe_globals_in_checkpoint
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        names = unsafe(path) if inert and is_zip else []
        known = [name for name in names if any(re.fullmatch(each, name) for each in inert)]
        safe: list[Any] = [Namespace, *((InertObject, name) for name in known)]
        with torch.serialization.safe_globals(safe):
            # A map of the file takes no memory of its own.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except OSError:
        raise
    except Exception as error:  # the unpickler raises errors of any type on bytes of any kind
        raise ValueError(
            f"{str(path)!r} cannot be read as weights: give a file that `torch.save` has written "
            f"of `model.state_dict()`, not of the model ({reason_of(error)})"
        ) from None


def reason_of(error: Exception) -> str:
    """Returns why a file of weights cannot be read, without torch's advice to run its code."""
    message = str(error)
    refused = r"GLOBAL (\S+) (?:was not an allowed|whose module)|unrecognized function (.+)"
    if match := re.search(refused, message):
        return f"it holds an object of `{match[1] or match[2]}`, whose code is never run"
    if "weights_only" in message or "safe_globals" in message:
        return "it holds more than tensors, and code in a file is never run"
    return next(iter(message.splitlines()), type(error).__name__)


def read_yaml(path: str | Path) -> Any:
    """Reads a YAML file."""
    path = Path(path)
    return parse_yaml(path.read_bytes(), repr(str(path)), yaml.SafeLoader)


def parse_yaml(text: str | bytes, name: str, loader: Any = None) -> Any:
    """Reads YAML; the error for a text that is none gives the name.

    Args:
        loader: The class that makes values of it. None: values stay texts, such as `no`, a word of
            a vocabulary; no alias is multiplied.
    """
    try:
        return yaml.load(text, loader or getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"{name} is not valid YAML: {problem}") from error


def read_rename_rules(path: str | Path) -> dict[str, str | None]:
    """Reads the rules that rename weights from a YAML file."""
    rules = read_yaml(path)
    if not isinstance(rules, dict) or not all(isinstance(name, str) for name in rules):
        raise ValueError(
            f"{str(path)!r} must map regular expressions to names, one per line: "
            "'old\\.(.*)': 'new.\\1'."
        )
    return rules
