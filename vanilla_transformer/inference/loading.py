"""Loads a saved model and its tokenizer, also in 8 bits; explains what is wrong if that fails."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import (
    get_hf_file_metadata,
    hf_hub_url,
    is_offline_mode,
    try_to_load_from_cache,
)
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.data.model_directory import TOKENIZER_FILES, check_model_directory


def load_model(path: str, device: str | torch.device | None = None) -> tuple[Any, Any]:
    """Loads (model, tokenizer) through the Auto classes, ready for inference.

    Args:
        device: Device of the model. None: a GPU if there is one, otherwise the CPU.

    Raises:
        ValueError: If the directory holds another kind of model, or weights that cannot be read, or
            the device cannot be used.
        FileNotFoundError: If the directory does not exist, or holds no weights or no tokenizer.
    """
    check_model_directory(path)
    device = usable_device(device)
    tokenizer = load_tokenizer(path)
    return load_weights(path).to(device).eval(), tokenizer


def usable_device(device: str | torch.device | None) -> str:
    """Returns the name of a device that torch can use, or raises a ValueError."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"`device` {str(device)!r} cannot be used ({reason}): give cpu, or a device that this "
            "machine and its torch have."
        ) from error
    return str(device)


def load_tokenizer(path: str) -> Any:
    """Loads a tokenizer through its Auto class.

    Raises:
        FileNotFoundError: If neither a directory nor a name on the Hub fits `path`, or if the
            directory holds no tokenizer.
        ValueError: If a file of the tokenizer is damaged.
    """
    folder = Path(path)
    if folder.exists() and not list(folder.glob("tokenizer*.json")):
        raise FileNotFoundError(
            f"{path!r} holds no tokenizer: save one there with `tokenizer.save_pretrained`."
        )
    for file in map(folder.joinpath, TOKENIZER_FILES):
        if file.is_file():
            read_object(file)
    with on_hub(path):
        try:
            return AutoTokenizer.from_pretrained(path)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if not folder.is_dir() or str(folder) in str(error):
                raise
            raise ValueError(
                f"The tokenizer in {path!r} cannot be loaded ({error}): tokenizer_config.json is "
                "damaged, or another package wrote it. Save the tokenizer there again."
            ) from error


def load_weights(path: str, **changes: Any) -> Any:
    """Loads a model through its Auto class.

    Args:
        **changes: Config fields to override, e.g. `dropout=0.3`.

    Raises:
        ValueError: If the model has no encoder or no decoder, or if the weights cannot be read, or
            do not fit the config with the changes.
        FileNotFoundError: If `path` does not exist, or holds no weights.
    """
    _check_stacks(path)
    try:
        with on_hub(path):
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
        if "safetensor" in f"{type(error).__name__} {error}".lower():
            raise ValueError(
                f"The weights in {path!r} (model.safetensors) cannot be read ({error}). The file "
                "is damaged or was cut off: copy it again, or use an earlier checkpoint."
            ) from error
        if isinstance(error, ValueError) or not Path(path).is_dir():
            raise
        raise ValueError(
            f"The model in {path!r} cannot be made ({type(error).__name__}: {error}): correct "
            "config.json and generation_config.json, or copy them again."
        ) from error
    misfits = {name: sorted(map(str, keys)) for name, keys in report.items() if keys}
    if misfits:
        raise ValueError(
            f"The weights in {path!r} (model.safetensors) do not fit the requested architecture "
            f"({misfits}): leave the fields of config.json as they were saved, or train "
            "a new model."
        )
    return model


def _check_stacks(path: str) -> None:
    """Refuses an encoder or a classifier: each lacks what is loaded here."""
    file = Path(path, "config.json")
    config = read_object(file) if file.is_file() else {}
    if config.get("is_encoder_decoder") is False:
        kind = " or ".join(config.get("architectures") or ["model of one stack"])
        raise ValueError(
            f"{path!r} holds a {kind}, but this needs a model with an encoder and a decoder: load "
            "it with its own class, in Python."
        )


@cache
def _check_name(path: str) -> None:
    """Asks the Hub for a name once; what loads the model asks again and again for minutes."""
    is_here = Path(path).exists() or isinstance(try_to_load_from_cache(path, "config.json"), str)
    if not is_here and not is_offline_mode():
        try:
            get_hf_file_metadata(hf_hub_url(path, "config.json"))
        except Exception as error:  # of the Hub's client: most are no OSError
            raise OSError(f"{type(error).__name__}: {error}") from error


@contextmanager
def on_hub(path: str) -> Iterator[None]:
    """Explains why a name cannot be loaded: it is no directory, and the Hub does not give it.

    Raises:
        FileNotFoundError: If what is loaded within raises an `OSError`, and the path does not
            exist.
    """
    try:
        _check_name(path)
        yield
    except OSError as error:
        if Path(path).exists():
            raise
        raise FileNotFoundError(
            f"{path!r} is not a local directory and could not be loaded from the Hub: check the "
            f"name ({str(error).splitlines()[0]})."
        ) from error


def with_int8_weights(model: Any) -> Any:
    """Returns a copy of a model that computes its linear maps with integers of 8 bits.

    The weights are rounded once. Each input is rounded to 8 bits when it comes, with a scale of its
    own ("dynamic quantization" in PyTorch). The embeddings, norms and attention stay as they are.

    Returns:
        The quantized model, in evaluation mode. It cannot be trained or saved.
    """
    if model.device.type != "cpu":
        raise ValueError(
            f"The engine 'int8' computes on a CPU, not on {model.device}: set `device='cpu'`, or "
            "use another engine."
        )
    with warnings.catch_warnings():
        # PyTorch announces that torchao will take its place.
        warnings.simplefilter("ignore")
        quantized: nn.Module = torch.ao.quantization.quantize_dynamic(
            deepcopy(model).float().eval(), {nn.Linear}, dtype=torch.qint8
        )
    return quantized
