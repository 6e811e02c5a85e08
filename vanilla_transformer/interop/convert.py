"""Weights of another system in, a directory for the Auto classes out."""

import pickle
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file

from vanilla_transformer.interop.systems import SYSTEMS, convert
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.model.pretrained_model import VanillaTransformerPreTrainedModel


def load_weights(path: str | Path, key: str | None = None) -> dict[str, torch.Tensor]:
    """Reads names and weights from a file, without running code that it may hold.

    Args:
        path: A file of safetensors, or of `torch.save(model.state_dict(), path)`.
        key: Where the weights are in a file that holds more: "model_state_dict", for example.

    Returns:
        Names and weights.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds no weights, or something else than weights.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The checkpoint {str(path)!r} does not exist.")
    content = _read(path)
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            names = list(content)[:8] if isinstance(content, dict) else type(content).__name__
            raise ValueError(f"{str(path)!r} has no `key` {key!r}; it holds {names}.")
        content = content[key]
    if not isinstance(content, dict) or not content:
        kind = type(content).__name__
        raise ValueError(f"{str(path)!r} holds no weights but {kind}: save `model.state_dict()`.")
    others = [name for name, value in content.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise ValueError(
            f"{str(path)!r} holds more than weights: {others[:8]}. Name the entry that holds them "
            "by `key`, or save `model.state_dict()`."
        )
    return content


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as weights: save `model.state_dict()` rather than the "
            f"model ({str(error).splitlines()[0]})"
        ) from error


def convert_checkpoint(
    system: str,
    checkpoint: str | Path,
    output_dir: str | Path,
    num_heads: int,
    renames: str | Path | None = None,
    key: str | None = None,
    source_pad_token_id: int | None = None,
    **changes: Any,
) -> VanillaTransformerPreTrainedModel:
    """Converts a file of weights and saves the model.

    Args:
        system: "system-a" to "system-e".
        checkpoint: The file of weights.
        output_dir: Where the model is saved; it may exist, but empty.
        num_heads: Number of heads.
        renames: YAML file of rules for names, as `interop.systems.convert` takes them.
        key: Where the weights are in the file.
        source_pad_token_id: As `interop.systems.convert` takes it.
        **changes: Fields of the config that differ from the preset.

    Returns:
        The model that was saved: one with output projection, or for system B a bare model, of
        which only the encoder holds converted weights.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the output directory holds something, if a file is broken, or as
            `interop.systems.convert`.
    """
    output = Path(output_dir)
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise ValueError(f"`output_dir` {str(output)!r} is not empty: choose another directory.")
    rules = _read_rules(renames)
    trained = load_weights(checkpoint, key)
    config, weights = convert(
        system, trained, num_heads, rules, source_pad_token_id=source_pad_token_id, **changes
    )
    alone = SYSTEMS[system].encoder_alone
    kind = VanillaTransformerModel if alone else VanillaTransformerForConditionalGeneration
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the decoder that B lacks is the same in every conversion
        model = kind(config)
    model.load_state_dict(weights, strict=not alone)
    model.train(False).save_pretrained(output)
    return model


def _read_rules(path: str | Path | None) -> dict[str, str | None]:
    if path is None:
        return {}
    if not Path(path).is_file():
        raise FileNotFoundError(f"The file of rules {str(path)!r} does not exist.")
    try:
        rules = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{str(path)!r} is no YAML: {error}") from error
    if not isinstance(rules, dict) or not all(isinstance(name, str) for name in rules):
        raise ValueError(
            f"{str(path)!r} must map regular expressions to names, one to a line: "
            "'old\\.(.*)': 'new.\\1'."
        )
    return rules
