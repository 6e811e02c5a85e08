"""The program that looks into a saved model: `scripts/inspect.py`."""

import argparse
from collections.abc import Sequence
from typing import Any

from transformers.utils import logging

from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.inspection.attention_maps import attention_maps
from vanilla_transformer.inspection.shapes import shape_walk


def main(argv: Sequence[str] | None = None) -> None:
    """Prints what the command line asks for.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        ValueError: If the model cannot be loaded.
    """
    options = _parse(argv)
    logging.disable_progress_bar()
    options.command(options)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Look into a saved model.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shapes = commands.add_parser("shapes", help="shapes and parameters of each module, as called")
    shapes.set_defaults(command=_show_shapes)
    shapes.add_argument("model", help="directory of a saved model, or its name on the Hub")
    shapes.add_argument("--text", nargs="+", help="source texts; none: a small made-up batch")
    shapes.add_argument("--target", nargs="+", help="target texts; none: only their first token")
    shapes.add_argument("--attention", help="attention implementation, e.g. eager or sdpa")
    maps = commands.add_parser("attention", help="which source token each target token attends to")
    maps.set_defaults(command=_show_attention)
    maps.add_argument("model", help="directory of a saved model, or its name on the Hub")
    maps.add_argument("--text", required=True, help="source text")
    maps.add_argument("--target", help="target text; none: what the model generates")
    maps.add_argument("--layer", type=int, default=-1, help="layer of the stack; -1: the last")
    maps.add_argument("--head", type=int, help="head to print; none: the mean of all")
    maps.add_argument("--kind", choices=("cross", "encoder", "decoder"), default="cross")
    maps.add_argument("--output", help="image to draw the heads in (.png, .svg, .pdf)")
    return parser.parse_args(argv)


def _show_shapes(options: argparse.Namespace) -> None:
    model, tokenizer = load_model(options.model)
    if options.attention:
        model.set_attn_implementation(options.attention)
    print(shape_walk(model, _inputs(model, tokenizer, options.text, options.target)))


def _show_attention(options: argparse.Namespace) -> None:
    maps = attention_maps(*load_model(options.model), options.text, options.target)
    if options.output:
        maps.figure(options.kind, options.layer).savefig(options.output)
    for target, source, weight in maps.alignment(options.layer, options.head):
        print(f"{target:<16} {source:<16} {weight:.2f}")


def _inputs(
    model: Any, tokenizer: Any, sources: Sequence[str] | None, targets: Sequence[str] | None
) -> dict[str, Any]:
    if sources is None:
        return dict(model.dummy_inputs)
    if targets is not None and len(targets) != len(sources):
        raise ValueError(
            f"`--target` has {len(targets)} texts and `--text` {len(sources)}: give equally many."
        )
    inputs = dict(tokenizer(sources, text_target=targets, padding=True, return_tensors="pt"))
    if targets is None:
        start = model.config.decoder_start_token_id
        inputs["decoder_input_ids"] = inputs["input_ids"].new_full((len(sources), 1), start)
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}
