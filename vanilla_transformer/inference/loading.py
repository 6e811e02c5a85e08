"""Loads a saved model and its tokenizer, and explains what is wrong if that fails."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig


def load_model(path: str, device: str | torch.device | None = None) -> tuple[Any, Any]:
    """Loads a model and its tokenizer through the Auto classes, ready for inference.

    Args:
        path: Directory, or name on the Hub.
        device: Device of the model. None: a GPU if there is one, otherwise the CPU.

    Returns:
        (model, tokenizer).

    Raises:
        ValueError: If the directory holds another kind of model, or weights that cannot be read.
        FileNotFoundError: If the directory does not exist, or holds no weights or no tokenizer.
    """
    check_model_directory(path)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(path)
    return load_weights(path).to(device).eval(), tokenizer


def load_tokenizer(path: str) -> Any:
    """Loads a tokenizer through its Auto class.

    Args:
        path: Directory, or name on the Hub.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: If neither a directory nor a name on the Hub fits `path`, or if the
            directory holds no tokenizer.
    """
    folder = Path(path)
    if folder.exists() and not list(folder.glob("tokenizer*.json")):
        raise FileNotFoundError(
            f"{path!r} holds no tokenizer: save one there with `tokenizer.save_pretrained`."
        )
    with _explain_missing_path(path):
        return AutoTokenizer.from_pretrained(path)


def load_weights(path: str, **changes: Any) -> Any:
    """Loads a model through its Auto class.

    Args:
        path: Directory, or name on the Hub.
        **changes: Config fields to override, e.g. `dropout=0.3`.

    Returns:
        The model.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the config with the changes.
        FileNotFoundError: If `path` does not exist, or holds no weights.
    """
    try:
        with _explain_missing_path(path):
            model, report = AutoModelForSeq2SeqLM.from_pretrained(
                path, output_loading_info=True, **changes
            )
    except OSError as error:
        if Path(path).is_dir() and not list(Path(path).glob("*.safetensors*")):
            raise FileNotFoundError(
                f"{path!r} holds no weights (model.safetensors): copy them there, or use another "
                "directory."
            ) from error
        raise
    except Exception as error:
        if "safetensor" not in f"{type(error).__name__} {error}".lower():
            raise
        raise ValueError(
            f"The weights in {path!r} cannot be read ({error}). The file is damaged or was cut "
            "off: copy it again, or use an earlier checkpoint."
        ) from error
    misfits = {name: sorted(map(str, keys)) for name, keys in report.items() if keys}
    if misfits:
        raise ValueError(
            f"The weights in {path!r} do not fit the requested architecture ({misfits}): leave the "
            "fields as they were saved, or train a new model."
        )
    return model


def check_model_directory(path: str) -> None:
    """Raises an error if a local directory does not hold a model of this package.

    Args:
        path: Directory, or name on the Hub. A name on the Hub is not checked.

    Raises:
        FileNotFoundError: If `path` looks like a path and does not exist.
        ValueError: If the config is missing, damaged, or of another kind of model.
    """
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise FileNotFoundError(f"The model directory {path!r} does not exist.")
        return
    config = folder / "config.json"
    if not config.is_file():
        raise ValueError(
            f"{path!r} holds no config.json, so it is not a saved model: give the directory of one."
        )
    try:
        found = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(config)!r} is not a valid config ({error}). It may be cut off: copy it again."
        ) from error
    if found != VanillaTransformerConfig.model_type:
        raise ValueError(
            f"{path!r} holds a model of type {found!r}, not "
            f"{VanillaTransformerConfig.model_type!r}: give a directory that this package saved."
        )


@contextmanager
def _explain_missing_path(path: str) -> Iterator[None]:
    """Turns the Hub client's error for a path that does not exist into a plain one."""
    try:
        yield
    except OSError as error:
        if Path(path).exists():
            raise
        raise FileNotFoundError(
            f"{path!r} is not a local directory and could not be loaded from the Hub: check the "
            f"name ({str(error).splitlines()[0]})."
        ) from error
