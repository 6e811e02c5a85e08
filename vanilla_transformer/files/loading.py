"""Loads a saved model, its tokenizer and its settings."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

from vanilla_transformer.files.model_directory import check_model_directory, check_on_hub


def load_model(path: str, device: str | torch.device | None = None) -> tuple[Any, Any]:
    """Loads (model, tokenizer) for inference; without a device, on a GPU if there is one."""
    check_model_directory(path)
    tokenizer = load_tokenizer(path)
    return load_on(path, device or default_device()), tokenizer


def load_on(path: str, device: str | torch.device) -> Any:
    """Loads a model for inference on a device."""
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"`device` {device}: torch finds no such GPU here. Leave the device out.")
    return load_weights(path).to(device).eval()


def default_device() -> str:
    """Returns a GPU if torch has one, otherwise the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_tokenizer(path: str) -> Any:
    """Loads a tokenizer through its Auto class."""
    check_on_hub(path)
    return AutoTokenizer.from_pretrained(path)


def load_weights(path: str, **changes: Any) -> Any:
    """Loads a model through its Auto class, with changes of its config such as `dropout=0.3`."""
    check_on_hub(path)
    try:
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            path, output_loading_info=True, **changes
        )
    except SafetensorError as error:  # it names no file
        raise ValueError(
            f"The weights in {path!r} (model.safetensors) cannot be read ({error}). The file "
            "is damaged or was cut off: copy it again, or use an earlier checkpoint."
        ) from error
    # transformers initializes weights that it does not find, and leaves out unknown ones.
    misfits = {name: sorted(map(str, keys)) for name, keys in report.items() if keys}
    if misfits:
        raise ValueError(
            f"The weights in {path!r} do not fit a model with an encoder and a decoder and this "
            f"config ({misfits}): leave the fields of config.json as they were saved, or "
            "train a new model."
        )
    return model


def load_generation_settings(path: str, config: Any) -> GenerationConfig:
    """Loads the settings of `generate()` that are saved with a model, or else its config's."""
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        if Path(path, "generation_config.json").exists():
            raise  # it is damaged
        return GenerationConfig.from_model_config(config)
