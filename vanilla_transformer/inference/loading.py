"""Loading a saved model with its tokenizer."""

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
        device: Where the model goes; None: a GPU if there is one.

    Returns:
        (model, tokenizer).

    Raises:
        ValueError: If the directory holds another kind of model, or weights that cannot be read.
        FileNotFoundError: If it does not exist, or holds no weights or no tokenizer.
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
        FileNotFoundError: If there is no such directory and no such name, or no tokenizer in it.
    """
    folder = Path(path)
    if folder.exists() and not list(folder.glob("tokenizer*.json")):
        raise FileNotFoundError(
            f"{path!r} holds no tokenizer: save one there by `tokenizer.save_pretrained`."
        )
    with _found_or_named(path):
        return AutoTokenizer.from_pretrained(path)


@contextmanager
def _found_or_named(path: str) -> Iterator[None]:
    """Says of a path that does not exist that it does not, whatever the Hub's client says."""
    try:
        yield
    except OSError as error:
        if Path(path).exists():
            raise
        raise FileNotFoundError(
            f"{path!r} is no directory here, and could not be had from the Hub: check its name "
            f"({str(error).splitlines()[0]})"
        ) from error


def load_weights(path: str, **changes: Any) -> Any:
    """Loads a model through its Auto class.

    Args:
        path: Directory, or name on the Hub.
        **changes: Fields of the config to change, e.g. `dropout=0.3`.

    Returns:
        The model.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the config with its changes.
        FileNotFoundError: If there are none.
    """
    try:
        with _found_or_named(path):
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
            f"The weights in {path!r} cannot be read ({error}); the file is damaged or was cut "
            "off: copy it again, or use an earlier checkpoint."
        ) from error
    unfit = {name: sorted(map(str, keys)) for name, keys in report.items() if keys}
    if unfit:
        raise ValueError(
            f"The weights in {path!r} do not fit the architecture asked for ({unfit}): leave its "
            "fields as they were saved, or train a new model."
        )
    return model


def check_model_directory(path: str) -> None:
    """Refuses a local directory that does not hold a model of this package.

    Args:
        path: Directory, or name on the Hub (which is not looked at).

    Raises:
        FileNotFoundError: If it looks like a path and does not exist.
        ValueError: If it has no config, a damaged one, or that of another kind of model.
    """
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise FileNotFoundError(f"The model directory {path!r} does not exist.")
        return
    config = folder / "config.json"
    if not config.is_file():
        raise ValueError(f"{path!r} holds no config.json: it is no saved model.")
    try:
        found = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(config)!r} is no config ({error}): it may be cut short; copy it again."
        ) from error
    if found != VanillaTransformerConfig.model_type:
        raise ValueError(
            f"{path!r} holds a model of type {found!r}, not "
            f"{VanillaTransformerConfig.model_type!r}: give a directory that this package saved."
        )
