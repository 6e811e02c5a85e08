"""Converts a checkpoint of another system."""

import argparse
from collections.abc import Sequence
from typing import Any

import yaml

from vanilla_transformer.interop.convert import convert_checkpoint
from vanilla_transformer.interop.systems import SYSTEMS


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
    if SYSTEMS[options.system].encoder_only:
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
