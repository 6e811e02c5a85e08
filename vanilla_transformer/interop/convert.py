"""Weights of another system in, a directory for the Auto classes out."""

import argparse
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file

from vanilla_transformer.interop.systems import SYSTEMS, convert
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)


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


def main(argv: Sequence[str] | None = None) -> None:
    """Converts a checkpoint: `scripts/convert.py`.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        ValueError: As `convert_checkpoint`.
    """
    options = _parse(argv)
    model = convert_checkpoint(
        options.system,
        options.checkpoint,
        options.output_dir,
        options.heads,
        renames=options.rename,
        key=options.key,
        source_pad_token_id=options.source_pad,
        **dict(options.set),
    )
    print(f"{options.output_dir}: {type(model).__name__}, {model.num_parameters():,} parameters.")
    if SYSTEMS[options.system].encoder_alone:
        print("Only `AutoModel.from_pretrained(...).encoder` is trained; it takes `inputs_embeds`.")
    else:
        print("A tokenizer is not part of it: save yours beside it.")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Convert a checkpoint.")
    parser.add_argument("checkpoint", help="file of weights: a saved state_dict, or safetensors")
    parser.add_argument("output_dir", help="directory of the new model, which does not exist yet")
    parser.add_argument("--from", dest="system", required=True, choices=list(SYSTEMS))
    parser.add_argument("--heads", type=int, required=True, help="number of attention heads")
    parser.add_argument("--rename", help="YAML file: regular expressions to expected names")
    parser.add_argument("--key", help="where the weights are in a file that holds more")
    parser.add_argument(
        "--source-pad",
        type=int,
        metavar="ID",
        help="padding of the source, if its id differs from pad_token_id: the two change places",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        type=_assignment,
        default=[],
        metavar="FIELD=VALUE",
        help="fields of the config that differ from the preset, such as pad_token_id=3",
    )
    return parser.parse_args(argv)


def _assignment(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    return name, yaml.safe_load(value)
